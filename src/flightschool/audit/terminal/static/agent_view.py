"""What the agent finds in its sandbox: files that the build copies or writes, who may read and who may write them.

The build is read, not run: COPY and ADD are followed exactly, RUN as far as its words tell (``echo``, ``printf``, here
documents, ``cp``, ``mv``, ``rm``, ``chmod``, ``chown``). A file whose content is not known is there without content.
"""

from __future__ import annotations

import ast
import base64
import binascii
import io
import posixpath
import shlex
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass

from flightschool.audit.terminal.static.python_code import parse_python
from flightschool.audit.terminal.static.python_flow import Flow
from flightschool.audit.terminal.static.shell_runs import Run
from flightschool.audit.terminal.static.shell_walk import run_shell
from flightschool.environments.terminal import BuildPlan, CopyStep, RunStep, UserStep, WorkdirStep, copy_targets
from flightschool.environments.terminal.contents import Contents
from flightschool.errors import InputError

__all__ = ["AgentView", "ViewFile", "build_view", "content_of", "is_below"]

MOST_BYTES = 1 << 20
"""Of one file that are looked at."""
MOST_FILES = 20_000
MOST_ARCHIVE = 8 << 20
_FILTERS = frozenset(["tee", "cat", "base64", "gzip", "xz", "tr", "rev", "xxd", "sed", "awk", "sort", "openssl"])
_FREE = ("/tmp", "/var/tmp", "/dev/shm")


def is_below(path: str, place: str) -> bool:
    """Whether a path is a place or lies in it."""
    return place in (path, "/") or path.startswith(place.rstrip("/") + "/")


@dataclass(slots=True)
class ViewFile:
    """One file of the image."""

    path: str
    where: str
    """File of the task's folder that it comes from, or Dockerfile and line that write it."""
    source: str = ""
    """File of the task's folder; empty: written by a command."""
    data: bytes | None = None
    """Content where it is known and was read already."""
    owner: str = "root"
    closed: bool = False
    """Only its owner may read it."""


