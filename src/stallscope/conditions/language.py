"""The language of conditions: its words, its syntax tree, and the parser that all conditions share.

    condition = condition "or" condition | condition "and" condition | "not" condition
              | "(" condition ")" | "surely" "(" condition ")" | comparison

Parsing a printed tree gives the same tree.
"""

from __future__ import annotations

import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum, IntEnum
from typing import Any, ClassVar, NamedTuple, TypeVar

from stallscope.formatting.plain import plain
from stallscope.words import ENTRIES

T = TypeVar("T")

_MOST_WORDS = 200
#: The deepest nesting of parentheses and ``not``.
_DEEPEST = 30

# -- units -----------------------------------------------------------------------------------------


class Kind(Enum):
    """A kind of figure; the value is its name in sentences."""

    #: A number without a unit takes the other side's unit.
    BARE = "a plain number"
    NUMBER = "a number"
    SHARE = "a share"
    #: Times are stored in milliseconds; a plain number compared with seconds means seconds.
    MS = "a time"
    S = "a time in seconds"
    RATE = "a rate"
    SIZE = "a size"
    TEXT = "a word"
    TRUTH = "a condition"


#: Units, with the factor and the divisor that convert numbers.
UNITS: dict[str, tuple[Kind, int, int]] = {
    "": (Kind.BARE, 1, 1),
    "%": (Kind.SHARE, 1, 100),
    "us": (Kind.MS, 1, 1000),
    "ms": (Kind.MS, 1, 1),
    "s": (Kind.MS, 1000, 1),
    "min": (Kind.MS, 60_000, 1),
    "h": (Kind.MS, 3_600_000, 1),
    "d": (Kind.MS, 24 * 3_600_000, 1),
    "w": (Kind.MS, 7 * 24 * 3_600_000, 1),
    "B": (Kind.SIZE, 1, 1),
    "kB": (Kind.SIZE, 10**3, 1),
    "MB": (Kind.SIZE, 10**6, 1),
    "GB": (Kind.SIZE, 10**9, 1),
    "TB": (Kind.SIZE, 10**12, 1),
    "KiB": (Kind.SIZE, 2**10, 1),
    "MiB": (Kind.SIZE, 2**20, 1),
    "GiB": (Kind.SIZE, 2**30, 1),
    "TiB": (Kind.SIZE, 2**40, 1),
}
#: Kinds that can be compared have the same dimension.
_DIMENSIONS = {
    Kind.NUMBER: "number",
    Kind.SHARE: "number",
    Kind.MS: "time",
    Kind.S: "time",
    Kind.RATE: "rate",
    Kind.SIZE: "size",
}


def comparable(figure: Kind, limit: Kind) -> bool:
    """Return whether a figure of one kind can be more or less than a limit of another."""
    dimension = _DIMENSIONS.get(figure)
    return dimension is not None and (limit is Kind.BARE or _DIMENSIONS.get(limit) == dimension)


# -- Names of figures and fields; some have two, one in the report and one in the list of runs ----

#: The report's names by the list's.
SYNONYMS: dict[str, str] = {
    "verdict": "bottleneck",
    "fault": "bottleneck.fault",
    "cause": "bottleneck.cause",
    "ranks": "size",
    "steps": "steps.total",
    "step_ms": "step_ms.mean",
    **{part: f"{part}.share" for part in ENTRIES},
}
_OTHER_NAME = SYNONYMS | {report: listed for listed, report in SYNONYMS.items()}


def find(table: Mapping[str, T], name: str) -> T | None:
    """Find the entry of a name or its synonym; None if there is neither."""
    return table.get(name, table.get(_OTHER_NAME.get(name, "")))


def nearest(written: str, names: Iterable[str]) -> str:
    """Return the closest known name; empty if none is close.

    It starts with the given text, or it or its first part has a similar spelling.
    """
    names = list(names)
    near = [name for name in names if name.startswith(f"{written}.")]
    near = near or get_close_matches(written, [*names, *_OTHER_NAME], n=1)
    if near:
        return near[0]
    firsts = [name.partition(".")[0] for name in names]
    first = get_close_matches(written.partition(".")[0], firsts, n=1)
    return next((name for name in names if name.partition(".")[0] in first), "")


