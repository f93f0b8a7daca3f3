"""Convert entries to rows of the table and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import lru_cache
from operator import itemgetter
from typing import Any

from .entry import SHARES, AnalysisSummary, Entry

#: Changes with the columns, and with the definition of a job.
SCHEMA_VERSION = 5

#: Columns with their types. ``where.py`` has the fields of filters.
COLUMNS = {
    "folder": "TEXT PRIMARY KEY",
    "id": "TEXT NOT NULL",
    "name": "TEXT NOT NULL",
    "source": "TEXT NOT NULL",
    "framework": "TEXT",
    "model": "TEXT",
    "ranks": "INTEGER NOT NULL",
    "hosts": "INTEGER NOT NULL",
    "host": "TEXT NOT NULL",
    "batch_size": "INTEGER",
    "synthetic": "INTEGER NOT NULL",
    "status": "TEXT NOT NULL",
    "started_at": "TEXT",
    "collected_at": "TEXT",
    "bytes": "INTEGER NOT NULL",
    "facts": "TEXT NOT NULL",
    "job": "TEXT NOT NULL",
    "steps": "INTEGER",
    "epochs": "INTEGER",
    "samples_per_second": "REAL",
    "step_ms": "REAL",
    "verdict": "TEXT",
    "cause": "TEXT",
    "fault": "INTEGER",
    "fault_as_baseline": "INTEGER",
    "goodput": "REAL",
    "named_ranks": "TEXT NOT NULL",
    "named_hosts": "TEXT NOT NULL",
    **dict.fromkeys(SHARES, "REAL"),
    "manifest": "TEXT NOT NULL",
}

# Unquoted, because SQLite takes an unknown quoted name for a string.
SELECT_LIST = ", ".join(COLUMNS)

SCHEMA = (
    "DROP TABLE IF EXISTS runs",
    f"CREATE TABLE runs ({', '.join(f'{name} {kind}' for name, kind in COLUMNS.items())})",
    "CREATE INDEX runs_by_id ON runs (id)",
    "CREATE INDEX runs_by_job ON runs (job, synthetic, ranks)",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)


def row_of(entry: Entry) -> tuple[Any, ...]:
    known = {**vars(entry), **vars(entry.summary), **entry.summary.shares}
    known |= {"hosts": len(entry.hosts), "host": entry.hosts}
    for name in ("host", "facts", "named_ranks", "named_hosts"):
        # Filters search host names; facts may have characters that cannot be encoded.
        known[name] = json.dumps(known[name], ensure_ascii=name == "facts")
    return tuple(map(known.get, COLUMNS))


def entry_of(row: Sequence[Any]) -> Entry:
    """Return the entry of a row.

    Raises:
        ValueError, TypeError: if the row is malformed.
    """
    known = list(row)
    for at, read in _READ:
        known[at] = read(known[at])
    shares = zip(SHARES, _shares_of(known), strict=True)
    known.append({name: value for name, value in shares if value is not None})
    known.append(AnalysisSummary(*_summary_of(known)))
    return Entry(*_entry_of(known))


def _bool(value: int | None) -> bool | None:
    return None if value is None else bool(value)


# Runs of one job on the same hosts share these texts, so cache their parsed values.
@lru_cache(4096)
def _facts(text: str) -> dict[str, Any]:
    return dict(json.loads(text))


@lru_cache(4096)
def _items(text: str) -> tuple[Any, ...]:
    return tuple(json.loads(text))


_PLACES = {name: at for at, name in enumerate([*COLUMNS, "shares", "summary"])}
_PLACES["hosts"] = _PLACES["host"]  # the names, not their number
_READ: tuple[tuple[int, Callable[[Any], Any]], ...] = (
    *((_PLACES[name], _bool) for name in ("synthetic", "fault", "fault_as_baseline")),
    *((_PLACES[name], _items) for name in ("host", "named_ranks", "named_hosts")),
    (_PLACES["facts"], _facts),
)
_entry_of = itemgetter(*(_PLACES[field.name] for field in fields(Entry)))
_summary_of = itemgetter(*(_PLACES[field.name] for field in fields(AnalysisSummary)))
_shares_of = itemgetter(*(_PLACES[name] for name in SHARES))
