"""Conditions on a run, such as ``input.excess>20%``: parsed, evaluated and said in a sentence.

comparison = figure | operand sign operand
operand = [number "*"] figure | figure "*" number | number [unit] | word
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite

from stallscope.analysis import Analysis
from stallscope.formatting.plain import plain

from .known_figures import figure, known_names, needs_analysis, read
from .language import (
    COMPARED,
    NUMBER,
    ORDERED,
    SIGN,
    TURNED,
    UNITS,
    Comparison,
    Evaluation,
    Kind,
    Node,
    Parser,
    State,
    comparable,
    evaluate,
    fold,
    leaves_of,
    nearest,
    never,
    sign_of,
    wrong,
)
from .quantities import (
    NO_BASELINE,
    SIMPLE_PART,
    FigureValue,
    LogProgress,
    Missing,
    Name,
    NamedFigure,
    Number,
    Operand,
    Quantity,
    Text,
    Truth,
    WordValue,
)

#: Reads the figure of a name.
Lookup = Callable[[Name], FigureValue]

#: The longest condition, in characters.
_LONGEST = 1000


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
        return self._outcome(partial(read, analysis, progress))

    def lacks_baseline(self, analysis: Analysis) -> bool:
        """Return whether the condition compares the run with a baseline, and there is none."""
        return Missing(NO_BASELINE) in [read(analysis, None, name) for name in self._names()]

    @property
    def needs_analysis(self) -> bool:
        """Return whether ``check_progress`` cannot evaluate it."""
        return any(map(needs_analysis, self._names()))

    def names(self, figure: str) -> bool:
        """Return whether the condition is about a figure, or one of its parts."""
        return any(name.path[0] == figure for name in self._names())

    def check_progress(self, progress: LogProgress) -> Outcome:
        """Evaluate a condition on the run's progress only."""
        return self._outcome(partial(read, None, progress))

    def _names(self) -> Iterator[Name]:
        for leaf in leaves_of(self.node):
            yield from (side for side in (leaf.left, leaf.right) if isinstance(side, Name))

    def _outcome(self, lookup: Lookup) -> Outcome:
        evaluation = evaluate(self.node, partial(_compare, lookup))
        held = None if evaluation.state is State.UNKNOWN else evaluation.state is State.YES
        return Outcome(held, plain("; ".join(dict.fromkeys(evaluation.why))))


def parse(text: str) -> Condition:
    """Parse a condition such as ``input.excess>20%``; docs/conditions.md has the language.

    Raises:
        ValueError: if it is invalid; the message is one sentence with the column of the error.
    """
    if len(text) > _LONGEST:
        raise ValueError(
            f"a condition has at most {_LONGEST:,} characters, and this one {len(text):,}"
        )
    return Condition(_GateParser(text).read())


# -- parser ----------------------------------------------------------------------------------------

_UNIT = "|".join(sorted(filter(str.isalpha, UNITS), key=len, reverse=True))
_TEXT = r"'[^']*'|\"[^\"]*\""
_PART = rf"(?:{SIMPLE_PART}|{_TEXT})"
_SIGN = re.compile(rf"\s*{SIGN}")
_OPERAND = re.compile(
    rf"(?:(?P<factor>{NUMBER})\s*(?P<share>%?)\s*\*\s*)?(?P<name>{SIMPLE_PART}(?:\.{_PART})*)"
    rf"(?(factor)|(?:\s*\*\s*(?P<after>{NUMBER})\s*(?P<share_after>%?))?)"
    rf"|(?P<number>{NUMBER})(?:\s*(?P<unit>%|(?:{_UNIT})(?![A-Za-z0-9_])))?|(?P<text>{_TEXT})"
)


