"""What Python tests compare: every comparison with something that the policy made on one side, with its literals."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from flightschool.audit.terminal.static.live_path import LivePython
from flightschool.audit.terminal.static.python_code import Value, call_name
from flightschool.audit.terminal.static.python_flow import Origin

__all__ = ["Comparison", "agent_origins", "comparisons_of", "literals_of"]

_OPERATORS: Final[dict[type[ast.cmpop], str]] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.In: "in", ast.NotIn: "not in", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">",
    ast.GtE: ">=", ast.Is: "is", ast.IsNot: "is not",
}  # fmt: skip
_CALLS: Final = {
    "assertEqual": "==", "assertEquals": "==", "assertListEqual": "==", "assertDictEqual": "==", "assertIn": "in",
    "assertCountEqual": "set", "assertSetEqual": "set", "assertAlmostEqual": "close", "assert_allclose": "close",
    "isclose": "close", "allclose": "close", "assert_almost_equal": "close", "assert_array_equal": "==",
    "assert_frame_equal": "==", "issubset": "subset", "issuperset": "superset", "startswith": "startswith",
    "endswith": "endswith", "array_equal": "==", "cmp": "==", "search": "search", "match": "search",
    "fullmatch": "fullmatch", "findall": "search",
}  # fmt: skip
MOST: Final = 4000


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """One comparison."""

    live: LivePython
    node: ast.AST
    operator: str
    left: ast.expr
    right: ast.expr
    left_origins: frozenset[Origin]
    """Of the agent's making only."""
    right_origins: frozenset[Origin]

    @property
    def where(self) -> str:
        """File and line."""
        return self.live.code.where(self.node)

    @property
    def agent(self) -> ast.expr:
        """The side that the policy made."""
        return self.left if self.left_origins else self.right

    @property
    def other(self) -> ast.expr:
        """The other side."""
        return self.right if self.left_origins else self.left

    @property
    def origins(self) -> frozenset[Origin]:
        """Of both sides."""
        return self.left_origins | self.right_origins

    @property
    def literals(self) -> tuple[Value, ...]:
        """Constants of the other side."""
        return literals_of(self.live, self.other)


def agent_origins(live: LivePython, node: ast.AST, of_agent: Callable[[str], bool]) -> frozenset[Origin]:
    """Origins of an expression that the policy has in its hand."""
    found = live.flow.origins(node)
    return frozenset(
        (kind, detail)
        for kind, detail in found
        if kind == "module"
        or (kind in ("file", "list", "path") and of_agent(detail))
        or (kind == "program" and (detail.startswith("/") and of_agent(detail)))
    )


def literals_of(live: LivePython, node: ast.AST, most: int = 200) -> tuple[Value, ...]:
    """Constants in an expression, names followed; keys of a display of a dictionary are left out."""
    found: list[Value] = []
    todo: list[ast.AST] = [node]
    seen: set[ast.AST] = set()
    while todo and len(found) < most:
        here = todo.pop(0)
        if here in seen:
            continue
        seen.add(here)
        if isinstance(here, ast.Constant):
            if isinstance(here.value, str | int | float) and not isinstance(here.value, bool):
                found.append(here.value)
        elif isinstance(here, ast.JoinedStr | ast.UnaryOp):
            value = live.code.value(here)
            found += [value] if value is not None else []
        else:
            todo += _parts(live, here)
    return tuple(dict.fromkeys(found))


def _parts(live: LivePython, node: ast.AST) -> list[ast.AST]:
    """Where the constants of an expression are to be looked for."""
    if isinstance(node, ast.Name):
        return list(live.code.bound(node.id, live.code.scopes.get(node)))
    if isinstance(node, ast.Dict):
        return list(node.values)
    if isinstance(node, ast.Subscript):
        return [node.value]
    if isinstance(node, ast.Call):
        if call_name(node.func).endswith(("open", "Path", "read_text", "get", "run", "check_output", "join")):
            return []
        named = [keyword.value for keyword in node.keywords if keyword.arg == "expected"]
        return [*node.args, *named, *([node.func.value] if isinstance(node.func, ast.Attribute) else [])]
    return list(ast.iter_child_nodes(node)) if isinstance(node, ast.expr) else []


def comparisons_of(live: LivePython, of_agent: Callable[[str], bool]) -> list[Comparison]:
    """Comparisons in which the policy has a hand, in order of the text."""
    found: list[Comparison] = []
    for node, operator, left, right in _pairs(live):
        if len(found) >= MOST:
            break
        mine = agent_origins(live, left, of_agent)
        theirs = agent_origins(live, right, of_agent)
        if mine or theirs:
            found.append(Comparison(live, node, operator, left, right, mine, theirs))
    return found


def _pairs(live: LivePython) -> Iterator[tuple[ast.AST, str, ast.expr, ast.expr]]:
    for node in live.code.nodes(ast.Compare):
        left: ast.expr = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            yield node, _OPERATORS[type(operator)], left, right
            left = right
    for call in live.code.nodes(ast.Call):
        last = call_name(call.func).rpartition(".")[2]
        operator_name = _CALLS.get(last)
        if operator_name is None:
            continue
        if last in ("issubset", "issuperset", "startswith", "endswith") and isinstance(call.func, ast.Attribute):
            if call.args:
                yield call, operator_name, call.func.value, call.args[0]
        elif len(call.args) >= 2:
            yield call, operator_name, call.args[0], call.args[1]
