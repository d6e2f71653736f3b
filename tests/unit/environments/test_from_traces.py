"""From traces to tasks that can be judged, and how true the environment is to the traces."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from flightschool.environments import TracedEnvironment, build_from_traces, check_environment
from flightschool.errors import ConfigError, TraceError
from flightschool.protocols import Environment
from flightschool.records import (
    CallCheck,
    CheckKind,
    CheckSpec,
    DiffCheck,
    Minefield,
    MinefieldCheck,
    Severity,
    ToolCall,
)
from flightschool.rollouts import EpisodeRunner, NoopPolicy, OraclePolicy, Policy, RandomPolicy, run_attempts
from flightschool.verification import OutcomeReward, RewardSettings

if TYPE_CHECKING:
    from tests.unit.environments.conftest import Orders


def success(environment: Environment, policy: Policy) -> dict[str, bool]:
    runner = EpisodeRunner(environment, OutcomeReward(RewardSettings()), run="t")
    attempts = run_attempts(runner, environment.tasks(), policy, seed=1)
    return {a.task: a.reward is not None and a.reward.success for a in attempts}


def mixed(orders: Orders) -> list[dict[str, Any]]:
    return [
        orders.cancelling("A1", "one"),
        orders.cancelling("A1", "one", success=False),
        orders.cancelling("A2", "two"),
        orders.asking("A3", "three"),
        orders.refusing("A5", "five"),
    ]


class TestTasks:
    def test_trials_become_tasks_with_checks_on_what_was_done(self, orders: Orders) -> None:
        built = build_from_traces(orders.traces(*mixed(orders)), "orders")
        environment = built.environment
        assert isinstance(environment, Environment)
        assert [t.id for t in environment.tasks()] == ["one", "two", "three", "five"]
        assert environment.policy_text == "Cancel open orders only."
        reference = environment.reference("one")
        functional = [c.rule for c in reference.checks if c.kind is CheckKind.FUNCTIONAL]
        # the reason is free text: another wording is no other act
        assert functional == [CallCheck(tool="cancel_order", arguments={"order_id": "A1"})]
        bounds = [c.rule for c in reference.checks if c.kind is CheckKind.CONSTRAINT]
        assert bounds == [CallCheck(tool="cancel_order", least=0, most=1)]
        assert [c.name for c in reference.oracle] == ["get_order", "cancel_order", "get_order"]

    def test_the_oracle_solves_every_task_and_doing_nothing_or_anything_solves_none(self, orders: Orders) -> None:
        environment = build_from_traces(orders.traces(*mixed(orders)), "orders").environment
        assert success(environment, OraclePolicy(environment)) == dict.fromkeys(["one", "two", "three", "five"], True)
        assert not any(success(environment, NoopPolicy()).values())
        assert not any(success(environment, RandomPolicy()).values())
        assert check_environment(environment) == []

    def test_abstaining_is_an_act_after_the_read_that_justifies_it(self, orders: Orders) -> None:
        environment = build_from_traces(orders.traces(*mixed(orders)), "orders").environment
        reference = environment.reference("five")
        assert reference.abstain
        assert [c.rule for c in reference.checks if c.kind is CheckKind.FUNCTIONAL] == [
            CallCheck(tool="decline"),
            CallCheck(tool="get_order", arguments={"order_id": "A5"}, before="decline"),
        ]
        assert "decline" in [t.name for t in environment.tools()]

    def test_families_are_near_duplicates_and_rare_strata_stand_together(self, orders: Orders) -> None:
        environment = build_from_traces(orders.traces(*mixed(orders)), "orders").environment
        by_id = {t.id: t for t in environment.tasks()}
        assert by_id["one"].family == by_id["two"].family != by_id["three"].family
        assert {t.stratum for t in environment.tasks()} == {"other"}
        assert environment.strata == {"other": 1.0}

    def test_recorded_families_and_strata_are_kept(self, orders: Orders) -> None:
        made = [orders.cancelling(f"A{n}", f"t{n}") for n in (1, 2, 3, 4)]
        for number, one in enumerate(made):
            one["metadata"] |= {"family": f"f{number}", "stratum": "easy" if number else "hard"}
        environment = build_from_traces(orders.traces(*made), "orders").environment
        assert [(t.family, t.stratum) for t in environment.tasks()][:2] == [("f0", "hard"), ("f1", "easy")]
        assert environment.strata == {"easy": 0.75, "hard": 0.25}

    def test_tasks_about_which_nothing_is_known_are_left_out_and_named(self, orders: Orders) -> None:
        traces = orders.traces(orders.cancelling("A1", "one"), orders.cancelling("A2", "two", success=False))
        built = build_from_traces(traces, "orders")
        assert [t.id for t in built.environment.tasks()] == ["one"]
        assert [(left.task, left.reason) for left in built.left_out] == [
            ("two", "no recorded success and no ground truth")
        ]

    def test_traces_without_outcomes_are_refused_with_the_mend(self, orders: Orders) -> None:
        with pytest.raises(TraceError) as caught:
            build_from_traces(orders.traces(orders.cancelling("A2", "two", success=False)), "orders")
        assert "metadata.success" in caught.value.expected

    def test_without_ids_equal_requests_are_one_task(self, orders: Orders) -> None:
        made = [orders.cancelling("A1", "") for _ in range(2)] + [orders.cancelling("A2", "")]
        environment = build_from_traces(orders.traces(*made), "orders").environment
        assert len(environment.tasks()) == 2

    def test_equal_traces_give_equal_digests(self, orders: Orders) -> None:
        traces = orders.traces(*mixed(orders))
        first, second = (build_from_traces(traces, name).environment for name in ("a", "b"))
        assert first.digest == second.digest
        other = build_from_traces(orders.traces(*mixed(orders)[:-1]), "a").environment
        assert other.digest != first.digest


class TestFidelity:
    def test_recordings_reproduce_themselves_and_say_how_far_they_reach(self, orders: Orders) -> None:
        fidelity = build_from_traces(orders.traces(*mixed(orders)), "orders").fidelity
        assert (fidelity.calls.hits, fidelity.calls.total) == (9, 9)
        assert (fidelity.reads.total, fidelity.writes.total) == (7, 2)
        assert fidelity.agreement.successes.value == 1.0
        assert (fidelity.agreement.failures.hits, fidelity.agreement.failures.total) == (1, 1)
        assert fidelity.coverage is not None
        # only the first read of task "one" was recorded twice
        assert (fidelity.coverage.calls.hits, fidelity.coverage.calls.total) == (2, 9)
        assert fidelity.mismatches == ()

    def test_a_state_lets_all_episodes_answer_for_one_another(self, orders: Orders) -> None:
        traces = orders.traces(orders.cancelling("A1", "one"), orders.cancelling("A1", "two"))
        alone = build_from_traces(traces, "o").fidelity.coverage
        shared = build_from_traces(traces, "o", state=orders.state()).fidelity.coverage
        assert alone is not None
        assert shared is not None
        assert (alone.calls.hits, shared.calls.hits) == (0, 6)

    def test_code_is_compared_after_parsing_and_drift_is_shown(self, orders: Orders) -> None:
        drifted = orders.code_text.replace(
            'return state["orders"][order_id]', 'return state["orders"][order_id] | {"v": 2}'
        )
        traces = orders.traces(orders.cancelling("A1", "one"), orders.cancelling("A2", "two"))
        true = build_from_traces(traces, "o", state=orders.state(), code=orders.code()).fidelity
        assert (true.calls.hits, true.calls.total) == (6, 6)
        assert true.coverage is None
        false = build_from_traces(traces, "o", state=orders.state(), code=orders.code(drifted)).fidelity
        assert (false.calls.hits, false.by_tool["get_order"].hits, false.writes.hits) == (2, 0, 2)
        first = false.mismatches[0]
        assert (first.tool, first.path, first.recorded, first.answered) == ("get_order", "v", "(absent)", "2")

    def test_faulted_calls_are_counted_apart(self, orders: Orders) -> None:
        made = orders.cancelling("A1", "one")
        made["messages"][3] |= {"content": '{"status": "long ago"}', "fault": "stale_read"}
        fidelity = build_from_traces(orders.traces(made), "o", state=orders.state(), code=orders.code()).fidelity
        assert (fidelity.calls.hits, fidelity.calls.total) == (2, 2)
        assert (fidelity.faulted.hits, fidelity.faulted.total) == (0, 1)


class TestCode:
    def build(self, orders: Orders, code: str) -> TracedEnvironment:
        traces = orders.traces(*(orders.cancelling(f"A{n}", f"t{n}") for n in (1, 2)))
        environment = build_from_traces(traces, "o", state=orders.state(), code=code).environment
        assert isinstance(environment, TracedEnvironment)
        return environment

    def test_worlds_are_fresh_copies_and_forks_are_independent(self, orders: Orders) -> None:
        environment = self.build(orders, orders.code())
        task = environment.tasks()[0]
        world, untouched = environment.open(task), environment.open(task)
        cancel = ToolCall(id="1", name="cancel_order", arguments={"order_id": "A1"})
        before = world.fork()
        assert not world.execute(cancel).is_error
        again = world.execute(cancel)
        assert (again.is_error, again.value) == (True, {"error": "only open orders can be cancelled"})
        assert untouched.snapshot() == before.snapshot() == environment.open(task).snapshot() != world.snapshot()
        assert json.loads(world.snapshot())["orders"]["A1"]["status"] == "cancelled"

    def test_collateral_changes_are_bounded_by_what_the_oracle_changes(self, orders: Orders) -> None:
        environment = self.build(orders, orders.code())
        rules = [c.rule for c in environment.reference("t1").checks if isinstance(c.rule, DiffCheck)]
        assert rules == [DiffCheck(allowed={"orders": 1})]
        assert all(success(environment, OraclePolicy(environment)).values())
        assert check_environment(environment) == []

    def test_a_read_that_writes_is_found(self, orders: Orders) -> None:
        text = orders.code_text.replace(
            'return state["orders"][order_id]', 'state["seen"] = order_id\n    return state["orders"][order_id]'
        )
        findings = check_environment(self.build(orders, orders.code(text)))
        assert "environment-reads" in {f.probe for f in findings}
        assert findings[0].severity is Severity.BARRING

    def test_shared_state_outside_of_the_world_is_found(self, orders: Orders) -> None:
        text = orders.code_text.replace("def get_order", "COUNT = []\n\n\ndef get_order").replace(
            'return state["orders"][order_id]', 'COUNT.append(1)\n    return {"n": len(COUNT)}'
        )
        findings = check_environment(self.build(orders, orders.code(text)))
        assert {"environment-determinism", "environment-reads"} <= {f.probe for f in findings}

    @pytest.mark.parametrize(
        ("text", "word"),
        [
            (
                "def nothing(state, order_id):\n    return 1\n",
                "2 recorded tools have no function: cancel_order, get_order",
            ),
            ("TOOLS = {}\n", "2 recorded tools have no function"),
            ("import nowhere_at_all\n", "cannot be imported"),
            ("def broken(:\n", "cannot be imported"),
            ("TOOLS = [1]\n", "TOOLS is no mapping"),
            ("async def get_order(state): ...\nasync def cancel_order(state): ...\n", "coroutine"),
            ("def build_environment():\n    raise KeyError('x')\n", "build_environment"),
            ("def build_environment():\n    return 1\n", "gave a int"),
        ],
    )
    def test_code_that_cannot_be_used(self, orders: Orders, text: str, word: str) -> None:
        with pytest.raises(ConfigError) as caught:
            self.build(orders, orders.code(text))
        assert word in caught.value.what
        assert "tools.py" in caught.value.where
        assert caught.value.mend

    @pytest.mark.parametrize("code", ["no_such_module_here", "./no/such/file.py", "flightschool.nothing"])
    def test_code_that_does_not_exist(self, orders: Orders, code: str) -> None:
        with pytest.raises(ConfigError, match="there is no"):
            self.build(orders, code)

    @pytest.mark.parametrize(("content", "word"), [(None, "no initial state"), ("{", "not valid JSON")])
    def test_state_that_cannot_be_used(self, orders: Orders, content: str | None, word: str) -> None:
        place = orders.folder / "elsewhere"
        if content is not None:
            place.mkdir()
            (place / "orders.json").write_text(content)
        with pytest.raises(ConfigError, match=word):
            build_from_traces(orders.traces(orders.cancelling("A1", "t")), "o", state=place)

    def test_tools_can_be_named_in_a_table(self, orders: Orders) -> None:
        text = (
            orders.code_text.replace("def get_order", "def read_it")
            + "TOOLS = {'get_order': read_it, 'cancel_order': cancel_order}\n"
        )
        environment = self.build(orders, orders.code(text))
        assert all(success(environment, OraclePolicy(environment)).values())


class TestWholeEnvironments:
    def test_a_module_that_builds_one_is_used_with_measured_traffic(self, orders: Orders) -> None:
        from flightschool.environments.desk import build_environment

        desk = build_environment()
        task = next(t for t in desk.tasks() if t.stratum == "two_step")
        reference = desk.reference(task.id)
        world = desk.open(task)
        parts = [orders.call(c.name, c.id, world.execute(c).value, **c.arguments) for c in reference.oracle]
        made = orders.episode(*parts, ask=task.instruction, say=reference.oracle_answer, task=task.id, success=True)
        stray = orders.episode(ask="x", task="unknown", success=False)
        built = build_from_traces(orders.traces(made, stray), "plant", code="flightschool.environments.desk")
        assert built.environment.name == "plant"
        assert built.environment.strata == {"two_step": 1.0}
        assert built.environment.task(task.id) == task
        assert built.fidelity.calls.value == 1.0
        assert built.fidelity.calls.total == len(reference.oracle)
        assert built.fidelity.num_unmatched == 1
        assert built.fidelity.agreement.successes.value == 1.0

    def test_traces_of_another_domain_are_refused(self, orders: Orders) -> None:
        with pytest.raises(ConfigError, match="no recorded episode belongs"):
            build_from_traces(orders.traces(*mixed(orders)), "x", code="flightschool.environments.desk")


class TestHostileEnvironments:
    def test_a_broken_oracle_is_barring(self, orders: Orders) -> None:
        environment = build_from_traces(orders.traces(orders.cancelling("A1", "one")), "o").environment
        assert isinstance(environment, TracedEnvironment)
        reference = msgspec.structs.replace(environment.content.references[0], oracle=())
        broken = TracedEnvironment("o", msgspec.structs.replace(environment.content, references=(reference,)))
        (finding,) = check_environment(broken)
        assert (finding.probe, finding.severity) == ("environment-oracle", Severity.BARRING)

    def test_a_check_on_a_tool_that_is_not_there_is_barring(self, orders: Orders) -> None:
        environment = build_from_traces(orders.traces(orders.cancelling("A1", "one")), "o").environment
        assert isinstance(environment, TracedEnvironment)
        (reference,) = environment.content.references
        rule = MinefieldCheck(mines=(Minefield(id="m", tool="cancel_oder"),))
        never = CheckSpec(id="safe", kind=CheckKind.CONSTRAINT, rule=rule)
        reference = msgspec.structs.replace(reference, checks=(*reference.checks, never))
        unsafe = TracedEnvironment("o", msgspec.structs.replace(environment.content, references=(reference,)))
        (finding,) = check_environment(unsafe)
        assert (finding.probe, finding.severity) == ("environment-checks", Severity.BARRING)
        assert "check safe names tool 'cancel_oder'" in finding.what
        assert finding.evidence.startswith("did you mean 'cancel_order'")

    def test_shares_that_do_not_sum_to_one_are_found(self, orders: Orders) -> None:
        environment = build_from_traces(orders.traces(orders.cancelling("A1", "one")), "o").environment
        assert isinstance(environment, TracedEnvironment)
        skewed = TracedEnvironment("o", msgspec.structs.replace(environment.content, strata={"odd": 0.4}))
        assert [f.probe for f in check_environment(skewed)] == ["environment-strata"] * 2