class _GateParser(Parser):
    has_intervals = True

    def read(self) -> Node:
        node = self._condition()
        if self._column > len(self._text):
            return node
        self._refuse_second_sign()
        if self._word == ")":
            raise wrong(self._column, "this ) closes nothing")
        raise self._refusal("joins nothing: join conditions with and, or")

    def _comparison(self) -> Node:
        left, match = self._operand(), _SIGN.match(self._text, self._at)
        if match is None:
            return _alone(left)
        self._pass(match.end())
        right = self._operand()
        self._refuse_second_sign()
        return _checked(left, sign_of(match), right)

    def _operand(self) -> Operand:
        column = self._column
        match = None if self._word else _OPERAND.match(self._text, column - 1)
        if column > len(self._text):
            raise wrong(column, "the text ends where a figure or a number is missing")
        if match is None:
            raise self._refusal("stands where a figure or a number is missing")
        self._pass(match.end())
        if self._text.startswith("-", match.end()) and ":" in (match["name"] or ""):
            raise wrong(column, "put a name with - in quotes, as in what_if.'host:node-7'.speedup")
        self._refuse_arithmetic()
        if match["text"]:
            return Text(match["text"][1:-1], column=column)
        if match["number"]:
            return _number(match["number"], match["unit"] or "", column)
        parts = re.findall(_PART, match["name"])
        path = tuple(part[1:-1] if part[0] in "'\"" else part for part in parts)
        of_baseline = path[0] == "baseline"
        number, share = match["factor"] or match["after"], match["share"] or match["share_after"]
        factor = _number(number, share or "", column) if number else None
        column = match.start("name") + 1
        return Name(path[of_baseline:], of_baseline, factor, column=column)

    def _refuse_arithmetic(self) -> None:
        column = self._column
        sign = self._text[column - 1 : column]
        if sign and sign in "+-*/":
            raise wrong(
                column,
                f"{sign!r} does not work here: write a factor times a figure, as in "
                "step_ms.p99>2*step_ms.p50",
            )

    def _refusal(self, problem: str) -> ValueError:
        """Return an error about the text here, where it cannot stand."""
        self._refuse_arithmetic()
        rest = self._text[self._column - 1 :]
        match = _SIGN.match(rest) or _OPERAND.match(rest)
        known = self._word or (match[0] if match else "")
        if known:
            return wrong(self._column, f"{known!r} {problem}")
        if rest[0] in "'\"":
            return wrong(self._column, f"a text begins with {rest[0]} and does not end")
        hint = {"&": "; say and", "|": "; say or", "!": "; say not"}.get(rest[0], "")
        return wrong(self._column, f"{rest[0]!r} means nothing here{hint}")

    def _refuse_second_sign(self) -> None:
        if _SIGN.match(self._text, self._at):
            raise wrong(self._column, "a second comparison: join the two with and")


def _number(text: str, unit: str, column: int) -> Number:
    number = Number(float(text), unit, column=column)
    if not isfinite(number.value * UNITS[unit][1]):
        raise wrong(column, f"{text} is too large a number")
    return number


# -- Names exist, and kinds match -----------------------------------------------------------------


def _alone(operand: Operand) -> Comparison:
    """Return a figure that is a condition by itself, as a comparison with nothing."""
    if isinstance(operand, Name) and operand.path and _figure(operand).kind is Kind.TRUTH:
        return Comparison(operand, "", "")
    raise wrong(
        operand.column,
        f"{operand} is no condition: compare it with something, as in input.excess>20%",
    )


def _checked(left: Operand, sign: str, right: Operand) -> Comparison:
    """Return a comparison whose left side is a figure."""
    left, right = _as_text(left, right), _as_text(right, left)
    left, right = _filled(left, right), _filled(right, left)
    if not isinstance(left, Name) and isinstance(right, Name) and sign in TURNED:
        left, sign, right = right, TURNED[sign], left
    if not isinstance(left, Name):
        raise wrong(left.column, f"{left} is no figure: begin with one, as in input.excess>20%")
    kind, limit = _kind_of(left), _kind_of(right)
    if sign == "~" and kind is not Kind.TEXT:
        raise wrong(left.column, f"~ looks into words, and {left} is {kind.value}")
    if not comparable(kind, limit) and not kind is limit is Kind.TEXT:
        raise wrong(right.column, f"{left} is {kind.value} and {right} {limit.value}")
    if kind is Kind.TEXT and sign in ORDERED:
        raise wrong(left.column, f"words are compared with == and !=, not with {sign}")
    choices = _figure(left).choices
    if isinstance(right, Text) and sign != "~" and choices and right.text not in choices:
        raise wrong(right.column, never(str(left), right.text, choices))
    return Comparison(left, sign, right)


