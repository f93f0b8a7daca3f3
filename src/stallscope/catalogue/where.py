"""Filters as people type them: ``model=resnet50 ranks>=8 verdict=input``.

Fields and operators are looked up in tables, and values are only ever bound to a statement.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from stallscope.errors import UsageError

from . import values
from .entry import SHARES

_MOST_CONDITIONS = 50
_CONDITION = re.compile(
    r"""\s*(?P<field>\w+)\s*(?P<operator>!=|>=|<=|=|<|>|~)\s*"""
    r"""(?P<value>"[^"]*"|'[^']*'|[^\s"'<>=!~]\S*)(?=\s|$)"""
)
_SPANS = {"s": 1, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_SIZES = {"": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SIZES |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)")
_WORDS = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
# An age grows as the time at which a run began goes back; without one it is as old as its collection.
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_BEGAN = "coalesce(started_at, collected_at)"


@dataclass(frozen=True)
class Condition:
    """A field, how it is compared, and with what."""

    field: str
    operator: str
    value: str | int | float | bool

    @property
    def sql(self) -> str:
        """For a WHERE clause, with one parameter. What is not known is equal to nothing."""
        column = _column_of(self.field)
        if self.operator == "~":
            return f"instr(folded({column}), folded(?)) > 0"
        operator = "IS NOT" if self.operator == "!=" else self.operator
        return f"{column} {operator} ?"


def parse_where(text: str) -> list[Condition]:
    """The conditions of a filter, all of which are to hold.

    Raises:
        UsageError: if it cannot be read.
    """
    conditions: list[Condition] = []
    at = 0
    text = text.strip()
    while at < len(text):
        match = _CONDITION.match(text, at)
        if match is None:
            raise UsageError(
                f"--where: {text[at:].strip()!r} is not a condition: give field, operator and value, "
                "such as 'ranks>=8 verdict=input'"
            )
        conditions.append(_condition(*match.group("field", "operator", "value")))
        at = match.end()
    if len(conditions) > _MOST_CONDITIONS:
        raise UsageError(f"--where: more than {_MOST_CONDITIONS} conditions")
    return conditions


def order_of(field: str, reverse: bool = False) -> str:
    """The ORDER BY clause: texts from A, numbers and times from the largest; unknown ones last.

    Raises:
        UsageError: if there is no such field.
    """
    falls = _kind_of("--sort", field) is not _TEXT
    column = _column_of(field)
    direction = "DESC" if falls != reverse else "ASC"
    return f"{column} IS NULL, {column} COLLATE NOCASE {direction}, folder"


def _column_of(field: str) -> str:
    return _BEGAN if field == "age" else field


@dataclass(frozen=True)
class _Kind:
    """A kind of field: how its values are read, and what they look like."""

    read: Callable[[str], str | int | float | bool]
    example: str


def _whole(text: str) -> int:
    value = values.whole(int(text.replace(",", "")))
    if value is None:
        raise ValueError("too large")
    return value


def _number(text: str) -> float:
    value = values.number(float(text))
    if value is None:
        raise ValueError("not finite")
    return value


def _share(text: str) -> float:
    return _number(text[:-1]) / 100 if text.endswith("%") else _number(text)


def _size(text: str) -> int:
    return _whole(str(int(_amount(text, _SIZES))))


def _moment(text: str) -> str:
    moment = values.moment(text)
    if moment is None:
        raise ValueError("no time")
    return moment


def _age(text: str) -> str:
    """The time at which what is so old began."""
    began = datetime.now(UTC) - timedelta(seconds=_amount(text, _SPANS))
    return values.moment(began) or ""


def _amount(text: str, units: Mapping[str, int]) -> float:
    match = _AMOUNT.fullmatch(text)
    if match is None:
        raise ValueError("no amount")
    return float(match[1]) * units[match[2]]


_TEXT = _Kind(str, "a word, or words in quotes")
_WHOLE = _Kind(_whole, "a whole number")
_NUMBER = _Kind(_number, "a number")
_SHARE = _Kind(_share, "a share, such as 0.2 or 20%")
_SIZE = _Kind(_size, "a size, such as 500MB")
_YES = _Kind(lambda text: _WORDS[text.lower()], "yes or no")
_TIME = _Kind(_moment, "a time, such as 2026-11-21 or 2026-11-21T18:00:00Z")
_AGE = _Kind(_age, f"a span, such as 7d (units: {', '.join(_SPANS)})")

FIELDS: Mapping[str, _Kind] = {
    "id": _TEXT,
    "name": _TEXT,
    "folder": _TEXT,
    "source": _TEXT,
    "framework": _TEXT,
    "model": _TEXT,
    "host": _TEXT,
    "status": _TEXT,
    "verdict": _TEXT,
    "cause": _TEXT,
    "fault": _YES,
    "ranks": _WHOLE,
    "hosts": _WHOLE,
    "steps": _WHOLE,
    "epochs": _WHOLE,
    "batch_size": _WHOLE,
    "synthetic": _YES,
    "samples_per_second": _NUMBER,
    "step_ms": _NUMBER,
    **dict.fromkeys(SHARES, _SHARE),
    "bytes": _SIZE,
    "started_at": _TIME,
    "collected_at": _TIME,
    "age": _AGE,
}


def _kind_of(option: str, field: str) -> _Kind:
    if field not in FIELDS:
        raise UsageError(f"{option}: there is no field {field!r}; there are {', '.join(FIELDS)}")
    return FIELDS[field]


def _condition(field: str, operator: str, text: str) -> Condition:
    kind = _kind_of("--where", field)
    if text[0] in "\"'":
        text = text[1:-1]
    if operator == "~":
        if kind is not _TEXT:
            raise UsageError(f"--where: {field}~{text}: ~ looks into words, and {field} is none")
        return Condition(field, operator, values.text(text) or "")
    if field == "host":
        raise UsageError(f"--where: {field}{operator}{text}: a run may have many; use host~{text}")
    if kind in (_TEXT, _YES) and operator not in ("=", "!="):
        raise UsageError(f"--where: {field}{operator}{text}: {field} can be =, != or, in words, ~")
    try:
        value = kind.read(text)
    except (ValueError, KeyError, OverflowError):
        raise UsageError(
            f"--where: {field}{operator}{text}: {field} takes {kind.example}"
        ) from None
    if field == "age":
        if operator not in _TURNED:
            raise UsageError(f"--where: age{operator}{text}: an age is compared by < or >")
        return Condition(field, _TURNED[operator], value)
    return Condition(field, operator, value if kind is not _TEXT else values.text(value) or "")


def fold(value: Any) -> str:
    """For comparing text whatever its case."""
    return "" if value is None else str(value).casefold()


def clause_of(conditions: Sequence[Condition]) -> tuple[str, list[str | int | float | bool]]:
    """The WHERE clause and its parameters."""
    if not conditions:
        return "", []
    clauses = " AND ".join(condition.sql for condition in conditions)
    return f"WHERE {clauses}", [condition.value for condition in conditions]