class AgentView:
    """The files of an image, and its users, as far as the build's words tell."""

    def __init__(self, contents: Contents, context: str, user: str) -> None:
        self.contents = contents
        self.context = context
        self.user = user or "root"
        self.files: dict[str, ViewFile] = {}
        self.folders: set[str] = set()
        self.runs: list[Run] = []
        """Commands of all RUN steps, in order."""
        self.writable: list[str] = []
        self.sticky: set[str] = set(_FREE)
        """Folders in which only its owner may replace a file."""
        self.closed: list[tuple[str, str]] = []
        """Folders that only their owner may enter, with the owner."""

    @property
    def is_root(self) -> bool:
        """Whether the agent may do everything."""
        return self.user.partition(":")[0] in ("root", "0")

    def content(self, file: ViewFile) -> bytes:
        """The beginning of a file's content; empty where it is not known."""
        if file.data is None:
            try:
                file.data = self.contents.read_head(file.source, MOST_BYTES) if file.source else b""
            except (InputError, OSError):
                file.data = b""
        return file.data

    def readable(self) -> Iterator[ViewFile]:
        """Files that the agent may read."""
        for file in self.files.values():
            if self.is_root or (not (file.closed and file.owner != self.user) and not self._shut(file.path)):
                yield file

    def _shut(self, path: str) -> bool:
        return any(is_below(path, place) and owner != self.user for place, owner in self.closed)

    def may_write(self, path: str) -> bool:
        """Whether the agent may write there."""
        return self.is_root or any(is_below(path, one) and not self._is_kept(path, one) for one in self.writable)

    def _is_kept(self, path: str, folder: str) -> bool:
        """Whether a file of someone else's stays as it is though its folder is open to all."""
        file = self.files.get(path)
        return folder in self.sticky and file is not None and file.owner != self.user

    def find(self, path: str) -> ViewFile | None:
        """The file at a path."""
        return self.files.get(path)

    def below(self, folder: str) -> list[ViewFile]:
        """Files in a folder, at any depth."""
        return [file for path, file in self.files.items() if is_below(path, folder)]

    def read_script(self, path: str) -> tuple[str, str] | None:
        """Name and text of a script in the image."""
        file = self.files.get(path)
        data = self.content(file) if file is not None else b""
        if file is None or not data or b"\0" in data[:512]:
            return None
        return file.source or file.where.partition(":")[0], data.decode(errors="replace")

    # ------------------------------------------------------------------------------------------ building

    def add(self, file: ViewFile) -> None:
        """A file is written."""
        if len(self.files) < MOST_FILES:
            self.files[file.path] = file
            self.folders.add(posixpath.dirname(file.path))

    def remove(self, place: str) -> None:
        """A file or folder is removed; one ``*`` may stand for part of a name."""
        if place in self.files:
            del self.files[place]
        elif "*" in place:
            before, _, after = place.partition("*")
            if "*" not in after:
                depth = place.count("/")
                for path in [p for p in self.files if p.startswith(before)]:
                    shown = "/".join(path.split("/")[: depth + 1])
                    if shown.startswith(before) and shown.endswith(after) and not shown[len(before) :].startswith("."):
                        del self.files[path]
        else:
            for path in [p for p in self.files if is_below(p, place)]:
                del self.files[path]

    def forget(self, folder: str) -> None:
        """What commands wrote below a folder may be gone, or other than it was: version control put it back."""
        for file in self.below(folder):
            if not file.source:
                file.data = b""

    def transfer(self, source: str, target: str, *, keep: bool) -> None:
        """``cp`` or ``mv``."""
        into = target in self.folders or target.endswith("/")
        moved = self.below(source.removesuffix("/.").removesuffix("/*"))
        for file in moved:
            if file.path == source:
                path = posixpath.join(target, posixpath.basename(source)) if into else target
            else:
                base = posixpath.dirname(source) if into and not source.endswith(("/.", "/*")) else source
                path = posixpath.join(target, posixpath.relpath(file.path, base.removesuffix("/.").removesuffix("/*")))
            path = posixpath.normpath(path)
            if not keep:
                self.files.pop(file.path, None)
            self.add(ViewFile(path, file.where, file.source, file.data, file.owner, file.closed))


def build_view(contents: Contents, plan: BuildPlan, context: str, agent_user: str, dockerfile: str) -> AgentView:
    """Follow a build plan."""
    view = AgentView(contents, context, agent_user or plan.user)
    acting = ""
    for step in plan.steps:
        if isinstance(step, CopyStep):
            _copy(view, step, dockerfile)
        elif isinstance(step, UserStep):
            acting = step.user
        elif isinstance(step, WorkdirStep):
            view.folders.add(step.path)
        elif isinstance(step, RunStep) and len(view.runs) < MOST_FILES:
            _run(view, step, dockerfile, acting or "root")
    if not view.is_root:
        name = view.user.partition(":")[0]
        view.writable += [*_FREE, f"/home/{name}"]
    else:
        view.writable = ["/"]
    return view


def _copy(view: AgentView, step: CopyStep, dockerfile: str) -> None:
    owner = step.owner.partition(":")[0] or "root"
    closed = bool(step.mode) and step.mode.isdigit() and step.mode[-1] == "0"
    for source, item, target in copy_targets(step, view.folders.__contains__):
        if item is None and source.content is not None:
            data = source.content.encode()
            view.add(ViewFile(target, f"{dockerfile}:{step.line}", "", data, owner, closed))
        elif item is not None and item.kind == "folder":
            view.folders.add(target)
        elif source.unpack:
            _unpack(view, posixpath.normpath(posixpath.join(view.context, source.path)), target, step.line, dockerfile)
        elif item is not None and item.kind == "file":
            path = posixpath.normpath(posixpath.join(view.context, item.path))
            view.add(ViewFile(target, path, path, None, owner, closed))
        else:
            view.folders.add(target)
        if owner != "root" and owner == view.user:
            view.writable.append(target)


