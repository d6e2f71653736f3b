"""Where the value of an expression comes from: files read, programs run, modules, the clock, the network."""

from __future__ import annotations

import ast
import posixpath
import shlex
from typing import Final

from flightschool.audit.terminal.static.python_code import PythonCode, call_name

__all__ = ["Flow", "Origin"]

Origin = tuple[str, str]
"""Kind (``file``, ``path``, ``list``, ``program``, ``module``, ``clock``, ``network``, ``random``) and its name."""

MOST_DEPTH: Final = 24
NOTHING: Final[frozenset[Origin]] = frozenset()
_READERS: Final = {
    "open": "text", "io.open": "text", "codecs.open": "text", "read_text": "text", "read_bytes": "bytes",
    "read_csv": "csv", "read_json": "json", "read_excel": "bytes", "read_parquet": "bytes", "read_table": "csv",
    "np.load": "bytes", "numpy.load": "bytes", "loadtxt": "text", "genfromtxt": "text", "sqlite3.connect": "database",
    "PIL.Image.open": "bytes", "Image.open": "bytes", "zipfile.ZipFile": "bytes", "tarfile.open": "bytes",
    "gzip.open": "text", "cv2.imread": "bytes", "filecmp.cmp": "bytes", "torch.load": "pickle", "read_pickle": "pickle",
    "joblib.load": "pickle", "linecache.getline": "text", "fileinput.input": "text", "read_lines": "text",
    "duckdb.connect": "database", "fromfile": "bytes", "parse": "text", "h5py.File": "bytes", "wave.open": "bytes",
}  # fmt: skip
_ASKS: Final = frozenset(
    ["exists", "is_file", "is_dir", "isfile", "isdir", "getsize", "stat", "lstat", "islink", "is_symlink", "access"]
)
_LISTS: Final = frozenset(["listdir", "iterdir", "glob", "rglob", "scandir", "walk"])
_CLOCK: Final = frozenset(
    ["datetime.datetime.now", "datetime.datetime.today", "datetime.datetime.utcnow", "datetime.date.today", "time.time",
     "datetime.now", "date.today", "datetime.today", "datetime.utcnow", "time.localtime", "time.gmtime",
     "time.strftime", "time.monotonic", "time.perf_counter", "time.ctime", "pandas.Timestamp.now",
     "pandas.Timestamp.today"]
)  # fmt: skip
_RUNS: Final = frozenset(
    ["subprocess.run", "subprocess.check_output", "subprocess.Popen", "subprocess.call", "subprocess.check_call",
     "subprocess.getoutput", "subprocess.getstatusoutput", "os.system", "os.popen", "pexpect.spawn", "pexpect.run"]
)  # fmt: skip
_NETWORK: Final = ("requests.", "urllib.request.", "http.client.", "httpx.", "aiohttp.", "socket.create_connection")
_RANDOM: Final = ("random.", "numpy.random.", "np.random.", "secrets.", "uuid.uuid4")


