"""The trust map of a stage: what its grader relies on, and which of it the policy may write.

Read from the task's folder alone. Everything is what the text of the folder shows: a path that is computed at run time
is not here. Paths are absolute paths of the sandbox unless a field says otherwise; ``where`` is ``file:line`` of the
task's folder.
"""

from __future__ import annotations

from flightschool.records import Record

__all__ = [
    "GraderImport",
    "GraderProgram",
    "GraderRead",
    "LeakCandidate",
    "PythonEntry",
    "TrustMap",
    "VerdictWrite",
]


class GraderRead(Record, frozen=True, kw_only=True):
    """A path that the tests read, list or ask for."""

    path: str
    """Absolute. A path of the tests' own folder is here too: ``/tests/expected.json``."""
    where: str
    how: str = "text"
    """``text``, ``bytes``, ``json``, ``csv``, ``yaml``, ``pickle``, ``database``, ``exists`` (only asked for), ``list``
    (a folder's names) or ``program`` (opened by a program such as ``cat``, ``diff`` or ``grep``)."""
    literals: tuple[str, ...] = ()
    """Literals that the same test compares with what it read, as text; empty: none could be tied to it."""
    of_agent: bool = True
    """Whether the policy may write it: false for the tests' own files."""


class GraderImport(Record, frozen=True, kw_only=True):
    """A module that the tests import and the policy may write: its code runs inside the grader's process."""

    module: str
    path: str
    """File that it most likely comes from, absolute; empty: not known."""
    where: str
    names: tuple[str, ...] = ()
    """Names taken from it and called: what an object that is always equal, or an early exit, has to stand in for."""


class GraderProgram(Record, frozen=True, kw_only=True):
    """A file that the policy may write and the grader executes, in a process of its own."""

    path: str
    where: str
    interpreter: str = ""
    """``python3``, ``bash``, …; empty: executed directly."""
    reads_stdout: bool = False
    """Whether what it prints is looked at."""
    decides: bool = False
    """Whether its exit status or output is itself the verdict: the grader's own script in the agent's space."""


class PythonEntry(Record, frozen=True, kw_only=True):
    """How the grader starts Python on its tests."""

    runner: str
    """``pytest``, ``unittest`` or ``python``."""
    argv: tuple[str, ...]
    """Words of the command as far as they are known (unknown variables stay as ``$NAME``)."""
    cwd: str
    """Working directory at that point; the one of the image unless a ``cd`` was seen."""
    rootdir: str
    """Folder where pytest begins to look for its configuration: ``--rootdir``, else the common folder of its arguments,
    else the working directory."""
    targets: tuple[str, ...] = ()
    """Test files and folders named, absolute."""
    confcutdir: str = ""
    isolated: bool = False
    """``python -I``/``-P``: neither the working directory nor variables reach ``sys.path``."""
    guards: tuple[str, ...] = ()
    """What of ``-p no:…``, ``-c``, ``--noconftest``, ``--rootdir``, ``-I``, ``PYTHONPATH=`` was given, as written."""
    where: str = ""


class VerdictWrite(Record, frozen=True, kw_only=True):
    """A place where the grader writes its verdict."""

    path: str
    where: str
    value: str = ""
    """Text as written (``1``); empty: computed."""
    conditional: bool = False
    """Whether it stands under a condition (``if``, ``&&``, a ``set -e`` with a check before it)."""


class LeakCandidate(Record, frozen=True, kw_only=True):
    """A place in the agent's view that holds what is expected, or the whole of a test or reference file."""

    path: str
    """Absolute path in the image; empty: the instruction itself."""
    text: str
    """What is found there that the grader expects (decoded), at most 2,000 characters."""
    output: str = ""
    """Output path whose expected content it is, as far as it is known."""
    encoding: str = ""
    """Empty, or how it is wrapped, outermost first: ``base64``, ``hex``, ``gzip``, ``rot13``, ``git`` and others."""
    whole_file: bool = False
    """Whether the file at ``path`` as a whole is a copy of a test or reference file."""


class TrustMap(Record, frozen=True, kw_only=True):
    """What the grader of one stage relies on. Tuples are without repetition, in order of the grader's text."""

    stage: str
    """Name of the step; empty for a task of one step."""
    grader_commands: tuple[str, ...] = ()
    """Programs called by a bare name (``curl``, ``python3``), looked up on PATH; builtins of the shell left out."""
    grader_files: tuple[str, ...] = ()
    """Files of the folder that the grader executes, imports or sources, relative to the folder: the live path."""
    grader_reads: tuple[GraderRead, ...] = ()
    grader_imports: tuple[GraderImport, ...] = ()
    grader_programs: tuple[GraderProgram, ...] = ()
    verdict_paths: tuple[str, ...] = ()
    """Files that the verdict is read from or that the grader takes its number from (``/logs/verifier/reward.txt``, and
    any file in the agent's space that is copied there)."""
    verdict_writes: tuple[VerdictWrite, ...] = ()
    output_paths: tuple[str, ...] = ()
    """What the policy is to make: paths that tests read and the image does not hold, and paths that the instruction
    names and the image does not hold."""
    input_paths: tuple[str, ...] = ()
    """Files that the image ships and that tests read again: changing them may change what is expected."""
    python_entries: tuple[PythonEntry, ...] = ()
    """All starts of Python on tests, in order; ``python_entry`` is the first."""
    agent_user: str = ""
    """The user whom the policy acts as; ``root`` when nothing names one."""
    agent_writable: tuple[str, ...] = ()
    """Folders and files that the agent's user may write, each with all below it; ``("/",)`` for root. ``/tmp`` and the
    user's home are always among them."""
    workdir: str = "/"
    agent_files: tuple[str, ...] = ()
    """All files that the build copies or writes into the image as far as its words tell, absolute."""
    ports: tuple[int, ...] = ()
    """Fixed ports that the tests connect to."""

    @property
    def python_entry(self) -> PythonEntry | None:
        """The first start of Python on tests; None: the grader starts no Python."""
        return self.python_entries[0] if self.python_entries else None

    def may_write(self, path: str) -> bool:
        """Whether the agent's user may write an absolute path, as far as the build's words tell."""
        return any(path == place or path.startswith(place.rstrip("/") + "/") for place in self.agent_writable)
