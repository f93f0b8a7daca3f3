"""Logic in which a condition may be undecided."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from .syntax import Binary, Node, Unary


class State(IntEnum):
    """The state of a condition, ordered so that ``and`` is the minimum and ``or`` the maximum."""

    NO = 0
    #: Within ``surely``: an interval includes the limit.
    UNSURE = 1
    #: A figure is missing.
    UNKNOWN = 2
    YES = 3


class Evaluation(NamedTuple):
    """A state and the sentences that explain it."""

    state: State
    why: tuple[str, ...] = ()


COMPARED: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
#: Evaluations without sentences, for lists.
YES = Evaluation(State.YES)
NO = Evaluation(State.NO)
_DECIDING = {"and": NO, "or": YES}
_INVERSE = {State.YES: State.NO, State.NO: State.YES}


def evaluate(
    node: Node, compare: Callable[[Any, bool], Evaluation], surely: bool = False
) -> Evaluation:
    """Return whether a condition holds.

    ``compare`` decides single comparisons; its flag is True within ``surely``.
    """
    if isinstance(node, Unary) and node.word == "not":
        inner = evaluate(node.operand, compare, surely)
        return inner._replace(state=_INVERSE.get(inner.state, inner.state))
    if isinstance(node, Unary):
        inner = evaluate(node.operand, compare, True)
        # Nested ones mean the same.
        is_no = inner.state is State.UNSURE and not surely
        return inner._replace(state=State.NO) if is_no else inner
    if isinstance(node, Binary) and node.word in ("and", "or"):
        left = evaluate(node.left, compare, surely)
        if left is _DECIDING[node.word]:
            return left
        right = evaluate(node.right, compare, surely)
        # Only the decisive parts explain the result.
        if left.state is right.state:
            return Evaluation(left.state, left.why + right.why)
        return left if (left.state < right.state) == (node.word == "and") else right
    return compare(node, surely)
