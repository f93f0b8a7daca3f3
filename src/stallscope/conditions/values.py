"""What the sides of a comparison are for one analysis."""

from __future__ import annotations

from stallscope.analysis import Analysis

from .figures import read
from .found import Found, Word
from .kinds import UNITS
from .quantities import Missing, Quantity, is_finite, minus, negative, over, plus, times
from .syntax import Arithmetic, Name, Negative, Node, Number, Text

Value = Found

_OPERATIONS = {"+": plus, "-": minus, "*": times, "/": over}


def value_of(node: Node, analysis: Analysis) -> Value:
    """The amount or the word; Missing where a figure is not known, or nothing can be computed."""
    if isinstance(node, Number):
        kind, factor, divisor = UNITS[node.unit]
        return Quantity(node.value * factor / divisor, kind)
    if isinstance(node, Text):
        return Word(node.text)
    if isinstance(node, Name):
        return _read(node, analysis)
    if isinstance(node, Negative):
        inner = value_of(node.operand, analysis)
        return negative(inner) if isinstance(inner, Quantity) else inner
    assert isinstance(node, Arithmetic)
    return _computed(node, analysis)


def _read(name: Name, analysis: Analysis) -> Value:
    found = read(name.path, name.of_baseline, analysis)
    if isinstance(found, Missing):
        return Missing(f"{name} is not known: {found.why}")
    if isinstance(found, Quantity) and not is_finite(found):
        return Missing(f"{name} is not known: it was not measured")
    return found


def _computed(node: Arithmetic, analysis: Analysis) -> Value:
    left, right = value_of(node.left, analysis), value_of(node.right, analysis)
    if not isinstance(left, Quantity):
        return left
    if not isinstance(right, Quantity):
        return right
    found = _OPERATIONS[node.sign](left, right)
    if found is None:
        return Missing(f"{node} cannot be told: {node.right} is 0")
    return (
        found if is_finite(found) else Missing(f"{node} cannot be told: it is too large a number")
    )
