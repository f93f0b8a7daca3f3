"""Convert entries to rows of the table and back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from .entry import SHARES, Entry, Summary

#: Changes with the columns, and with the definition of a job.
SCHEMA_VERSION = 3

#: Columns with their types, in the order of ``row_of``. ``where.py`` has the fields of filters.
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
    summary = entry.summary
    return (
        entry.folder,
        entry.id,
        entry.name,
        entry.source,
        entry.framework,
        entry.model,
        entry.ranks,
        len(entry.hosts),
        json.dumps(entry.hosts, ensure_ascii=False),
        entry.batch_size,
        entry.synthetic,
        entry.status,
        entry.started_at,
        entry.collected_at,
        entry.bytes,
        json.dumps(entry.facts),
        entry.job,
        summary.steps,
        summary.epochs,
        summary.samples_per_second,
        summary.step_ms,
        summary.verdict,
        summary.cause,
        summary.fault,
        json.dumps(summary.named_ranks),
        json.dumps(summary.named_hosts, ensure_ascii=False),
        *(summary.shares.get(name) for name in SHARES),
        entry.manifest,
    )


def entry_of(row: Sequence[Any]) -> Entry:
    """Return the entry of a row.

    Raises:
        ValueError, TypeError: if the row is malformed.
    """
    (folder, run_id, name, source, framework, model, ranks, _, hosts, batch_size, synthetic) = row[
        :11
    ]
    (status, started_at, collected_at, size, facts, job, steps, epochs, throughput) = row[11:20]
    (step_ms, verdict, cause, fault, named_ranks, named_hosts, *shares, manifest) = row[20:]
    known = {share: value for share, value in zip(SHARES, shares, strict=True) if value is not None}
    return Entry(
        folder=folder,
        id=run_id,
        name=name,
        source=source,
        framework=framework,
        model=model,
        ranks=ranks,
        hosts=_items(hosts),
        batch_size=batch_size,
        synthetic=bool(synthetic),
        status=status,
        started_at=started_at,
        collected_at=collected_at,
        bytes=size,
        facts=_facts(facts),
        job=job,
        summary=Summary(
            steps=steps,
            epochs=epochs,
            samples_per_second=throughput,
            step_ms=step_ms,
            verdict=verdict,
            cause=cause,
            fault=None if fault is None else bool(fault),
            named_ranks=_items(named_ranks),
            named_hosts=_items(named_hosts),
            shares=known,
        ),
        manifest=manifest,
    )


# Runs of one job on the same hosts share these texts, so cache their parsed values.
@lru_cache(4096)
def _facts(text: str) -> dict[str, Any]:
    return dict(json.loads(text))


@lru_cache(4096)
def _items(text: str) -> tuple[Any, ...]:
    return tuple(json.loads(text))
