"""A folder that OpenEnv's tools take for an environment package: ``openenv.yaml``, an application, a container recipe.

The environment goes with it, in a small workspace of its own. Its sealed side (checks, references) is therefore in the
folder: it is for whoever runs the server, never for the policy, which sees the network alone.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec

from flightschool import __version__
from flightschool.environments import BUILT_IN, EnvironmentRecord, load_record
from flightschool.errors import GateError, InputError
from flightschool.governance import ReducedEnvironment
from flightschool.protocols import Environment
from flightschool.serving.openenv.words import FINAL_ANSWER
from flightschool.store import Workspace

__all__ = ["write_folder"]

_KIND = "environments"
_PORT = 8000

_YAML = """\
spec_version: 1
name: {name}
version: {version}
type: space
runtime: fastapi
app: server.app:app
port: {port}
description: {description}
validation:
  reward:
    range: [0.0, 1.0]
    oracle_tolerance: 0.0
    floor_margin: 0.1
  resources:
    cpu: 1.0
    memory_mb: 512
    disk_mb: 256
    episode_timeout_s: 600.0
  capabilities:
    verifier:
      kind: reward_channel
    task_api: true
    declared_tools: [{tools}]
    declared_task_count: {{{counts}}}
  types:
    tags: [tool-use]
"""

_APP = '''\
"""{name} over the OpenEnv protocol: `app` for ASGI runtimes, `main` for the faster server of flightschool."""

import os
from pathlib import Path

from flightschool.environments import load_environment
from flightschool.serving import Offer, TaskDesk
from flightschool.serving.openenv import AsgiApp
from flightschool.serving.openenv.words import FINAL_ANSWER
from flightschool.store import Workspace

HERE = Path(__file__).resolve().parents[1]
REFERENCE = {reference!r}
SPLITS = {splits!r}


def served():
    os.chdir(HERE)  # code beside the environment is named from here
    environment = load_environment(REFERENCE, Workspace(HERE))
    return Offer(environment), TaskDesk(environment, SPLITS)


app = AsgiApp(*served())


def main():
    from flightschool.serving.openenv import ServerSettings, listen, serve_forever

    listener = listen(os.environ.get("HOST", "127.0.0.1"), int(os.environ.get("PORT", "{port}")))
    settings = ServerSettings(token=os.environ.get("FLIGHTSCHOOL_TOKEN", ""))
    serve_forever(listener, *served(), settings, num_processes=os.cpu_count() or 1)


if __name__ == "__main__":
    main()
'''

_PROJECT = """\
[build-system]
requires = ["setuptools>=68"]
build-backend = "setuptools.build_meta"

[project]
name = "openenv-{slug}"
version = "{version}"
requires-python = ">=3.11"
dependencies = [
  "flightschool>={version}",
  "openenv>=0.10", # the peers' client and validator; the server itself does without
  "uvicorn[standard]>=0.30", # for runtimes that start server.app:app themselves
]

[project.scripts]
server = "server.app:main"

[tool.setuptools]
packages = ["server"]
"""

_DOCKERFILE = """\
FROM python:3.11-slim
WORKDIR /environment
COPY . .
RUN pip install --no-cache-dir "flightschool>={version}" "uvicorn[standard]>=0.30"
ENV HOST=0.0.0.0 PORT={port}
EXPOSE {port}
CMD ["python", "-m", "server.app"]
"""


def write_folder(
    folder: Path,
    reference: str,
    environment: Environment,
    space: Workspace | None,
    splits: Mapping[str, tuple[str, ...]],
) -> list[str]:
    """Write the package; relative paths of what was written.

    Args:
        folder: new or empty.
        reference: how the environment is named here.
        environment: what it names.
        space: the workspace that keeps it; None for built-in ones.
        splits: the tasks that are served.

    Raises:
        InputError: the folder holds something already, or the environment is given by a path.
        GateError: tasks of the environment are sealed here: a copy of it would hold them.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError("the folder is not empty", where=str(folder), expected="a new folder", mend="name another one")
    if isinstance(environment, ReducedEnvironment):
        raise GateError(
            f"tasks of {environment.name!r} are sealed in this workspace",
            where=environment.name,
            expected="an environment of which nothing is sealed: its copy would hold the sealed tasks",
            mend="serve it from here: flightschool serve env",
        )
    slug = re.sub(r"[^a-z0-9]+", "_", environment.name.lower()).strip("_") or "environment"
    counts = ", ".join(f"{name}: {len(ids)}" for name, ids in splits.items())
    tools = ", ".join(sorted({FINAL_ANSWER, *(spec.name for spec in environment.tools())}))
    facts = {"name": slug, "slug": slug, "version": __version__, "port": _PORT, "counts": counts, "tools": tools}
    folder.mkdir(parents=True, exist_ok=True)
    kept = _keep(folder, reference, space)
    texts = {
        "openenv.yaml": _YAML.format(**facts, description=f"{environment.name}, served by flightschool"),
        "pyproject.toml": _PROJECT.format(**facts),
        "Dockerfile": _DOCKERFILE.format(**facts),
        "server/__init__.py": f'"""{environment.name} as an OpenEnv server."""\n',
        "server/app.py": _APP.format(**facts, reference=kept, splits={n: list(i) for n, i in splits.items()}),
    }
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def _keep(folder: Path, reference: str, space: Workspace | None) -> str:
    """Put the environment into a workspace in the folder; how it is named there."""
    with Workspace.create(folder) as inside:
        (inside.data / ".gitignore").unlink()  # here the data are the point
        if reference.partition("?")[0] in BUILT_IN:
            return reference
        if space is None or "/" in reference:
            raise InputError(
                "an environment given by a path cannot be put into a folder yet",
                where=reference,
                expected="a built-in environment, or one that this workspace keeps",
                mend="build it with flightschool env build --code",
            )
        record = load_record(space.store, reference)
        for blob in (record.content, record.checks, *record.state.values()):
            if blob:
                inside.store.put_blob(space.store.get_blob(blob))
        inside.store.put(_KIND, record.name, _with_code(folder, record))
    return reference


def _with_code(folder: Path, record: EnvironmentRecord) -> EnvironmentRecord:
    """The record with its code beside it; modules by dotted name must be installed where the folder goes."""
    if not record.code.endswith(".py"):
        return record
    copied = folder / "code" / Path(record.code).name
    copied.parent.mkdir()
    shutil.copyfile(record.code, copied)
    return msgspec.structs.replace(record, code=str(copied.relative_to(folder)))  # the application goes there first