class Flow:
    """Origins of expressions in one file.

    Args:
        code: the file.
        modules: import name → path of a module that the policy may write (see ``GraderImport``).
        cwd: working directory of the grader, for relative paths.
    """

    def __init__(self, code: PythonCode, modules: dict[str, str], cwd: str) -> None:
        self.code = code
        self.modules = modules
        self.cwd = cwd
        self._known: dict[ast.AST, frozenset[Origin]] = {}
        self._working: set[ast.AST] = set()

    def path(self, node: ast.AST) -> str:
        """An expression as an absolute path; empty: not known."""
        text = self.code.text_value(node)
        if not text or "\n" in text or len(text) > 400:
            return ""
        return posixpath.normpath(posixpath.join(self.cwd or "/", text))

    def origins(self, node: ast.AST) -> frozenset[Origin]:
        """Where the value may come from."""
        if isinstance(node, ast.Constant):
            return NOTHING
        known = self._known.get(node)
        if known is not None:
            return known
        if node in self._working or len(self._working) > MOST_DEPTH:
            return NOTHING
        self._working.add(node)
        try:
            found = self._compute(node)
        finally:
            self._working.discard(node)
        if not self._working:
            self._known[node] = found
        return found

    def _compute(self, node: ast.AST) -> frozenset[Origin]:
        code = self.code
        if isinstance(node, ast.Name):
            found = self._named(node)
        elif isinstance(node, ast.Call):
            found = self._called(node)
        elif isinstance(node, ast.Lambda):
            found = self.origins(node.body)
        elif isinstance(node, ast.Attribute):
            found = self.origins(node.value)
            for expression in code.assigned.get((None, f".{node.attr}"), [])[:6]:
                found |= self.origins(expression)
        else:
            found = NOTHING
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.expr | ast.comprehension | ast.keyword):
                    found |= self.origins(child)
        return found

    def _named(self, node: ast.Name) -> frozenset[Origin]:
        code = self.code
        scope = code.scopes.get(node)
        found = NOTHING
        for expression in code.bound(node.id, scope):
            found |= self.origins(expression)
        real = code.modules.get(node.id)
        if real is not None:
            first = real.partition(".")[0]
            if first in self.modules or real in self.modules:
                found |= {("module", first if first in self.modules else real)}
        fixture = code.functions.get(node.id)
        if fixture is not None and scope is not None and any(a.arg == node.id for a in scope.args.args):
            for expression in code.returns(fixture):
                found |= self.origins(expression)
        return found

    def _called(self, node: ast.Call) -> frozenset[Origin]:
        code = self.code
        found = NOTHING
        for argument in node.args:
            found |= self.origins(argument)
        for keyword in node.keywords:
            found |= self.origins(keyword.value)
        name = code.full_name(node)
        if isinstance(node.func, ast.Attribute):
            found |= self.origins(node.func.value)
        elif isinstance(node.func, ast.Name):
            found |= self.origins(node.func)
        own = self.effect(node, name)
        if own is not None:
            found |= {own}
        local = code.functions.get(call_name(node.func).removeprefix("self."))
        if local is not None:
            for expression in code.returns(local):
                found |= self.origins(expression)
        return found

    def effect(self, node: ast.Call, name: str) -> Origin | None:
        """What a call itself reads, runs or asks."""
        last = name.rpartition(".")[2]
        found: Origin = ("", "")
        if name in _RUNS:
            found = ("program", self.program(node) or "$")
        elif name in _CLOCK:
            found = ("clock", name)
        elif name.startswith(_NETWORK):
            found = ("network", (self.code.text_value(node.args[0]) if node.args else "") or "$")
        elif name.startswith(_RANDOM) and not last.lower().endswith("seed"):
            found = ("random", name)
        elif (_READERS.get(name) or _READERS.get(last)) and not self._writes(node, last):
            found = ("file", self.subject(node, last))
        elif last in _ASKS or last in _LISTS:
            found = ("list" if last in _LISTS else "path", self.subject(node, last))
        elif last in ("spec_from_file_location", "run_path", "SourceFileLoader") and node.args:
            found = ("module", self.path(node.args[0 if last == "run_path" else -1]))
        return found if found[1] else None

    def how(self, node: ast.Call) -> str:
        """How a call reads (see ``GraderRead.how``)."""
        name = self.code.full_name(node)
        last = name.rpartition(".")[2]
        if last in _ASKS or last in _LISTS:
            return "exists" if last in _ASKS else "list"
        outer = [self.code.full_name(above) for above in list(self.code.above(node))[:3] if isinstance(above, ast.Call)]
        parser = next((word for word in ("json", "csv", "yaml", "pickle") if f"{word}." in " ".join(outer)), "")
        return parser or _READERS.get(name) or _READERS.get(last) or "text"

    def subject(self, node: ast.Call, last: str) -> str:
        """The path that a reading call is about: its receiver (``Path(…).read_text()``) or first argument."""
        receiver = node.func.value if isinstance(node.func, ast.Attribute) else None
        if receiver is not None and last in ("read_text", "read_bytes", "open", *_ASKS, *_LISTS):
            path = self.path(receiver)
            if path and not (isinstance(receiver, ast.Name) and receiver.id in self.code.modules):
                return path
        return self.path(node.args[0]) if node.args else ""

    def _writes(self, node: ast.Call, last: str) -> bool:
        if last != "open":
            return False
        at = 0 if isinstance(node.func, ast.Attribute) and call_name(node.func) not in ("io.open", "codecs.open") else 1
        mode = next((word.value for word in node.keywords if word.arg == "mode"), None)
        if mode is None and len(node.args) > at:
            mode = node.args[at]
        text = self.code.text_value(mode) if mode is not None else ""
        return any(letter in text for letter in "wax") and len(text) <= 4

    def writes_to(self, node: ast.Call) -> str:
        """The path that a call writes to; empty: none, or not known."""
        name = self.code.full_name(node)
        last = name.rpartition(".")[2]
        if last in ("write_text", "write_bytes") and isinstance(node.func, ast.Attribute):
            return self.path(node.func.value)
        if last == "open" and self._writes(node, last):
            return self.subject(node, last)
        return ""

    def argv(self, node: ast.Call) -> tuple[str, ...]:
        """Words of the command that a call runs, as far as they are constant; unknown ones as ``$``."""
        if not node.args:
            return ()
        first = node.args[0]
        if isinstance(first, ast.Name):
            bound = self.code.bound(first.id, self.code.scopes.get(first))
            first = next((value for value in bound if isinstance(value, ast.List | ast.Tuple)), first)
        if isinstance(first, ast.List | ast.Tuple):
            return tuple(self.code.text_value(word) or "$" for word in first.elts)
        text = self.code.text_value(first)
        try:
            return tuple(shlex.split(text))
        except ValueError:
            return tuple(text.split())

    def program(self, node: ast.Call) -> str:
        """The script or program that a call runs, absolute where it is a path."""
        words = self.argv(node)
        for word in words:
            if "/" in word and not word.startswith("-"):
                return posixpath.normpath(posixpath.join(self._cwd_of(node), word))
        for word in words[1:]:
            if word.endswith((".py", ".sh", ".js", ".rb", ".pl")):
                return posixpath.join(self._cwd_of(node), word)
        return words[0] if words else ""

    def _cwd_of(self, node: ast.Call) -> str:
        given = next((word.value for word in node.keywords if word.arg == "cwd"), None)
        return (self.path(given) if given is not None else "") or self.cwd or "/"