def never(name: str, word: str, choices: Sequence[str]) -> str:
    """Return an error about a word that a figure or field never is, with the closest one."""
    near = get_close_matches(word, choices, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else f": it is one of {', '.join(choices)}"
    return f"{name} is never {word!r}{hint}"


def fold(value: object) -> str:
    """Return a text in a form that ignores case."""
    return "" if value is None else str(value).casefold()


# -- syntax tree -----------------------------------------------------------------------------------


class Node:
    """A condition."""

    #: Nodes that bind less tightly than their parent are printed in parentheses.
    binding: ClassVar[int] = 3


def _within(node: Node, binding: int) -> str:
    return str(node) if node.binding >= binding else f"({node})"


@dataclass(frozen=True)
class Comparison(Node):
    """A comparison of a figure or a field with a limit.

    ``sign`` is one of ``COMPARED`` or ``~``, or empty for a figure that is a condition by itself.
    """

    left: Any
    sign: str
    right: Any

    def __str__(self) -> str:
        return f"{self.left}{self.sign}{self.right}"


@dataclass(frozen=True)
class _Joined(Node):
    left: Node
    right: Node

    word: ClassVar[str] = ""

    def __str__(self) -> str:
        left = _within(self.left, self.binding)
        return f"{left} {self.word} {_within(self.right, self.binding + 1)}"


class Or(_Joined):
    word = "or"
    binding = 0


class And(_Joined):
    word = "and"
    binding = 1


@dataclass(frozen=True)
class Not(Node):
    condition: Node

    binding = 2

    def __str__(self) -> str:
        return f"not {_within(self.condition, self.binding)}"


@dataclass(frozen=True)
class Surely(Node):
    """It holds if its condition holds for the whole of every interval in it."""

    condition: Node

    def __str__(self) -> str:
        return f"surely({self.condition})"


def leaves_of(node: Node) -> Iterator[Any]:
    """Return the comparisons and words of a tree."""
    if isinstance(node, (Not, Surely)):
        yield from leaves_of(node.condition)
    elif isinstance(node, (And, Or)):
        yield from leaves_of(node.left)
        yield from leaves_of(node.right)
    else:
        yield node


# -- parser ----------------------------------------------------------------------------------------

_WORD = re.compile(r"\s*([()]|(?:and|or|not|surely)(?=[\s()]|$))")
#: A sign of a comparison, as users write it, and a number without its unit.
SIGN = r"(?P<sign>!=|>=|<=|==|=|<|>|~)"
NUMBER = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?"


def sign_of(match: re.Match[str]) -> str:
    """Return the matched sign; ``=`` is ``==``."""
    return "==" if match["sign"] == "=" else match["sign"]


def wrong(column: int, what: str) -> ValueError:
    """Return an error with its column."""
    return ValueError(f"column {column}: {plain(what)}")


class Parser(ABC):
    """Parses one text, by hand, so that errors use the user's words."""

    #: Whether blanks between conditions mean ``and``.
    blanks_join: ClassVar[bool] = False
    #: Whether the text may end within parentheses.
    is_unfinished: ClassVar[bool] = False
    #: Whether figures have intervals, about which ``surely`` asks.
    has_intervals: ClassVar[bool] = False

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._words = 0

    @abstractmethod
    def _comparison(self) -> Node:
        """Parse a comparison."""

    def _condition(self) -> Node:
        left = self._conditions_with_and()
        while self._take("or"):
            left = Or(left, self._conditions_with_and())
        return left

    def _conditions_with_and(self) -> Node:
        left = self._part()
        while self._take("and") or self._joins_by_blank():
            left = And(left, self._part())
        return left

    def _joins_by_blank(self) -> bool:
        return self.blanks_join and not self._ends and self._word != "or"

    def _part(self) -> Node:
        if column := self._take("("):
            return self._group(column)
        if self.has_intervals and self._take("surely"):
            column = self._take("(")
            if not column:
                raise wrong(self._column, "( is missing after surely")
            return Surely(self._group(column))
        if column := self._take("not"):
            return Not(self._deeper(column, self._part))
        return self._comparison()

    def _group(self, column: int) -> Node:
        """Parse the rest of a group after its opening parenthesis."""
        node = self._deeper(column, self._condition)
        if not self._take(")") and not self.is_unfinished:
            raise wrong(self._column, f"the ( of column {column} is not closed")
        return node

    def _deeper(self, column: int, parse: Callable[[], Node]) -> Node:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise wrong(column, f"more than {_DEEPEST} levels within each other")
        node = parse()
        self._depth -= 1
        return node

    @property
    def _column(self) -> int:
        """The column of the next character that is not blank, from 1."""
        return len(self._text) - len(self._text[self._at :].lstrip()) + 1

    @property
    def _word(self) -> str:
        """The next parenthesis or word of the language; empty if something else is next."""
        match = _WORD.match(self._text, self._at)
        return "" if match is None else match[1]

    @property
    def _ends(self) -> bool:
        """Whether nothing is left in this group."""
        return self._column > len(self._text) or (self._depth > 0 and self._word == ")")

    def _take(self, word: str) -> int:
        """Consume the next word if it is this one; return its column, or 0."""
        if self._word != word:
            return 0
        column = self._column
        self._pass(column - 1 + len(word))
        return column

    def _pass(self, end: int) -> None:
        """Consume the text up to here."""
        self._words += 1
        if self._words > _MOST_WORDS:
            raise wrong(self._column, f"a condition has at most {_MOST_WORDS} words")
        self._at = end


# -- Logic in which a condition may be undecided --------------------------------------------------


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
#: Comparisons with exchanged sides.
TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
ORDERED = ("<", "<=", ">", ">=")
#: Evaluations without sentences, for lists.
YES = Evaluation(State.YES)
NO = Evaluation(State.NO)
_INVERSE = {State.YES: State.NO, State.NO: State.YES}


def evaluate(
    node: Node, compare: Callable[[Any, bool], Evaluation], surely: bool = False
) -> Evaluation:
    """Return whether a condition holds.

    ``compare`` decides single comparisons; its flag is True within ``surely``.
    """
    if isinstance(node, Not):
        inner = evaluate(node.condition, compare, surely)
        return inner._replace(state=_INVERSE.get(inner.state, inner.state))
    if isinstance(node, Surely):
        inner = evaluate(node.condition, compare, True)
        # Nested ones mean the same.
        is_no = inner.state is State.UNSURE and not surely
        return inner._replace(state=State.NO) if is_no else inner
    if isinstance(node, (And, Or)):
        is_and = isinstance(node, And)
        left = evaluate(node.left, compare, surely)
        if left is (NO if is_and else YES):
            return left
        right = evaluate(node.right, compare, surely)
        # Only the decisive parts explain the result.
        if left.state is right.state:
            return Evaluation(left.state, left.why + right.why)
        return left if (left.state < right.state) == is_and else right
    return compare(node, surely)
