"""The fields of the list of runs, as filters take them: ``model=resnet50 ranks>=8 verdict=input``.

Columns come from a table, and values are never pasted into a statement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from operator import attrgetter
from typing import Any

from rich.filesize import decimal

from stallscope.conditions.filters import (
    Field,
    FieldKind,
    Word,
    amount,
    holds,
    parse_filter,
    unknown_field,
)
from stallscope.conditions.language import (
    NO,
    ORDERED,
    YES,
    And,
    Comparison,
    Evaluation,
    Kind,
    Node,
    Not,
    Or,
    State,
    evaluate,
    find,
    leaves_of,
)
from stallscope.errors import UsageError
from stallscope.formatting.numbers import amount as amount_of
from stallscope.formatting.numbers import percent, significant
from stallscope.formatting.plain import plain
from stallscope.words import VERDICT_CAUSES, VERDICTS

from . import entry as catalogue_entry
from .entry import SHARES, Entry

_UNKNOWN = Evaluation(State.UNKNOWN)
_BOOLS = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


@dataclass(frozen=True)
class Filter:
    """Conditions on runs and words to find in their texts; an empty filter finds all runs."""

    node: Node | None = None

    def finds(self, entry: Entry, text: str = "") -> bool:
        """Return whether the filter finds a run with this folded text."""
        return self._state(entry, text) is State.YES

    def waits_for_analysis(self, entry: Entry, text: str = "") -> bool:
        """Return whether the filter cannot judge a run that is not analysed yet."""
        return self._state(entry, text, is_analysed=False) is State.UNKNOWN

    def _state(self, entry: Entry, text: str, *, is_analysed: bool = True) -> State:
        def compare(leaf: Comparison | Word, _: bool) -> Evaluation:
            if isinstance(leaf, Word):
                # An analysis adds the verdict to the text.
                return YES if leaf.text in text else NO if is_analysed else _UNKNOWN
            if leaf.left.is_of_analysis and not is_analysed:
                return _UNKNOWN
            return YES if holds(leaf, leaf.left.read(entry)) else NO

        return State.YES if self.node is None else evaluate(self.node, compare).state

    def check_words(self, texts: Sequence[str]) -> None:
        """Check that words such as ``lr=0.1`` are in a folded text: they may be meant as conditions.

        Raises:
            UsageError: if there is neither such a text nor such a field.
        """
        leaves = () if self.node is None else leaves_of(self.node)
        for word in (leaf for leaf in leaves if isinstance(leaf, Word) and leaf.field_name):
            if not any(word.text in text for text in texts):
                raise UsageError(plain(unknown_field(word.field_name, FIELDS)))

    def clause(self) -> tuple[str, list[Any]]:
        """Return the WHERE clause for rows of the catalogue, and its values."""
        values: list[Any] = []
        return "" if self.node is None else f"WHERE {_sql(self.node, values)}", values


def _sql(node: Node, values: list[Any]) -> str:
    """Return the SQL of conditions, and add their values to ``values``."""
    if isinstance(node, Not):
        return f"NOT {_sql(node.condition, values)}"
    if isinstance(node, (And, Or)):
        left = _sql(node.left, values)
        return f"({left} {node.word} {_sql(node.right, values)})"
    assert isinstance(node, Comparison)
    values.append(node.right)
    column = node.left.column
    if node.sign == "~":
        return f"(instr(fold({column}), ?) > 0)"
    return f"({column} IS NOT ?)" if node.sign == "!=" else f"coalesce({column} {node.sign} ?, 0)"


def parse_where(text: str) -> Filter:
    """Return the filter of ``--where``.

    Raises:
        UsageError: if it cannot be read.
    """
    try:
        return Filter(parse_filter(text, FIELDS))
    except ValueError as error:
        raise UsageError(f"--where: {error}") from None


def parse_search(text: str) -> Filter:
    """Return the filter of a search: words and conditions; the last condition may be incomplete.

    Raises:
        UsageError: if a condition cannot be read.
    """
    try:
        return Filter(parse_filter(text, _SEARCHED, words=True))
    except ValueError as error:
        raise UsageError(str(error)) from None


def order_of(name: str, reverse: bool = False) -> str:
    """Return the ORDER BY clause: texts from A, numbers and times from the largest; unknown ones last.

    Raises:
        UsageError: if there is no such field.
    """
    field = find(FIELDS, name)
    if field is None:
        raise UsageError(f"--sort: {unknown_field(name, FIELDS)}")
    falls = not field.kind.is_text
    direction = "DESC" if falls != reverse else "ASC"
    return f"{field.column} IS NULL, {field.column} COLLATE NOCASE {direction}, folder"


def _text(text: str) -> str:
    return catalogue_entry.text(text) or ""


def _whole(text: str) -> int:
    value = catalogue_entry.whole(int(text.replace(",", "")))
    if value is None:
        raise ValueError("too large")
    return value


def _moment(text: str) -> str:
    moment = catalogue_entry.moment(text)
    if moment is None:
        raise ValueError("no time")
    return moment


def _age(text: str) -> str:
    """Return the start time of a run of this age."""
    began = datetime.now(UTC) - timedelta(milliseconds=amount(text, unit=Kind.MS, needs_unit=True))
    return catalogue_entry.moment(began) or ""


_IN_WORDS = "{field} can be =, != or, in words, ~"
_TEXT = FieldKind(_text, "a word, or words in quotes", ("==", "!=", "~"), _IN_WORDS)
_TEXTS = FieldKind(_text, _TEXT.example, ("~",), "a run may have many; use {field}~{value}")
_YES = FieldKind(
    lambda text: _BOOLS[text.lower()],
    "yes or no",
    ("==", "!="),
    _IN_WORDS,
    text=lambda value: "yes" if value else "no",
)
_WHOLE = FieldKind(_whole, "a whole number", text="{:,}".format)
_NUMBER = FieldKind(amount, "a number", text=significant)
_MS = FieldKind(
    partial(amount, unit=Kind.MS),
    "a number, or a time such as 30ms",
    text=lambda value: amount_of(value, "ms"),
)
_SHARE = FieldKind(partial(amount, unit=Kind.SHARE), "a share, such as 0.2 or 20%", text=percent)
_SIZE = FieldKind(
    partial(amount, unit=Kind.SIZE), "a size, such as 500MB", text=partial(decimal, precision=0)
)
_TIME = FieldKind(_moment, "a time, such as 2026-11-21 or 2026-11-21T18:00:00Z")
_AGE = FieldKind(
    _age,
    "a span, such as 7d (units: s, min, h, d, w)",
    ORDERED,
    "an age is compared by < or >",
    # A larger age is an earlier start.
    is_reversed=True,
)


def _one_of(*choices: str) -> FieldKind:
    return replace(_TEXT, choices=choices)


def _of_entry(kind: FieldKind, *names: str) -> dict[str, Field]:
    return {name: Field(kind, attrgetter(name), name) for name in names}


def _of_summary(kind: FieldKind, *names: str) -> dict[str, Field]:
    """Return the fields that only analysed runs have."""
    return {name: Field(kind, attrgetter(f"summary.{name}"), name, True) for name in names}


def _share(name: str) -> Field:
    return Field(_SHARE, lambda entry: entry.summary.shares.get(name), name, True)


#: The column has the names as JSON.
_HOSTS = "(SELECT group_concat(value, ' ') FROM json_each(host))"

FIELDS: Mapping[str, Field] = {
    **_of_entry(_TEXT, "id", "name", "folder", "source", "framework", "model"),
    "host": Field(_TEXTS, lambda entry: " ".join(entry.hosts), _HOSTS),
    **_of_entry(_one_of("completed", "open"), "status"),
    **_of_summary(_one_of(*VERDICTS), "verdict"),
    **_of_summary(_one_of(*VERDICT_CAUSES), "cause"),
    **_of_summary(_YES, "fault"),
    # 0 if the number is unknown.
    "ranks": Field(_WHOLE, lambda entry: entry.ranks or None, "nullif(ranks, 0)"),
    "hosts": Field(_WHOLE, lambda entry: len(entry.hosts), "hosts"),
    **_of_summary(_WHOLE, "steps", "epochs"),
    **_of_entry(_WHOLE, "batch_size"),
    **_of_entry(_YES, "synthetic"),
    **_of_summary(_NUMBER, "samples_per_second"),
    **_of_summary(_MS, "step_ms"),
    **_of_summary(_SHARE, "goodput"),
    **{name: _share(name) for name in SHARES},
    **_of_entry(_SIZE, "bytes"),
    **_of_entry(_TIME, "started_at", "collected_at"),
    "age": Field(_AGE, attrgetter("began"), "coalesce(started_at, collected_at)"),
}
#: The dashboard also lists runs of MLflow experiments, which have other states.
_SEARCHED: Mapping[str, Field] = {
    **FIELDS,
    **_of_entry(_one_of("completed", "open", "running", "failed"), "status"),
}
