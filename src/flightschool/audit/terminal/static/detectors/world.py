"""What grading hangs on besides the work: network, clock, locale, speed, services, shared places, chance, judges."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from flightschool.audit.terminal.records import FlawFinding
from flightschool.audit.terminal.static.case import Case
from flightschool.audit.terminal.static.live_path import LivePython
from flightschool.environments.terminal.fetching import fetches_of_argv

__all__ = ["detect"]

_ELAPSED: Final = ("time.time", "time.monotonic", "time.perf_counter")
_PROCESSES: Final = frozenset(
    ["pgrep", "ps", "pidof", "systemctl", "ss", "netstat", "lsof", "nc", "service", "supervisorctl"]
)
_LOCAL: Final = ("localhost", "127.0.0.1", "0.0.0.0", "[::1]")
_SHARED: Final = ("/tmp/", "/var/tmp/", "/dev/shm/")
_LOCALE_CODES: Final = ("%A", "%a", "%B", "%b", "%c", "%x", "%X", "%p")
_JUDGES: Final = (
    "chat.completions.create",
    "messages.create",
    "responses.create",
    "ChatCompletion.create",
    "generate_content",
)
_JUDGE_URLS: Final = ("/chat/completions", "/v1/messages", "/v1/responses", "api.openai.com", "api.anthropic.com")


def detect(case: Case) -> Iterator[FlawFinding]:
    """All of them."""
    yield from _network(case)
    yield from _services(case)
    yield from _shared(case)
    yield from _shell_time(case)
    for live in case.live.python:
        yield from _time(case, live)
        yield from _locale(case, live)
        yield from _chance(case, live)
        yield from _judge(case, live)


def _network(case: Case) -> Iterator[FlawFinding]:
    for run in case.runs:
        if not run.argv or run.program in ("echo", "printf", "export", "cd", "[", "[["):
            continue
        if any(local in word for word in run.argv for local in _LOCAL):
            continue
        for fetch in fetches_of_argv(run.argv):
            if not fetch.index_only:
                yield case.finding(
                    "network-in-grading",
                    f"grading fetches: {fetch.reason}",
                    run.where,
                    0.6 if fetch.packages else 0.85,
                    "put what the tests need into the image, or into tests/",
                )
    for live in case.live.python:
        for call in live.code.nodes(ast.Call):
            effect = live.flow.effect(call, live.code.full_name(call))
            if effect is None or effect[0] != "network" or not effect[1]:
                continue
            if effect[1].startswith(("http", "ftp")) and not any(local in effect[1] for local in _LOCAL):
                yield case.finding(
                    "network-in-grading",
                    f"the tests fetch {effect[1][:80]}",
                    live.code.where(call),
                    0.85,
                    "keep a copy in tests/",
                )


def _services(case: Case) -> Iterator[FlawFinding]:
    """Processes that must still run when grading begins: only files reach a sandbox of the grader's own."""
    started = any(
        run.background or (run.program in ("service", "systemctl") and "start" in run.argv) for run in case.runs
    )
    started = started or any(
        "Popen" in name or "Thread" in name or "Process" in name
        for live in case.live.python
        for name in live.code.calls
    )
    if started:
        return
    mend = "let the tests start it from the files that the policy left"
    for run in case.runs:
        asks_local = run.program in ("curl", "wget", "nc", "redis-cli", "psql", "mysql") and (
            any(local in word for word in run.argv for local in _LOCAL) or run.program in ("redis-cli",)
        )
        if run.program in _PROCESSES - {"service"} or asks_local:
            yield case.finding(
                "isolation-refused",
                f"{run.program} asks for a process that the policy left running",
                run.where,
                0.7,
                mend,
            )
            return
    for live in case.live.python:
        for call in live.code.nodes(ast.Call):
            name = live.code.full_name(call)
            effect = live.flow.effect(call, name)
            first = live.code.text_value(call.args[0]) if call.args else ""
            local = any(host in first for host in _LOCAL)
            asks = (effect is not None and effect[0] == "network" and local) or name.endswith(
                ("process_iter", "pid_exists")
            )
            command = live.flow.argv(call)[:1] if effect is not None and effect[0] == "program" else ()
            if asks or (command and command[0] in _PROCESSES) or (name.endswith(".connect") and _is_socket(live, call)):
                yield case.finding(
                    "isolation-refused",
                    "the tests ask for a process that the policy left running",
                    live.code.where(call),
                    0.7,
                    mend,
                )
                return


def _is_socket(live: LivePython, call: ast.Call) -> bool:
    return (
        bool(call.args)
        and isinstance(call.args[0], ast.Tuple)
        and any(live.code.text_value(element) in _LOCAL for element in call.args[0].elts)
    )


def _shared(case: Case) -> Iterator[FlawFinding]:
    written = {path for run in case.runs for path, _ in run.writes}
    written |= {
        run.path(word)
        for run in case.runs
        if run.program in ("tee", "cp", "mv", "touch", "mkdir", "install")
        for word in run.argv[1:]
    }
    for live in case.live.python:
        written |= {path for call in live.code.nodes(ast.Call) if (path := live.flow.writes_to(call))}
        text = live.code.text
        written |= {
            read.path
            for read in case.trust.grader_reads
            if read.path.startswith(_SHARED) and f"rm -f {read.path}" in text
        }
    for read in case.trust.grader_reads:
        if (
            read.path.startswith(_SHARED)
            and read.path not in case.instruction
            and not any(read.path == path or read.path.startswith(path + "/") for path in written)
        ):
            yield case.finding(
                "shared-state",
                f"the tests read {read.path}, where another attempt can leave it",
                read.where,
                0.5,
                "use a folder of the attempt's own",
            )


