"""Tasks of another ecosystem are sealed as ours are: out of the workspace, and opened for acceptance alone."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tests.unit.evaluation.sealed import all_text

from flightschool.environments import load_environment, save_environment
from flightschool.environments.foreign.keeping import built_foreign
from flightschool.environments.nemo_gym import import_nemo_gym
from flightschool.errors import GateError
from flightschool.evaluation import Acceptance, Asked, Terms, accept, freeze, load_suite, seal_holdout
from flightschool.governance import KeyRing
from flightschool.protocols import Environment
from flightschool.records import ToolCall
from flightschool.rollouts import MessagesPolicy, Policy, scripted_turns
from flightschool.serving import Offer, TaskDesk
from flightschool.serving.nemo_gym import NemoGymServer, rows
from flightschool.store import Workspace
from flightschool.testing.miniature import MiniatureEnvironment
from flightschool.verification import OutcomeReward

MINIATURE = MiniatureEnvironment()
FINISH = ToolCall(id="z", name="final_answer", arguments={"answer": "Done."})


def knows_the_way(world: Environment) -> Policy:
    """Does what the environment's own references say, which the imported rows do not hold."""
    oracles = {task.id: MINIATURE.reference(task.id).oracle for task in world.tasks()}
    return MessagesPolicy({key: scripted_turns([*calls, FINISH], "Done.") for key, calls in oracles.items()}, "knowing")


def sealed_and_accepted(folder: Path, url: str, source: Path) -> Acceptance:
    content, guessed = import_nemo_gym(url, source, num_tasks=20, threshold=0.9, max_turns=8)
    ring = KeyRing(folder / "keys", outside=folder / "space")
    with Workspace.create(folder / "space") as space:
        save_environment(space.store, built_foreign("theirs", content, guessed))
        whole = load_environment("theirs", space)
        frozen = freeze(whole, "ride", suite_fraction=0.3, holdout_fraction=0.3)
        assert frozen.holdout is not None
        tasks = [whole.task(task_id) for task_id in frozen.holdout.task_digests]
        kept, card = seal_holdout(
            space.store,
            frozen,
            whole,
            ring=ring,
            actor="Vera",
            root=space.root,
            terms=Terms(looks=2),
            unaudited=lambda _: [],
        )
        left = load_environment("theirs", space)
        assert (left.digest, len(left.tasks())) == (card.successor, len(whole.tasks()) - len(tasks))
        assert load_suite(space.store, "ride", left).digest == kept.suite.digest
        with pytest.raises(GateError, match="changed since the freeze"):
            load_suite(space.store, "ride", whole)
        accepted = accept(
            space.store,
            "ride",
            ring=ring,
            composition=OutcomeReward(),
            make_policy=knows_the_way,
            base=lambda: pytest.fail("the content lies in the box"),
            asked=Asked(actor="Vera", role="evaluation", reason="release 4", candidate_digest="sha256:a"),
        )
        there = left.tasks()[0].instruction
    text = all_text(folder / "space")
    assert not [task.id for task in tasks if task.instruction in text or task.digest in text]
    assert there in text  # the search does find what is there
    return accepted


def test_imported_tasks_leave_the_workspace_and_are_flown_at_their_server_again(tmp_path: Path) -> None:
    source = tmp_path / "rows.jsonl"
    source.write_text("\n".join(json.dumps(row) for row in rows(TaskDesk(MINIATURE))), encoding="utf-8")

    async def served() -> Acceptance:
        async with NemoGymServer(Offer(MINIATURE), TaskDesk(MINIATURE)) as server:
            return await asyncio.to_thread(sealed_and_accepted, tmp_path, server.url, source)

    accepted = asyncio.run(served())
    assert (accepted.look, accepted.accuracy.value) == (1, 1.0)
