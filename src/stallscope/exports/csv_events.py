"""CSV: a row per step and rank, or per event from other logs (RFC 4180).

| column | is |
| --- | --- |
| ``at_ns`` | its time on the run's time line; empty if no log relates the event, or the run, to UTC |
| ``uncertainty_ns`` | the longest delay from the event to its timestamp |
| ``waited_ns`` | its least duration by then; empty for a moment |
| ``utc``, ``local`` | its timestamp: in UTC, or in an unknown time zone |
| ``kind``, ``what`` | its code, and its description |
| ``ranks``, ``hosts`` | its ranks and hosts, separated by blanks; empty if none is known |
| ``file`` | the file that contains it |
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from stallscope.arrays.blocks import NULL
from stallscope.reports.formats.machine_formats import cell
from stallscope.run import Event

from .exported_run import ExportedRun, Selection
from .table import SCHEMA, tables

COLUMNS = (
    *("run_id", "at_ns", "uncertainty_ns", "waited_ns", "utc", "local"),
    *("kind", "what", "ranks", "hosts", "file"),
)
Row = tuple[str | int | None, ...]


def write_csv_events(exported: ExportedRun, file: BinaryIO) -> None:
    """Write events in the order of time, those without a time last."""
    span = _span(exported)
    events = [(_at(exported, event), event) for event in exported.run.events]
    chosen = [pair for pair in events if _is_chosen(exported.selection, span, *pair)]
    chosen.sort(key=lambda pair: (pair[0] is None, pair[0] or 0))
    write_csv(file, COLUMNS, (_row(exported, at, event) for at, event in chosen))


def _at(exported: ExportedRun, event: Event) -> int | None:
    known = event.wall_ns is not None and exported.wall_ns is not None
    return (event.wall_ns or 0) - (exported.wall_ns or 0) if known else None


def _span(exported: ExportedRun) -> tuple[int, int] | None:
    """Return the time span of the chosen steps on the time line; None if all steps are chosen."""
    selection = exported.selection
    if selection.first is None and selection.last is None:
        return None
    known = [np.zeros(0, np.int64)]
    for generation in exported.generations:
        chosen = selection.steps(generation.aligned.steps)
        for stamps in (generation.aligned.begin, generation.aligned.end):
            times = np.where(stamps[chosen] == NULL, NULL, stamps[chosen] + generation.shift)
            known.append(times[times != NULL])
    moments = np.concatenate(known)
    return int(moments.min()), int(moments.max())


def _is_chosen(
    selection: Selection, span: tuple[int, int] | None, at: int | None, event: Event
) -> bool:
    if event.ranks and not len(selection.of(event.ranks)):
        return False
    return span is None or (at is not None and span[0] <= at <= span[1])


def _row(exported: ExportedRun, at: int | None, event: Event) -> Row:
    local = None if event.wall_ns is not None else event.local_ns
    return (
        cell(exported.run.id),
        at,
        None if event.wall_ns is None and local is None else event.uncertainty_ns,
        event.waited_ns or None,
        _iso(event.wall_ns, "Z"),
        _iso(local, ""),
        cell(event.kind),
        cell(event.what),
        " ".join(map(str, event.ranks)),
        cell(" ".join(event.hosts)),
        cell(event.where),
    )


def _iso(ns: int | None, zone: str) -> str | None:
    """Write a time in ISO format, to the microsecond."""
    if ns is None:
        return None
    return f"{datetime.fromtimestamp(ns // 1000 / 1e6, UTC):%Y-%m-%dT%H:%M:%S.%f}{zone}"


# -- CSV of the table of steps and ranks, for spreadsheets and other tools (RFC 4180) -------------


def write_csv_table(exported: ExportedRun, file: BinaryIO) -> None:
    """Write the table; cells without a measurement are empty, and text from logs is never a formula."""
    of_ranks = (zip(*map(_cells, table.columns), strict=True) for table in tables(exported))
    write_csv(file, SCHEMA.names, (row for rows in of_ranks for row in rows))


def write_csv(file: BinaryIO, columns: Sequence[str], rows: Iterable[Iterable[Any]]) -> None:
    """Write a header and rows as CSV; leave the file open."""
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(columns)
    writer.writerows(rows)
    text.detach()


def _cells(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_string(column.type):
        return [cell(text) for text in column.to_pylist()]
    if pa.types.is_boolean(column.type):
        # Lower case, which every reader of CSV parses as a boolean.
        return [None if value is None else str(value).lower() for value in column.to_pylist()]
    return list(column.to_pylist())
