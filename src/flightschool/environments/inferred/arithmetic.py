"""The arithmetic that calculator tools do: numbers, + - * / and brackets in a text, and how the result is written."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable

from flightschool.records import Json

__all__ = ["STYLES", "evaluate_arithmetic"]

_LONGEST = 1000
_OPERATORS: dict[type, Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}

STYLES: dict[str, Callable[[float], Json]] = {
    "number": lambda value: value,
    "text": str,
    "rounded": lambda value: round(value, 2),
    "rounded text": lambda value: str(round(float(value), 2)),
}
"""Name → how a result is written."""


def evaluate_arithmetic(text: Json, style: str) -> Json:
    """The value of an arithmetic expression in the given style, or None if the text is none."""
    if not isinstance(text, str) or not 0 < len(text) <= _LONGEST:
        return None
    try:
        value = _value(ast.parse(text.strip(), mode="eval").body)
        return STYLES[style](value)
    except (SyntaxError, ValueError, ZeroDivisionError, OverflowError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr) -> float:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _value(node.operand)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    raise ValueError("not arithmetic")
