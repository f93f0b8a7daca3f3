"""Compare figures of an analysis; some may be missing or uncertain."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stallscope.query import Evaluation, State, fold
from stallscope.query.evaluation import COMPARED
from stallscope.query.kinds import UNITS
from stallscope.query.syntax import Binary, Name, Node, Number, TextLiteral, Unary

from . import sentences
from .found import Found, Truth, WordValue
from .quantities import Missing, Quantity, is_finite, minus, negative, over, plus, times

_OPERATIONS: Mapping[str, Callable[[Quantity, Quantity], Quantity | None]] = {
    "+": plus,
    "-": minus,
    "*": times,
    "/": over,
}


#: Reads the figure of a name.
Lookup = Callable[[Name], Found]


class _UnknownError(Exception):
    """A figure is missing or cannot be computed; the message is the reason."""


def compare(lookup: Lookup, node: Binary | Name, surely: bool) -> Evaluation:
    """Return whether a comparison holds; with ``surely``, for the whole of every interval.

    A figure that is a condition by itself stands alone.
    """
    try:
        if isinstance(node, Name):
            return _truth(node, lookup)
        left, right = _value(node.left, lookup), _value(node.right, lookup)
        if isinstance(left, Quantity) and isinstance(right, Quantity):
            return _compare_amounts(node, left, right, surely)
        assert isinstance(left, WordValue)
        assert isinstance(right, WordValue)
        return _compare_words(node, left, right)
    except _UnknownError as error:
        return Evaluation(State.UNKNOWN, (str(error),))


def _truth(name: Name, lookup: Lookup) -> Evaluation:
    truth = _figure(name, lookup)
    assert isinstance(truth, Truth)
    return Evaluation(State.YES if truth.held else State.NO, (truth.why,))


def _compare_amounts(node: Binary, left: Quantity, right: Quantity, surely: bool) -> Evaluation:
    difference = minus(left, right)
    held = COMPARED[node.word](difference.value, 0)
    sentence = sentences.amounts(node, left, right, difference, held)
    if not surely:
        return Evaluation(State.YES if held else State.NO, (sentence,))
    if difference.spread is None:
        raise _UnknownError(f"{sentence}; it has no interval: {difference.without}")
    return Evaluation(_sure(node.word, difference), (sentence,))


def _sure(sign: str, difference: Quantity) -> State:
    """Return whether a comparison holds for all of the interval, none of it, or a part."""
    low, high = difference.ci95 or (difference.value, difference.value)
    inside = [low, high, *([0.0] if low < 0 < high else [])]
    held = {COMPARED[sign](value, 0) for value in inside}
    if len(held) > 1:
        return State.UNSURE
    return State.YES if held.pop() else State.NO


def _compare_words(node: Binary, left: WordValue, right: WordValue) -> Evaluation:
    contains = node.word == "~"
    alike = fold(right.text) in fold(left.text) if contains else left.text == right.text
    unsure = left.unsure or right.unsure
    if not alike and unsure:
        named = node.left if left.unsure else node.right
        raise _UnknownError(f"{named} is not known: {unsure}")
    held = alike == (node.word != "!=")
    sentence = sentences.words(node, left.text, right.text, held)
    return Evaluation(State.YES if held else State.NO, (sentence,))


def _value(node: Node, lookup: Lookup) -> Quantity | WordValue:
    """Return one side of a comparison.

    Raises:
        _UnknownError: if a figure is missing or cannot be computed.
    """
    if isinstance(node, Number):
        kind, factor, divisor = UNITS[node.unit]
        return Quantity(node.value * factor / divisor, kind)
    if isinstance(node, TextLiteral):
        return WordValue(node.text)
    if isinstance(node, Name):
        value = _figure(node, lookup)
        assert not isinstance(value, Truth)
        return value
    if isinstance(node, Unary):
        return negative(_amount(node.operand, lookup))
    assert isinstance(node, Binary)
    left, right = _amount(node.left, lookup), _amount(node.right, lookup)
    result = _OPERATIONS[node.word](left, right)
    if result is None:
        raise _UnknownError(f"{node} is undefined: {node.right} is 0")
    if not is_finite(result):
        raise _UnknownError(f"{node} is too large")
    return result


def _amount(node: Node, lookup: Lookup) -> Quantity:
    value = _value(node, lookup)
    assert isinstance(value, Quantity)
    return value


def _figure(name: Name, lookup: Lookup) -> Quantity | WordValue | Truth:
    value = lookup(name)
    if isinstance(value, Missing):
        raise _UnknownError(f"{name} is not known: {value.why}")
    if isinstance(value, Quantity) and not is_finite(value):
        raise _UnknownError(f"{name} is not known: it was not measured")
    return value
