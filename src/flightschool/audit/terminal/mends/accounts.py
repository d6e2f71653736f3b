"""An agent that is not root: what the image owns stays as it is, the working directory is the agent's."""

from __future__ import annotations

import shlex
import tomllib
from typing import Final

from flightschool.audit.terminal.mends.draft import Draft
from flightschool.audit.terminal.mends.moves import append_run
from flightschool.audit.terminal.mends.records import AppliedMend
from flightschool.environments.terminal import TaskFormat

__all__ = ["give_account"]

NAME: Final = "agent"
_ROOT_WORK: Final = (
    "apt",
    "apt-get",
    "useradd",
    "systemctl",
    "service",
    "mount",
    "chown",
    "pip install",
    "/etc/",
    "/usr/",
    "sudo",
)
_WANTED: Final = frozenset(["decorative-guard", "grader-in-reach", "test-edit"])


def give_account(draft: Draft) -> list[AppliedMend]:
    """Make a user for the agent, where the reference works inside the working directory only."""
    task, plan = draft.task, draft.folder.plan
    told = tuple(sorted({finding.flaw for finding in draft.findings} & _WANTED))
    if not told or plan is None or task.format is not TaskFormat.HARBOR or task.steps or not draft.folder.view.is_root:
        return []
    workdir = task.workdir or plan.workdir
    solution = draft.cases[0].solution_text
    outside = [path for path in draft.cases[0].trust.output_paths if not path.startswith((workdir + "/", "/tmp/"))]
    if workdir == "/" or not solution or any(word in solution for word in _ROOT_WORK) or outside or plan.user:
        return []
    settings = _with_users(draft.text("task.toml"))
    made = f"useradd --create-home {NAME} && chown -R {NAME}:{NAME} {shlex.quote(workdir)}"
    if not settings or not append_run(draft, made):
        return []
    draft.write("task.toml", settings)
    what = f"the agent acts as {NAME}, to whom {workdir} belongs; the tests run as root"
    return [AppliedMend(rule="give-account", flaws=told, file="task.toml", what=what)]


def _with_users(text: str) -> str:
    """``task.toml`` with both users set; empty: it names one already, or would not be read so."""
    for table, user in (("agent", NAME), ("verifier", "root")):
        header = f"[{table}]"
        lines = text.splitlines()
        if header in lines:
            lines.insert(lines.index(header) + 1, f'user = "{user}"')
        else:
            lines += [header, f'user = "{user}"']
        text = "\n".join(lines) + "\n"
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return ""
    return text if found["agent"].get("user") == NAME and found["verifier"].get("user") == "root" else ""
