"""A condition held against an analysis: logic in which some figures are not known, or not sure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from stallscope.analysis import Analysis

from . import sentences
from .quantities import Missing, Quantity, minus
from .syntax import Comparison, Joined, Node, Not, Surely
from .values import Value, value_of

_DECIDED = {
    "<": lambda difference: difference < 0,
    "<=": lambda difference: difference <= 0,
    ">": lambda difference: difference > 0,
    ">=": lambda difference: difference >= 0,
    "==": lambda difference: difference == 0,
    "!=": lambda difference: difference != 0,
}


class State(IntEnum):
    """In an order in which ``and`` is the least and ``or`` the greatest."""

    NO = 0
    #: Inside of ``surely``: an interval is on both sides of a limit.
    UNSURE = 1
    #: A figure is missing.
    UNKNOWN = 2
    YES = 3


@dataclass(frozen=True)
class Judgement:
    """A state and, in a sentence, what it rests on."""

    state: State
    says: str


def judge(node: Node, analysis: Analysis, surely: bool = False) -> Judgement:
    """Whether the condition holds; ``surely`` asks for the whole of every interval."""
    if isinstance(node, Comparison):
        return _compared(node, analysis, surely)
    if isinstance(node, Joined):
        parts = judge(node.left, analysis, surely), judge(node.right, analysis, surely)
        return _joined(node.word, *parts)
    if isinstance(node, Not):
        return _inverse(judge(node.operand, analysis, surely))
    assert isinstance(node, Surely)
    inner = judge(node.operand, analysis, surely=True)
    # Nested ones ask for the same.
    state = State.NO if inner.state is State.UNSURE and not surely else inner.state
    return Judgement(state, inner.says)


def _joined(word: str, left: Judgement, right: Judgement) -> Judgement:
    state = (min if word == "and" else max)(left.state, right.state)
    # Only what made it so is worth saying.
    said = dict.fromkeys(one.says for one in (left, right) if one.state is state)
    return Judgement(state, "; ".join(said))


def _inverse(inner: Judgement) -> Judgement:
    if inner.state in (State.YES, State.NO):
        return Judgement(State.NO if inner.state is State.YES else State.YES, inner.says)
    return inner


def _compared(node: Comparison, analysis: Analysis, surely: bool) -> Judgement:
    left, right = value_of(node.left, analysis), value_of(node.right, analysis)
    for one in (left, right):
        if isinstance(one, Missing):
            return Judgement(State.UNKNOWN, one.why)
    if not isinstance(left, Quantity) or not isinstance(right, Quantity):
        return _compared_words(node, left, right)
    difference = minus(left, right)
    held = _DECIDED[node.sign](difference.value)
    said = sentences.amounts(node, left, right, difference, held)
    if not surely:
        return Judgement(State.YES if held else State.NO, said)
    if difference.spread is None:
        return Judgement(State.UNKNOWN, f"{said}; it has no interval: {difference.without}")
    return Judgement(_sure(node.sign, difference), said)


def _sure(sign: str, difference: Quantity) -> State:
    """Whether it holds for all of the interval, for nothing of it, or for a part."""
    low, high = difference.ci95 or (difference.value, difference.value)
    inside = [low, high, *([0.0] if low < 0 < high else [])]
    held = {_DECIDED[sign](value) for value in inside}
    if len(held) > 1:
        return State.UNSURE
    return State.YES if held.pop() else State.NO


def _compared_words(node: Comparison, left: Value, right: Value) -> Judgement:
    words = [one for one in (left, right) if not isinstance(one, (Quantity, Missing))]
    one, other = words
    same = one.text == other.text
    unsure = one.unsure or other.unsure
    if not same and unsure:
        named = node.left if one.unsure else node.right
        return Judgement(State.UNKNOWN, f"{named} is not known: {unsure}")
    held = same == (node.sign == "==")
    return Judgement(State.YES if held else State.NO, sentences.words(node, one.text, other.text))
