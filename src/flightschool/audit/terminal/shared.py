"""Grading in the policy's own sandbox, as the shared mode does: only to learn why an isolated grading fails."""

from __future__ import annotations

from pathlib import Path

from flightschool.audit.terminal.examination import PASS_MARK, Examination, Play
from flightschool.environments.terminal import RewardNumber, VerdictSource, read_pytest_summary, read_reward
from flightschool.environments.terminal.grading import place_files, verifier_account
from flightschool.environments.terminal.rooms import VERDICT_FOLDER, Rooms, rooms_env
from flightschool.environments.terminal.trees import Tree
from flightschool.errors import FlightschoolError

__all__ = ["grade_in_place"]


async def grade_in_place(exam: Examination) -> Play | None:
    """Play the reference of a task of one stage and run its tests beside what still runs; None: it has more stages.

    Tests and solution are in place from the start, so this tells nothing about attacks.

    Raises:
        InfrastructureError: the sandbox was lost.
    """
    task, image = exam.task, exam.image
    stage = task.stages[0]
    if task.steps or not stage.oracle:
        return None
    tree = Tree(Path(image.tree), over_host=image.over_host)
    account = verifier_account(tree, stage, image)
    agent_s, grader_s = stage.limits.agent_s or 60.0, stage.limits.verifier_s or 60.0
    env = rooms_env(image, image.account, {**task.environment_env, **task.solution_env})
    with exam.store.scratch(tree) as folder:
        room = tree.copy_to(folder)
        room.make_folder(VERDICT_FOLDER, owner=(account.uid, account.gid))
        place_files(room, task, (*stage.solution, *stage.tests))
        rooms = Rooms(task=task, image=image, stand_ins=exam.store.stand_ins(image))
        async with exam.provider.open(rooms.spec(room, account, agent_s + grader_s)) as box:
            exam.num_episodes += 1
            await box.exec(stage.oracle, timeout_s=agent_s, env=env, output_bytes=1 << 20)
            result = await box.exec(
                stage.test_command, timeout_s=grader_s, env={**env, **task.verifier_env}, sweep_on_timeout=True
            )
            await box.stop()
            files: dict[str, bytes] = {}
            for name in ("reward.json", "reward.txt"):
                try:
                    files[name] = await box.get(f"{VERDICT_FOLDER}/{name}", most_bytes=1 << 16)
                except FlightschoolError:  # it was not written
                    continue
    text = (result.stdout + result.stderr).decode(errors="replace")
    by_summary = task.verdict_source is VerdictSource.PYTEST_SUMMARY
    reading = read_pytest_summary(text) if by_summary else read_reward(files)
    reward = reading.value if isinstance(reading, RewardNumber) else None
    return Play(reward=1.0 if reward is not None and reward >= PASS_MARK else reward, output=text[-2000:])
