"""Text of the policy that the grader executes: eval, pickle, YAML with objects, shell."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from flightschool.audit.terminal.records import FlawFinding
from flightschool.audit.terminal.static.case import Case
from flightschool.audit.terminal.static.comparisons import agent_origins
from flightschool.audit.terminal.static.live_path import LivePython
from flightschool.audit.terminal.static.python_code import call_name

__all__ = ["detect"]

_EVALUATES: Final = frozenset(["eval", "exec", "compile"])
_UNPICKLES: Final = frozenset(
    ["pickle.load", "pickle.loads", "cPickle.load", "dill.load", "dill.loads", "joblib.load", "marshal.load",
     "marshal.loads", "shelve.open", "pandas.read_pickle", "torch.load", "cloudpickle.load", "jsonpickle.decode"]
)  # fmt: skip
_YAML: Final = frozenset(["yaml.load", "yaml.unsafe_load", "yaml.full_load", "yaml.load_all"])
_SHELLS: Final = frozenset(["os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"])


def detect(case: Case) -> Iterator[FlawFinding]:
    """In Python and in shell."""
    for live in case.live.python:
        for call in live.code.nodes(ast.Call):
            name = live.code.full_name(call)
            what = _sink(live, call, name)
            if what and _is_fed(case, live, call):
                yield case.finding(
                    "evaluated-output",
                    f"{name}() {what} what the policy wrote",
                    live.code.where(call),
                    0.8,
                    "read it as data (json, ast.literal_eval, yaml.safe_load)",
                )
    for run in case.runs:
        if run.program == "eval" or (run.program in ("bash", "sh") and "-c" in run.argv):
            read = [
                base for base in run.basis() if base is not run and base.program in ("cat", "head", "jq", "grep", "sed")
            ]
            paths = [p for base in read for word in base.argv[1:] if case.of_agent(p := base.path(word))]
            if paths:
                yield case.finding(
                    "evaluated-output",
                    f"the shell executes the content of {paths[0]}",
                    run.where,
                    0.8,
                    "read it as data",
                )
        elif run.argv and run.argv[0] == "$()" and any(base.program == "cat" for base in run.sources):
            yield case.finding(
                "evaluated-output", "the output of cat is run as a command", run.where, 0.6, "read it as data"
            )


def _sink(live: LivePython, call: ast.Call, name: str) -> str:
    words = {word.arg: word.value for word in call.keywords if word.arg}
    if name in _EVALUATES:
        return "executes"
    if name in _UNPICKLES:
        safe = words.get("weights_only")
        return "" if safe is not None and live.code.value(safe) is True else "builds objects, running code, from"
    if name in _YAML:
        loader = words.get("Loader", call.args[1] if len(call.args) > 1 else None)
        return "" if loader is not None and "Safe" in call_name(loader) else "may build objects from"
    if name in ("numpy.load", "np.load") and live.code.value(words.get("allow_pickle", ast.Constant(False))) is True:
        return "unpickles"
    shell = words.get("shell")
    if name in _SHELLS or (name.startswith("subprocess.") and shell is not None and live.code.value(shell) is True):
        return "runs as a shell command"
    return ""


def _is_fed(case: Case, live: LivePython, call: ast.Call) -> bool:
    fed = [*call.args[:1], *(word.value for word in call.keywords if word.arg in ("args", "source"))]
    return any(kind == "file" for node in fed for kind, _ in agent_origins(live, node, case.of_agent)) or any(
        effect is not None and effect[0] == "file" and case.of_agent(effect[1])
        for effect in [live.flow.effect(call, live.code.full_name(call))]
    )
