"""A Python file as a tree with an index: nodes by kind, scopes, and what constant expressions are worth."""

from __future__ import annotations

import ast
import posixpath
import warnings
from collections.abc import Iterator
from typing import TypeAlias, TypeVar

__all__ = ["FunctionNode", "PythonCode", "Scope", "Value", "call_name", "parse_python"]

FunctionNode: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Scope: TypeAlias = "FunctionNode | None"
"""The function that a node stands in; None: the module."""
Value: TypeAlias = str | int | float | bytes | bool
NodeT = TypeVar("NodeT", bound=ast.AST)

MOST_NODES = 60_000
MOST_VALUES = 6
MOST_DEPTH = 14
_PATH_CLASSES = frozenset(["Path", "PurePath", "PosixPath", "PurePosixPath"])
_SAME = frozenset(["str", "os.fspath", "os.path.abspath", "os.path.realpath", "os.path.expanduser", "os.path.normpath"])


def parse_python(text: str, file: str, path: str, first_line: int = 1) -> PythonCode | None:
    """The index of a file; None when it is no Python that can be read here.

    Args:
        text: the code.
        file: name relative to the task's folder, for ``where``.
        path: where it lies in the sandbox; empty: nowhere (a heredoc).
        first_line: line of ``file`` that the text begins on.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd escapes in someone else's code
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return PythonCode(tree, text, file, path, first_line)


def call_name(node: ast.AST) -> str:
    """Dotted name of what is called or named (``os.path.join``); calls in between are left out: ``Path.read_text``."""
    names: list[str] = []
    for _ in range(MOST_DEPTH):
        if isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        elif isinstance(node, ast.Subscript):
            node = node.value
        else:
            break
    if isinstance(node, ast.Name):
        names.append(node.id)
    return ".".join(reversed(names))


class PythonCode:
    """One file."""

    def __init__(self, tree: ast.Module, text: str, file: str, path: str, first_line: int) -> None:
        self.tree = tree
        self.text = text
        self.file = file
        self.path = path
        self._offset = first_line - 1
        self.truncated = False
        self.parents: dict[ast.AST, ast.AST] = {}
        self.scopes: dict[ast.AST, Scope] = {}
        self._by_kind: dict[type[ast.AST], list[ast.AST]] = {}
        self.assigned: dict[tuple[Scope, str], list[ast.expr]] = {}
        self.functions: dict[str, FunctionNode] = {}
        self.calls: dict[str, list[ast.Call]] = {}
        self.modules: dict[str, str] = {}
        """Local name → dotted name of what was imported under it."""
        self._values: dict[ast.AST, tuple[Value, ...]] = {}
        self._working: set[ast.AST] = set()
        self._index()

    # ------------------------------------------------------------------------------------------ index

    def _index(self) -> None:
        todo: list[tuple[ast.AST, Scope]] = [(self.tree, None)]
        count = 0
        while todo:
            node, scope = todo.pop()
            count += 1
            if count > MOST_NODES:
                self.truncated = True
                break
            self.scopes[node] = scope
            self._by_kind.setdefault(type(node), []).append(node)
            inner = node if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else scope
            children = list(ast.iter_child_nodes(node))
            for child in children:
                self.parents[child] = node
            todo += [(child, inner) for child in reversed(children)]
            self._note(node, scope)

    def _note(self, node: ast.AST, scope: Scope) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self._bind(target, node.value, scope)
        elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr) and node.value is not None:
            self._bind(node.target, node.value, scope)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            self._bind(node.target, node.iter, scope)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            self._bind(node.optional_vars, node.context_expr, scope)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self.functions.setdefault(node.name, node)
        elif isinstance(node, ast.Call):
            self.calls.setdefault(call_name(node.func), []).append(node)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                self.modules[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                self.modules[alias.asname or alias.name] = f"{node.module or ''}.{alias.name}"

    def _bind(self, target: ast.expr, value: ast.expr, scope: Scope) -> None:
        if isinstance(target, ast.Name):
            self.assigned.setdefault((scope, target.id), []).append(value)
        elif isinstance(target, ast.Tuple | ast.List):
            values = value.elts if isinstance(value, ast.Tuple | ast.List) else None
            for at, element in enumerate(target.elts):
                paired = values[at] if values is not None and at < len(values) else value
                self._bind(element.value if isinstance(element, ast.Starred) else element, paired, scope)
        elif isinstance(target, ast.Attribute):
            self.assigned.setdefault((None, f".{target.attr}"), []).append(value)

    def nodes(self, kind: type[NodeT]) -> list[NodeT]:
        """All nodes of exactly one kind, in order of the text."""
        return self._by_kind.get(kind, [])  # type: ignore[return-value]

    def where(self, node: ast.AST) -> str:
        """File and line."""
        return f"{self.file}:{getattr(node, 'lineno', 1) + self._offset}"

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """What a node stands in, innermost first."""
        while (parent := self.parents.get(node)) is not None:
            yield parent
            node = parent

    def full_name(self, node: ast.AST) -> str:
        """Dotted name of what is called, imports followed: ``from os import path as p; p.join`` → ``os.path.join``."""
        name = call_name(node.func if isinstance(node, ast.Call) else node)
        first, dot, rest = name.partition(".")
        real = self.modules.get(first)
        return f"{real}{dot}{rest}" if real else name

    # ------------------------------------------------------------------------------------------ values

    def bound(self, name: str, scope: Scope) -> list[ast.expr]:
        """Expressions that a name may stand for in a scope: assignments, arguments of callers, defaults."""
        found = list(self.assigned.get((scope, name), ()))
        if scope is not None and not found:
            found = self._arguments(scope, name)
        if not found and scope is not None:
            found = list(self.assigned.get((None, name), ()))
        return found[:MOST_VALUES]

    def _arguments(self, function: FunctionNode, name: str) -> list[ast.expr]:
        names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
        if name not in names and name not in [argument.arg for argument in function.args.kwonlyargs]:
            return []
        found: list[ast.expr] = []
        at = names.index(name) if name in names else -1
        shift = 1 if names[:1] in (["self"], ["cls"]) else 0
        for call in (self.calls.get(function.name, []) + self.calls.get(f"self.{function.name}", []))[:MOST_VALUES]:
            keyword = next((word.value for word in call.keywords if word.arg == name), None)
            if keyword is not None:
                found.append(keyword)
            elif 0 <= at - shift < len(call.args):
                found.append(call.args[at - shift])
        defaults = function.args.defaults
        if at >= 0 and len(names) - at <= len(defaults):
            found.append(defaults[at - len(names)])
        return found + self._parametrised(function, name)

    def _parametrised(self, function: FunctionNode, name: str) -> list[ast.expr]:
        """Values of ``pytest.mark.parametrize`` for one argument."""
        found: list[ast.expr] = []
        for decorator in function.decorator_list:
            if not isinstance(decorator, ast.Call) or not call_name(decorator.func).endswith("parametrize"):
                continue
            if len(decorator.args) < 2:
                continue
            first = self.value(decorator.args[0])
            names = [word.strip() for word in first.split(",")] if isinstance(first, str) else []
            rows = decorator.args[1]
            if name not in names or not isinstance(rows, ast.List | ast.Tuple):
                continue
            for row in rows.elts[:MOST_VALUES]:
                elements = row.elts if len(names) > 1 and isinstance(row, ast.Tuple | ast.List) else [row]
                if names.index(name) < len(elements):
                    found.append(elements[names.index(name)])
        return found

    def value(self, node: ast.AST) -> Value | None:
        """The first constant that an expression is known to be worth."""
        return next(iter(self.values(node)), None)

    def text_value(self, node: ast.AST) -> str:
        """The same, only texts; empty where there is none."""
        return next((value for value in self.values(node) if isinstance(value, str)), "")

    def values(self, node: ast.AST) -> tuple[Value, ...]:
        """Constants that an expression may be worth, at most six."""
        if isinstance(node, ast.Constant):
            value = node.value
            return (value,) if isinstance(value, str | int | float | bytes) else ()
        known = self._values.get(node)
        if known is not None:
            return known
        if node in self._working or len(self._working) > MOST_DEPTH:
            return ()
        self._working.add(node)
        try:
            found = tuple(dict.fromkeys(self._compute(node)))[:MOST_VALUES]
        finally:
            self._working.discard(node)
        if not self._working:
            self._values[node] = found
        return found

    def _compute(self, node: ast.AST) -> Iterator[Value]:
        if isinstance(node, ast.Name):
            if node.id == "__file__" and self.path:
                yield self.path
            for expression in self.bound(node.id, self.scopes.get(node)):
                yield from self.values(expression)
        elif isinstance(node, ast.JoinedStr):
            yield from self._joined(node)
        elif isinstance(node, ast.FormattedValue):
            yield from self.values(node.value)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            yield from (-value for value in self.values(node.operand) if isinstance(value, int | float))
        elif isinstance(node, ast.BinOp):
            yield from self._operation(node)
        elif isinstance(node, ast.Attribute):
            yield from self._attribute(node)
        elif isinstance(node, ast.Call):
            yield from self._call(node)
        elif isinstance(node, ast.IfExp):
            yield from (*self.values(node.body), *self.values(node.orelse))
        elif (isinstance(node, ast.List | ast.Tuple | ast.Set) and isinstance(self.parents.get(node), ast.For)) or (
            isinstance(node, ast.List | ast.Tuple | ast.Set) and isinstance(self.parents.get(node), ast.comprehension)
        ):
            for element in node.elts[:MOST_VALUES]:
                yield from self.values(element)

    def _joined(self, node: ast.JoinedStr) -> Iterator[str]:
        out = ""
        for piece in node.values:
            value = self.value(piece)
            if value is None:
                return
            out += str(value)
        yield out

    def _operation(self, node: ast.BinOp) -> Iterator[Value]:
        for left in self.values(node.left):
            for right in self.values(node.right):
                if isinstance(left, str) and isinstance(right, str):
                    if isinstance(node.op, ast.Div):
                        yield posixpath.join(left, right)
                    elif isinstance(node.op, ast.Add) and len(left) + len(right) < 10_000:
                        yield left + right

    def _attribute(self, node: ast.Attribute) -> Iterator[Value]:
        if node.attr in ("parent", "name"):
            for value in self.values(node.value):
                if isinstance(value, str):
                    yield posixpath.dirname(value) if node.attr == "parent" else posixpath.basename(value)
        else:
            for expression in self.assigned.get((None, f".{node.attr}"), [])[:MOST_VALUES]:
                yield from self.values(expression)
            if isinstance(node.value, ast.Name):
                for expression in self.assigned.get((None, node.attr), [])[:MOST_VALUES]:
                    yield from self.values(expression)

    def _call(self, node: ast.Call) -> Iterator[Value]:
        name = self.full_name(node)
        last = name.rpartition(".")[2]
        if last in _PATH_CLASSES or name == "os.path.join":
            parts = [self.text_value(argument) for argument in node.args]
            if parts and all(parts):
                yield posixpath.join(*parts)
        elif last == "joinpath" and isinstance(node.func, ast.Attribute):
            parts = [self.text_value(part) for part in (node.func.value, *node.args)]
            if all(parts):
                yield posixpath.join(*parts)
        elif name in _SAME and node.args:
            yield from self.values(node.args[0])
        elif last in ("resolve", "absolute", "strip", "encode", "expanduser") and isinstance(node.func, ast.Attribute):
            yield from self.values(node.func.value)
        elif name == "os.path.dirname" and node.args:
            yield from (posixpath.dirname(v) for v in self.values(node.args[0]) if isinstance(v, str))
        elif name in ("os.environ.get", "os.getenv") and len(node.args) > 1:
            yield from self.values(node.args[1])
        elif name in self.functions:
            for returned in self.returns(self.functions[name]):
                yield from self.values(returned)

    def returns(self, function: FunctionNode) -> list[ast.expr]:
        """Expressions that a function returns or yields."""
        nodes: list[ast.Return | ast.Yield] = [*self.nodes(ast.Return), *self.nodes(ast.Yield)]
        own = [node.value for node in nodes if self.scopes.get(node) is function and node.value is not None]
        return own[:MOST_VALUES]
