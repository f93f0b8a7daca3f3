"""What people type to find runs: words, and conditions as ``stallscope runs --where`` takes them."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from stallscope.catalogue import Entry, parse_where
from stallscope.catalogue.where import FIELDS, Condition, fold
from stallscope.errors import UsageError

_CONDITION = re.compile(
    r"""(?<!\S)(?P<field>\w+)\s*(?:!=|>=|<=|=|<|>|~)\s*(?P<value>"[^"]*"|'[^']*'|[^\s"'<>=!~]\S*)?"""
)
_WORD = re.compile(r""""([^"]+)"|'([^']+)'|(\S+)""")
_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
#: Fields of the summary, which a run has once it was analysed.
_FOUND = ("steps", "epochs", "samples_per_second", "step_ms", "verdict", "cause", "fault")


@dataclass(frozen=True)
class Search:
    """Words that are all to be found in a run's own texts, and conditions that all are to hold."""

    words: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()

    def finds(self, entry: Entry, text: str) -> bool:
        """Whether it finds a run; ``text`` is what its words are looked for in, folded."""
        return all(word in text for word in self.words) and all(
            _holds(condition, entry) for condition in self.conditions
        )


def parse_search(text: str) -> Search:
    """
    Raises:
        UsageError: if a condition cannot be read.
    """
    conditions: list[Condition] = []

    def taken(match: re.Match[str]) -> str:
        if match["field"] not in FIELDS:
            return match[0]  # lr=0.1 is a part of many runs' names
        # A condition that is still being typed is none yet.
        if match["value"]:
            conditions.extend(_parsed(match[0]))
        return " "

    rest = _CONDITION.sub(taken, text)
    words = (fold(next(filter(None, groups))) for groups in _WORD.findall(rest))
    return Search(tuple(words), tuple(conditions))


def _parsed(text: str) -> Sequence[Condition]:
    try:
        return parse_where(text)
    except UsageError as error:
        raise UsageError(str(error).removeprefix("--where: ")) from None


def _holds(condition: Condition, entry: Entry) -> bool:
    """Like the catalogue's statement: unknown values equal nothing."""
    value = _value(condition.field, entry)
    if condition.operator == "~":
        return fold(condition.value) in fold(value)
    if condition.operator == "!=":
        return bool(value != condition.value)
    return value is not None and _COMPARED[condition.operator](value, condition.value)


def _value(field: str, entry: Entry) -> Any:
    if field == "host":
        return " ".join(entry.hosts)
    if field == "hosts":
        return len(entry.hosts)
    if field == "ranks":
        return entry.ranks or None
    if field == "age":
        return began(entry)
    if field in _FOUND:
        return getattr(entry.summary, field)
    return entry.summary.shares.get(field) if not hasattr(entry, field) else getattr(entry, field)


def began(entry: Entry) -> str | None:
    """When a run began, in UTC; a run that does not say so is as old as its collection."""
    return entry.started_at or entry.collected_at