def _unpack(view: AgentView, path: str, folder: str, line: int, dockerfile: str) -> None:
    where = f"{dockerfile}:{line}"
    try:
        data = view.contents.read_head(path, MOST_ARCHIVE)
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for at, member in enumerate(archive):
                if at > 2000:
                    break
                if member.isfile():
                    inner = archive.extractfile(member)
                    content = inner.read(MOST_BYTES // 8) if inner is not None else b""
                    view.add(ViewFile(posixpath.normpath(f"{folder}/{member.name}"), where, "", content))
    except (tarfile.TarError, OSError, EOFError, InputError, ValueError, binascii.Error):
        return


def _run(view: AgentView, step: RunStep, dockerfile: str, acting: str) -> None:
    if step.script:
        script = step.script
    elif len(step.argv) >= 3 and step.argv[-2].startswith("-") and step.argv[-2].endswith("c"):
        script = step.argv[-1]
    else:
        script = shlex.join(step.argv)
    values = {"HOME": "/root", **step.env}
    place = {"file": dockerfile, "path": "", "cwd": step.workdir}
    for run in run_shell(script, **place, values=values, read=view.read_script, first_line=step.line):
        view.runs.append(run)
        _effect(view, run, acting)


def _effect(view: AgentView, run: Run, acting: str) -> None:
    argv = run.argv
    program = posixpath.basename(argv[0]) if argv else ""
    arguments = [word for word in argv[1:] if not word.startswith("-")]
    paths = [run.path(word) + ("/" if word.endswith("/") else "") for word in arguments]
    for path, append in run.writes:
        _write(view, run, path, append, acting)
    if program == "tee":
        for path in paths:
            _write(view, run, path, "-a" in argv, acting)
    elif program in ("cp", "mv", "install") and len(paths) >= 2 and paths[-1]:
        for source in filter(None, paths[:-1]):
            view.transfer(source, paths[-1], keep=program != "mv")
    elif program in ("rm", "shred", "unlink"):
        for path in filter(None, (path.rstrip("/") for path in paths)):
            view.remove(path)
    elif program == "mkdir":
        view.folders.update(path.rstrip("/") for path in paths if path)
        if acting == view.user:
            view.writable += paths
    elif program in ("chown", "chmod"):
        _permissions(view, program, arguments, paths, recursive=any(w in argv for w in ("-R", "--recursive")))
    elif program == "git" and _goes_back(argv):
        view.forget(run.path(argv[argv.index("-C") + 1]) if "-C" in argv[:-1] else run.cwd)
    elif program.startswith("python"):
        _python_writes(view, run, acting)


def _goes_back(argv: tuple[str, ...]) -> bool:
    """Whether a command of git puts other files into the working tree."""
    words = set(argv)
    if "reset" in words:
        return "--hard" in words
    begins = words & {"-b", "-B", "--orphan", "--create"} and words & {"checkout", "switch"}
    return not begins and bool(words & {"checkout", "switch", "restore", "stash", "clean"})


def _write(view: AgentView, run: Run, path: str, append: bool, acting: str) -> None:
    if not path or is_below(path, "/dev") or is_below(path, "/proc"):
        return
    data = content_of(run, view)
    old = view.find(path)
    if append and old is not None:
        data = view.content(old) + data
    view.add(ViewFile(path, run.where, "", data[:MOST_BYTES], acting))
    if acting == view.user:
        view.writable.append(path)


def _permissions(
    view: AgentView, program: str, arguments: list[str], paths: list[str], *, recursive: bool = False
) -> None:
    if len(paths) < 2:
        return
    for path in (path.rstrip("/") for path in paths[1:] if path):
        if program == "chown":
            owner = arguments[0].partition(":")[0]
            for file in view.below(path):
                file.owner = owner
            if owner == view.user:
                view.writable.append(path)
            view.closed = [(p, owner if is_below(p, path) else o) for p, o in view.closed]
            continue
        mode = arguments[0]
        if mode.isdigit():
            closed, open_to_all = mode[-1] == "0", mode[-1] in "2367"
        else:
            closed = mode.startswith(("o-r", "go-r", "o=", "go=", "og-r", "o-x", "go-x")) and not mode.endswith("=r")
            open_to_all = mode.partition("+")[0] in ("a", "o", "ugo", "") and "w" in mode.partition("+")[2]
        if open_to_all:
            view.writable.append(path)
        _stick(view, path, mode, recursive=recursive)
        file_here = view.find(path)
        if file_here is not None:
            file_here.closed = closed
        elif closed:
            owner = next((file.owner for file in view.below(path)), "root")
            view.closed.append((path, owner))
        else:
            view.closed = [(p, o) for p, o in view.closed if p != path]


def _stick(view: AgentView, path: str, mode: str, *, recursive: bool) -> None:
    """``chmod +t``, ``chmod 1777``; where it goes down the tree, the files themselves are open as well."""
    sets = (len(mode) == 4 and mode[0] in "1357") if mode.isdigit() else "t" in mode.partition("+")[2]
    if sets and not recursive:
        view.sticky.add(path)
    elif mode.isdigit():
        view.sticky.discard(path)


def _python_writes(view: AgentView, run: Run, acting: str) -> None:
    """Files that a short Python program in a RUN step writes from constants."""
    argv = run.argv
    text = run.document if run.document is not None else ""
    if "-c" in argv[:-1]:
        text = argv[argv.index("-c") + 1]
    code = parse_python(text, run.file, "", run.line) if text and len(text) < 100_000 else None
    if code is None:
        return
    flow = Flow(code, {}, run.cwd)
    for name, calls in code.calls.items():
        if not name.endswith(("write", "write_text", "write_bytes", "dump")):
            continue
        for call in calls:
            value = code.value(call.args[0]) if call.args else None
            target = flow.writes_to(call)
            if not target and isinstance(call.func, ast.Attribute):
                opened = call.func.value
                inner = [opened, *code.bound(getattr(opened, "id", ""), code.scopes.get(call))]
                target = next((p for node in inner if isinstance(node, ast.Call) and (p := flow.writes_to(node))), "")
            if target:
                data = value if isinstance(value, bytes) else str(value).encode() if value is not None else b""
                view.add(ViewFile(target, code.where(call), "", data[:MOST_BYTES], acting))


def content_of(run: Run, view: AgentView | None = None, depth: int = 0) -> bytes:
    """What a command prints, as far as its words tell."""
    argv = run.argv
    program = posixpath.basename(argv[0]) if argv else ""
    if program in ("echo", "printf"):
        return _printed(program, argv[1:]).encode(errors="replace")
    if program == "cat" and view is not None and run.document is None:
        files = [view.find(run.path(word)) for word in argv[1:]]
        return b"".join(view.content(file) for file in files if file is not None)[:MOST_BYTES]
    fed = run.document.encode(errors="replace") if run.document is not None else b""
    if not fed and run.sources and depth < 6:
        fed = content_of(run.sources[-1], view, depth + 1)
    if program == "base64" and {"-d", "--decode", "-D"} & set(argv):
        try:
            fed = base64.b64decode(b"".join(fed.split()), validate=False)
        except (binascii.Error, ValueError):
            return fed
    return fed if program in _FILTERS else b""


def _printed(program: str, words: tuple[str, ...]) -> str:
    """What ``echo`` or ``printf`` print of their words."""
    if program == "echo":
        flags = words[0] if words and words[0] in ("-n", "-e", "-en", "-ne", "-E") else ""
        text = " ".join(words[1:] if flags else words) + ("" if "n" in flags else "\n")
        return _unescaped(text) if "e" in flags else text
    text = _unescaped(words[0]) if words else ""
    for word in words[1:]:
        text = text.replace("%s", word, 1).replace("%b", word, 1)
    return text


def _unescaped(text: str) -> str:
    for escape, char in (("\\n", "\n"), ("\\t", "\t"), ("\\\\", "\\"), ('\\"', '"')):
        text = text.replace(escape, char)
    return text