def _shell_time(case: Case) -> Iterator[FlawFinding]:
    for run in case.decisive():
        if run.program in ("[", "[[", "test", "grep", "diff"):
            basis = [base for base in run.basis() if base is not run]
            dated = [
                base
                for base in basis
                if base.program == "date" and not any(w.startswith(("-d", "--date", "-r")) for w in base.argv)
            ]
            sorts = [base for base in basis if base.program in ("sort", "ls", "comm") and "LC_ALL" not in base.env]
            if dated:
                yield case.finding(
                    "clock-dependence",
                    "the work is compared with today's date",
                    run.where,
                    0.6,
                    "fix the date in the task",
                )
            if sorts and run.program == "diff":
                yield case.finding(
                    "locale-dependence",
                    f"`{sorts[0].program}` orders by the locale",
                    sorts[0].where,
                    0.4,
                    "set LC_ALL=C",
                )
    for run in case.runs:
        if run.program == "timeout" or run.words[:1] == ("timeout",):
            limit = next((word for word in run.words[1:] if not word.startswith("-")), "")
            if limit.rstrip("s").replace(".", "").isdigit() and float(limit.rstrip("s")) <= 5:
                yield case.finding(
                    "slow-refused", f"work must end within {limit} of wall clock", run.where, 0.4, "allow more time"
                )


def _time(case: Case, live: LivePython) -> Iterator[FlawFinding]:
    for node in live.code.nodes(ast.Compare):
        sides = [node.left, *node.comparators]
        clocks = {detail for side in sides for kind, detail in live.flow.origins(side) if kind == "clock"}
        if not clocks:
            continue
        elapsed = any(clock in _ELAPSED for clock in clocks)
        bounded = isinstance(node.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE)
        asserted = any(isinstance(above, ast.Assert) for above in live.code.above(node))
        if elapsed and bounded and asserted:
            yield case.finding(
                "slow-refused",
                "the test fails when it takes too long on this machine",
                live.code.where(node),
                0.5,
                "count steps rather than seconds, or allow much more",
            )
        elif not elapsed:
            yield case.finding(
                "clock-dependence",
                "the work is compared with the present date or time",
                live.code.where(node),
                0.6,
                "fix the date in the task",
            )
    for call in live.code.nodes(ast.Call):
        name = live.code.full_name(call)
        limit = next((live.code.value(word.value) for word in call.keywords if word.arg == "timeout"), None)
        if name.startswith("subprocess.") and isinstance(limit, int | float) and limit <= 3:
            yield case.finding(
                "slow-refused",
                f"a program must end within {limit} s of wall clock",
                live.code.where(call),
                0.45,
                "allow more time",
            )


def _locale(case: Case, live: LivePython) -> Iterator[FlawFinding]:
    for call in live.code.nodes(ast.Call):
        name = live.code.full_name(call)
        last = name.rpartition(".")[2]
        if last in ("strftime", "strptime"):
            text = " ".join(live.code.text_value(argument) for argument in call.args)
            if any(code in text for code in _LOCALE_CODES):
                yield case.finding(
                    "locale-dependence",
                    f"{last} with names of days or months follows the locale",
                    live.code.where(call),
                    0.4,
                    "use numbers, or set LC_ALL=C",
                )
        elif name.startswith("locale.setlocale") or (
            last == "fromtimestamp" and len(call.args) + len(call.keywords) == 1
        ):
            yield case.finding(
                "locale-dependence",
                f"{name} follows the locale or time zone of the machine",
                live.code.where(call),
                0.5,
                "name the time zone",
            )
        elif name in ("time.localtime", "time.mktime", "time.tzset"):
            yield case.finding(
                "locale-dependence",
                f"{name} follows the time zone of the machine",
                live.code.where(call),
                0.5,
                "use UTC",
            )


def _chance(case: Case, live: LivePython) -> Iterator[FlawFinding]:
    seeded = any(
        name.rpartition(".")[2] in ("seed", "default_rng", "RandomState", "Random", "manual_seed")
        for name in live.code.calls
    )
    if seeded:
        return
    for node in live.code.nodes(ast.Call):
        name = live.code.full_name(node)
        if name.startswith(("random.", "numpy.random.", "np.random.")):
            yield case.finding(
                "flaky", f"{name} draws without a seed", live.code.where(node), 0.45, "give the generator a fixed seed"
            )
            return


def _judge(case: Case, live: LivePython) -> Iterator[FlawFinding]:
    named = next((calls[0] for name, calls in live.code.calls.items() if name.endswith(_JUDGES)), None)
    constant = next(
        (
            n
            for n in live.code.nodes(ast.Constant)
            if isinstance(n.value, str) and any(u in n.value for u in _JUDGE_URLS)
        ),
        None,
    )
    node = named or constant
    if node is not None:
        yield case.finding(
            "judge-injection",
            "a language model judges text of the policy",
            live.code.where(node),
            0.6,
            "fence the text, refuse text that speaks to the judge, and let functional checks decide",
        )