def _as_text(operand: Operand, opposite: Operand) -> Operand:
    """Return a word without quotes as a text, if it is compared with a figure that is a word."""
    compared = figure(opposite.path) if isinstance(opposite, Name) else None
    if compared is None or compared.kind is not Kind.TEXT or not isinstance(operand, Name):
        return operand
    if operand.of_baseline or operand.factor or len(operand.path) > 1:
        return operand
    (word,) = operand.path
    is_word = word in compared.choices or figure(operand.path) is None
    return Text(word, column=operand.column) if is_word else operand


def _filled(operand: Operand, opposite: Operand) -> Operand:
    """Replace ``baseline`` alone by the baseline's figure that it refers to."""
    if not isinstance(operand, Name) or operand.path:
        return operand
    if not isinstance(opposite, Name) or not opposite.path:
        raise wrong(
            operand.column, "which figure of the baseline? For example baseline.step_ms.p50"
        )
    return replace(operand, path=opposite.path, column=operand.column)


def _kind_of(operand: Operand) -> Kind:
    if isinstance(operand, Name):
        return _figure(operand).kind
    return operand.kind if isinstance(operand, Number) else Kind.TEXT


def _figure(name: Name) -> NamedFigure:
    """Return the figure of a name.

    Raises:
        ValueError: if there is none, or if the baseline or a multiple of it has no meaning.
    """
    known, plain_name = figure(name.path), replace(name, of_baseline=False, factor=None)
    prefix = "baseline." if name.of_baseline else ""
    if known is None:
        near = nearest(str(plain_name), known_names())
        hint = f"did you mean {prefix}{near}?" if near else "docs/conditions.md lists all figures"
        raise wrong(name.column, f"there is no figure '{prefix}{plain_name}'; {hint}")
    if name.of_baseline and not known.of_baseline:
        raise wrong(name.column, f"a baseline has no {plain_name} of its own")
    if name.factor and not comparable(known.kind, Kind.BARE):
        raise wrong(name.column, f"{plain_name} is {known.kind.value}: no number multiplies it")
    return known


# -- Compare figures of an analysis; some may be missing or uncertain -----------------------------


class _UnknownError(Exception):
    """A figure is missing or cannot be computed; the message is the reason."""


def _compare(lookup: Lookup, node: Comparison, surely: bool) -> Evaluation:
    """Return whether a comparison holds; with ``surely``, for the whole of every interval."""
    try:
        left = _value(node.left, lookup)
        if isinstance(left, Truth):
            return Evaluation(State.YES if left.held else State.NO, (left.why,))
        if isinstance(left, Quantity):
            limit = _limit(node.right, left.kind, lookup)
            return _compare_amounts(node, left, limit, surely)
        right = _value(node.right, lookup)
        assert isinstance(left, WordValue)
        assert isinstance(right, WordValue)
        return _compare_words(node, left, right)
    except _UnknownError as error:
        return Evaluation(State.UNKNOWN, (str(error),))


def _value(operand: Operand, lookup: Lookup) -> Quantity | WordValue | Truth:
    """Return the value of a figure, or a text.

    Raises:
        _UnknownError: if the figure is missing or cannot be computed.
    """
    if isinstance(operand, Text):
        return WordValue(operand.text)
    assert isinstance(operand, Name)
    name = replace(operand, factor=None)
    value = lookup(name)
    if isinstance(value, Missing):
        raise _UnknownError(f"{name} is not known: {value.why}")
    if not isinstance(value, Quantity):
        return value
    if not value.is_finite:
        raise _UnknownError(f"{name} is not known: it was not measured")
    if operand.factor is None:
        return value
    product = value.scaled(operand.factor.amount)
    if not product.is_finite:
        raise _UnknownError(f"{operand} is too large")
    return product


