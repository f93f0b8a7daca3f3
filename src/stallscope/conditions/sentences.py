"""Describe the result of a comparison with its numbers."""

from __future__ import annotations

from stallscope.formatting.numbers import (
    amount,
    between,
    interval,
    percent,
    percent_ends,
    rate,
    significant,
)
from stallscope.query.kinds import Kind
from stallscope.query.syntax import TURNED, Binary, Name, Node, leaves_of

from .quantities import Quantity

_HELD = {
    "<": "under {}",
    "<=": "at most {}",
    ">": "over {}",
    ">=": "at least {}",
    "==": "as much as {}",
    "!=": "other than {}",
}
_UNITS = {Kind.MS: "ms", Kind.S: "s", Kind.RATE: "samples/s"}
_NOT_HELD = {
    "<": "not under {}",
    "<=": "more than {}",
    ">": "not over {}",
    ">=": "less than {}",
    "==": "other than {}",
    "!=": "as much as {}",
}


def amounts(node: Binary, left: Quantity, right: Quantity, difference: Quantity, held: bool) -> str:
    """Write ``input.excess is 31.2% (29.8% to 32.5%), over 20%``, and whether it is significant."""
    shown, limit, sign = (node.left, left), (node.right, right), node.word
    if not _has_figures(node.left) and _has_figures(node.right):
        shown, limit, sign = limit, shown, TURNED[sign]
    kind = shown[1].kind if limit[1].kind is Kind.BARE else limit[1].kind
    word = (_HELD if held else _NOT_HELD)[sign].format(_limit(*limit, kind))
    sentence = f"{shown[0]} is {_shown(shown[1], shown[1].kind)}, {word}"
    ends = difference.ci95
    if ends is None or not ends[0] <= 0 <= ends[1]:
        return sentence
    if limit[1].ci95 is None and shown[1].ci95 is not None:
        return f"{sentence}; the interval {_ends(shown[1].ci95, shown[1].kind)} includes the limit"
    return f"{sentence}; the interval of the difference, {_ends(ends, difference.kind)}, includes 0"


def words(node: Binary, left: str, right: str, held: bool) -> str:
    """Write ``bottleneck is 'input', not 'imbalance'``."""
    name, word, expected = (
        (node.left, left, right) if _has_figures(node.left) else (node.right, right, left)
    )
    sentence = f"{name} is '{word}'"
    if word == expected:
        return sentence
    if node.word != "~":
        return f"{sentence}, not '{expected}'"
    return f"{sentence}, {'with' if held else 'without'} '{expected}'"


def _limit(node: Node, value: Quantity, kind: Kind) -> str:
    """Write the limit as the user wrote it, and its value if it was computed."""
    if _has_figures(node) or isinstance(node, Binary):
        return f"{node}, which is {_shown(value.taken_as(kind), kind)}"
    return f"{node} {_UNITS[kind]}" if value.kind is Kind.BARE and kind in _UNITS else str(node)


def _has_figures(node: Node) -> bool:
    return any(isinstance(leaf, Name) for leaf in leaves_of(node))


def _shown(value: Quantity, kind: Kind) -> str:
    shown = _value(value.value, kind)
    return shown if value.ci95 is None else f"{shown} ({_ends(value.ci95, kind)})"


def _ends(ends: tuple[float, float], kind: Kind) -> str:
    if kind in (Kind.MS, Kind.S):
        return interval(ends, "ms")
    if kind is Kind.SHARE:
        return percent_ends(ends)
    return f"{between(*ends)}{' samples/s' if kind is Kind.RATE else ''}"


def _value(value: float, kind: Kind) -> str:
    if kind is Kind.SHARE:
        return percent(value)
    if kind in (Kind.MS, Kind.S):
        return amount(value, "ms")
    if kind is Kind.RATE:
        return rate(value)
    return f"{value:,.0f}".replace("-", "−") if value.is_integer() else significant(value)
