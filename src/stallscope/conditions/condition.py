"""A condition: parsed from text, evaluated for an analysis, and said in a sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from stallscope.analysis import Analysis
from stallscope.formatting.numbers import (
    amount,
    between,
    interval,
    percent,
    percent_ends,
    rate,
    significant,
)
from stallscope.formatting.plain import plain
from stallscope.query import Evaluation, State, evaluate, fold, parse_expression
from stallscope.query.field_kinds import UNITS, Kind
from stallscope.query.filters import COMPARED
from stallscope.query.syntax import (
    TURNED,
    Binary,
    Name,
    Node,
    Number,
    TextLiteral,
    Unary,
    leaves_of,
)

from .known_figures import read
from .quantities import (
    NO_BASELINE,
    Found,
    LogProgress,
    Missing,
    Quantity,
    Truth,
    WordValue,
    is_finite,
    is_of_progress,
    minus,
    negative,
    over,
    plus,
    read_of_progress,
    times,
)
from .validation import checked_condition

_OPERATIONS: Mapping[str, Callable[[Quantity, Quantity], Quantity | None]] = {
    "+": plus,
    "-": minus,
    "*": times,
    "/": over,
}
#: Reads the figure of a name.
Lookup = Callable[[Name], Found]

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


@dataclass(frozen=True)
class Outcome:
    """Whether a condition held, and why, in a sentence without its full stop.

    ``held`` is None if a decisive figure is missing; ``why`` names it and the cause.
    """

    held: bool | None
    why: str


@dataclass(frozen=True)
class Condition:
    """A condition on a run; parsing its text gives the same condition."""

    node: Node

    def __str__(self) -> str:
        return str(self.node)

    def check(self, analysis: Analysis, progress: LogProgress | None = None) -> Outcome:
        """Evaluate the condition for a run, and for its progress if that is known.

        Point estimates decide; within ``surely(…)`` whole 95 % intervals do.
        """

        def lookup(name: Name) -> Found:
            if progress is not None and is_of_progress(name):
                return read_of_progress(progress, name)
            return read(name.path, name.of_baseline, analysis)

        return self._outcome(lookup)

    def lacks_baseline(self, analysis: Analysis) -> bool:
        """Return whether the condition compares the run with a baseline, and there is none."""
        figures = (read(name.path, name.of_baseline, analysis) for name in self._names())
        return Missing(NO_BASELINE) in figures

    @property
    def needs_analysis(self) -> bool:
        """Return whether ``check_progress`` cannot evaluate it."""
        return not all(map(is_of_progress, self._names()))

    def names(self, figure: str) -> bool:
        """Return whether the condition is about a figure, or one of its parts."""
        return any(name.path[0] == figure for name in self._names())

    def check_progress(self, progress: LogProgress) -> Outcome:
        """Evaluate a condition on the run's progress only."""
        return self._outcome(partial(read_of_progress, progress))

    def _names(self) -> Iterator[Name]:
        return (leaf for leaf in leaves_of(self.node) if isinstance(leaf, Name))

    def _outcome(self, lookup: Lookup) -> Outcome:
        evaluation = evaluate(self.node, partial(compare, lookup))
        held = None if evaluation.state is State.UNKNOWN else evaluation.state is State.YES
        return Outcome(held, plain("; ".join(dict.fromkeys(evaluation.why))))


def parse(text: str) -> Condition:
    """Parse a condition such as ``input.excess>20%``; docs/conditions.md has the language.

    Raises:
        ValueError: if it is invalid; the message is one sentence with the column of the error.
    """
    return Condition(checked_condition(parse_expression(text)))


# -- evaluation ------------------------------------------------------------------------------------
#
# Compare figures of an analysis; some may be missing or uncertain.


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
    sentence = amounts(node, left, right, difference, held)
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
    sentence = words(node, left.text, right.text, held)
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


# -- sentences -------------------------------------------------------------------------------------
#
# Describe the result of a comparison with its numbers.


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
    shown = _value_in_words(value.value, kind)
    return shown if value.ci95 is None else f"{shown} ({_ends(value.ci95, kind)})"


def _ends(ends: tuple[float, float], kind: Kind) -> str:
    if kind in (Kind.MS, Kind.S):
        return interval(ends, "ms")
    if kind is Kind.SHARE:
        return percent_ends(ends)
    return f"{between(*ends)}{' samples/s' if kind is Kind.RATE else ''}"


def _value_in_words(value: float, kind: Kind) -> str:
    if kind is Kind.SHARE:
        return percent(value)
    if kind in (Kind.MS, Kind.S):
        return amount(value, "ms")
    if kind is Kind.RATE:
        return rate(value)
    return f"{value:,.0f}".replace("-", "−") if value.is_integer() else significant(value)