def _limit(operand: Operand, kind: Kind, lookup: Lookup) -> Quantity:
    """Return what a figure of this kind is compared with; a plain number has the figure's unit."""
    if isinstance(operand, Number):
        in_seconds = operand.kind is Kind.BARE and kind is Kind.S
        return Quantity(operand.amount * (1e3 if in_seconds else 1.0), kind)
    value = _value(operand, lookup)
    assert isinstance(value, Quantity)
    return value


def _compare_amounts(node: Comparison, left: Quantity, limit: Quantity, surely: bool) -> Evaluation:
    difference = left.minus(limit)
    held = COMPARED[node.sign](difference.value, 0)
    sentence = _amounts(node, left, limit, difference, held)
    if not surely:
        return Evaluation(State.YES if held else State.NO, (sentence,))
    if difference.spread is None:
        raise _UnknownError(f"{sentence}; it has no interval: {difference.without}")
    return Evaluation(_sure(node.sign, difference), (sentence,))


def _sure(sign: str, difference: Quantity) -> State:
    """Return whether a comparison holds for all of the interval, none of it, or a part."""
    low, high = difference.ci95 or (difference.value, difference.value)
    inside = [low, high, *([0.0] if low < 0 < high else [])]
    held = {COMPARED[sign](value, 0) for value in inside}
    if len(held) > 1:
        return State.UNSURE
    return State.YES if held.pop() else State.NO


def _compare_words(node: Comparison, left: WordValue, right: WordValue) -> Evaluation:
    contains = node.sign == "~"
    alike = fold(right.text) in fold(left.text) if contains else left.text == right.text
    unsure = left.unsure or right.unsure
    if not alike and unsure:
        named = node.left if left.unsure else node.right
        raise _UnknownError(f"{named} is not known: {unsure}")
    held = alike == (node.sign != "!=")
    sentence = _words(node, left.text, right.text, held)
    return Evaluation(State.YES if held else State.NO, (sentence,))


# -- Describe the result of a comparison with its numbers -----------------------------------------

#: By sign: the words if the comparison does not hold, and if it does.
_SENTENCES = {
    "<": ("not under {}", "under {}"),
    "<=": ("more than {}", "at most {}"),
    ">": ("not over {}", "over {}"),
    ">=": ("less than {}", "at least {}"),
    "==": ("other than {}", "as much as {}"),
    "!=": ("as much as {}", "other than {}"),
}
_UNITS = {Kind.MS: "ms", Kind.S: "s", Kind.RATE: "samples/s"}


def _amounts(
    node: Comparison, left: Quantity, limit: Quantity, difference: Quantity, held: bool
) -> str:
    """Write ``input.excess is 31.2% (29.8% to 32.5%), over 20%``, and whether it is significant."""
    shown = str(node.right)
    if isinstance(node.right, Name):
        shown += f", which is {limit}"
    elif node.right.kind is Kind.BARE and left.kind in _UNITS:
        shown += f" {_UNITS[left.kind]}"
    word = _SENTENCES[node.sign][held].format(shown)
    sentence = f"{node.left} is {left}, {word}"
    ends = difference.ci95
    if ends is None or not ends[0] <= 0 <= ends[1]:
        return sentence
    if limit.ci95 is None and left.ci95 is not None:
        return f"{sentence}; the interval {left.ends()} includes the limit"
    return f"{sentence}; the interval of the difference, {difference.ends()}, includes 0"


def _words(node: Comparison, left: str, right: str, held: bool) -> str:
    """Write ``bottleneck is 'input', not 'imbalance'``."""
    sentence = f"{node.left} is '{left}'"
    if left == right:
        return sentence
    if node.sign != "~":
        return f"{sentence}, not '{right}'"
    return f"{sentence}, {'with' if held else 'without'} '{right}'"
