"""Rows of step logs as tables: cells of CSV, steps, and intervals between them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from stallscope.arrays import arrow
from stallscope.errors import UnreadableError
from stallscope.run import Log

from ...base import INTERVAL_ROWS, STEP_ROWS, cast

_ZERO, _NS_PER_US = arrow.array([0, 1000], pa.int64())
_WORTH_THREADS = 4 * 2**20
_REQUIRED = ("kind", "step", "begin_us", "end_us")
_NUMBERS = (
    "step",
    "epoch",
    "begin_us",
    "data_us",
    "ready_us",
    "reduced_us",
    "end_us",
    "micro",
    "samples",
    "elements",
)
_KIND = re.compile(rb"[a-z][a-z_-]{0,31}")
_NUMBER = re.compile(rb"-?\d{1,18}")
_BLANK = re.compile(rb"\s*\Z")
# Rows per thread in longer logs: memory of that size is soon reused.
_ROWS_AT_ONCE = 2**20
# The largest plausible values: 142 years of microseconds, 2^31 epochs.
_MOST = 2**52
_FURTHEST = dict.fromkeys(_NUMBERS, _MOST) | {"epoch": 2**31 - 1, "micro": 2**31 - 1}


def rows_in(path: str, data: bytes, table: list[slice]) -> tuple[pa.Table, int]:
    """Parse the rows of a step log, and count the lines that are not rows.

    Args:
        path: the file.
        data: its content.
        table: the places of the line of column names and of all rows.

    Raises:
        UnreadableError: if a required column is missing, or two have one name.
    """
    start, stop = (table[0].start, table[0].stop) if table else (0, 0)
    at = data.find(b"\n", start, stop) + 1 or stop
    columns = data[start:at].decode("utf-8", "replace").strip().split(",")
    bodies = _bodies(data, [slice(at, stop), *table[1:]])
    missing = [name for name in _REQUIRED if name not in columns]
    if missing and (bodies or data[start:at].strip()):
        raise UnreadableError(f"{path}: the step log has no column {', '.join(missing)}")
    if len(set(columns)) < len(columns):
        raise UnreadableError(f"{path}: the step log has two columns of one name")
    if not bodies:
        return _typed(_empty(columns)), 0
    try:
        # Arrow's handler of bad rows requires UTF-8, and a step log is ASCII.
        if all(np.frombuffer(body, np.int8).min() >= 0 for body in bodies):
            read = [_read_csv(columns, pa.py_buffer(body)) for body in bodies]
            return pa.concat_tables([rows for rows, _ in read]), sum(bad for _, bad in read)
    except pa.ArrowInvalid:
        # A cell is not a number, which is rare enough to check every line.
        pass
    lines = [line for body in bodies for line in bytes(body).splitlines() if line]
    good = [line for line in lines if _well_formed(columns, line)]
    bad = len(lines) - len(good)
    if not good:
        return _typed(_empty(columns)), bad
    rows, more = _read_csv(columns, pa.py_buffer(b"\n".join(good) + b"\n"))
    return rows, bad + more


def _bodies(data: bytes, places: list[slice]) -> list[memoryview]:
    """Return the text at these places, without blank text.

    The longest piece of a long text is not copied.
    """
    whole = memoryview(data)
    split = [places]
    if sum(place.stop - place.start for place in places) >= _WORTH_THREADS:
        longest = max(range(len(places)), key=lambda at: places[at].stop - places[at].start)
        split = [places[:longest], places[longest : longest + 1], places[longest + 1 :]]
    bodies = [
        whole[some[0]] if len(some) == 1 else memoryview(b"".join(whole[place] for place in some))
        for some in split
    ]
    return [body for body in bodies if _BLANK.match(body) is None]


def _read_csv(columns: list[str], body: pa.Buffer) -> tuple[pa.Table, int]:
    table, skipped = read_cells(
        body,
        columns,
        {name: pa.int64() for name in _NUMBERS} | {"kind": pa.string()},
        # Small logs are many, and gain nothing from threads.
        use_threads=len(body) >= _WORTH_THREADS,
        include_columns=[name for name in ("kind", *_NUMBERS) if name in columns],
        # The text is ASCII.
        check_utf8=False,
    )
    typed = _typed(table)
    return typed, skipped + table.num_rows - typed.num_rows


def _well_formed(columns: list[str], line: bytes) -> bool:
    cells = line.split(b",")
    if len(cells) != len(columns):
        return False
    named = dict(zip(columns, cells, strict=True))
    return _KIND.fullmatch(named["kind"]) is not None and all(
        cell == b"" or _NUMBER.fullmatch(cell) is not None
        for name, cell in named.items()
        if name in _NUMBERS
    )


def _empty(columns: list[str]) -> pa.Table:
    return pa.table({name: pa.nulls(0, pa.int64()) for name in columns if name in _NUMBERS})


def _typed(table: pa.Table) -> pa.Table:
    """Return the plausible rows of a table with all known columns; those that the log lacks are null."""
    nulls = pa.nulls(table.num_rows, pa.int64())
    names = table.column_names
    kind = table["kind"] if "kind" in names else pa.nulls(table.num_rows, pa.string())
    full = pa.table(
        {"kind": kind} | {name: table[name] if name in names else nulls for name in _NUMBERS}
    )
    for name in _REQUIRED:
        if full[name].null_count:
            full = full.filter(pc.is_valid(full[name]))
    for name, furthest in _FURTHEST.items():
        if not _all_within(full[name], furthest):
            low, high = (arrow.scalar(value, pa.int64()) for value in (-furthest, furthest))
            near = pc.and_(pc.less_equal(full[name], high), pc.greater(full[name], low))
            full = full.filter(pc.or_kleene(pc.is_null(full[name]), near))
    return full


def _all_within(column: pa.ChunkedArray, furthest: int) -> bool:
    """Whether no value is further from zero; undefined values at nulls may make it false."""
    for chunk in column.chunks:
        buffer = chunk.buffers()[1]
        if buffer is not None and len(chunk) > chunk.null_count:
            values = np.frombuffer(buffer, np.int64, len(chunk), chunk.offset * 8)
            if values.max() > furthest or values.min() < -furthest:
                return False
    return True


def split_rows(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Split rows into those of steps and the few others."""
    is_step = arrow.equal(rows["kind"], "step")
    if pc.all(is_step).as_py() is True:
        return rows, rows.slice(0, 0)
    return rows.filter(is_step), rows.filter(pc.invert(is_step))


def steps_of(log: Log, rows: pa.Table) -> tuple[pa.Table, int]:
    """Make steps of rows, and count the timestamps outside of their steps."""
    if rows.num_rows <= _ROWS_AT_ONCE:
        return _steps_among(log, rows)
    starts = range(0, rows.num_rows, _ROWS_AT_ONCE)
    with ThreadPoolExecutor(min(pa.cpu_count(), len(starts))) as pool:
        pieces = [rows.slice(start, _ROWS_AT_ONCE) for start in starts]
        read = [*pool.map(partial(_steps_among, log), pieces)]
    return pa.concat_tables([steps for steps, _ in read]), sum(outside for _, outside in read)


def _steps_among(log: Log, rows: pa.Table) -> tuple[pa.Table, int]:
    rows, outside = _only_inside(rows.select(_NUMBERS))
    begin = _nanoseconds(rows["begin_us"], log.anchor)
    columns = {
        name: _nanoseconds(rows[f"{name}_us"], begin)
        for name in ("data", "ready", "reduced", "end")
    }
    columns |= {"begin": begin, "micro": arrow.filled(rows["micro"], 1)}
    columns["elements"] = _elements(log, rows)
    return _table(log, rows, columns, STEP_ROWS), outside


def _elements(log: Log, rows: pa.Table) -> arrow.Column:
    """Return the elements of each row; the recorder leaves out those that the samples tell."""
    usual = log.facts.get("sample_elements")
    written = rows["elements"]
    if written.null_count < rows.num_rows and type(usual) is int and 0 < usual < _MOST:
        usually = pc.multiply(rows["samples"], arrow.scalar(usual, pa.int64()))
        written = pc.coalesce(written, usually)
    # Unknown ones are negative.
    if written.null_count == rows.num_rows or not pc.any(pc.less(written, _ZERO)).as_py():
        return written
    return pc.if_else(pc.less(written, _ZERO), pa.NA, written)


def _table(
    log: Log, rows: pa.Table, columns: dict[str, pa.ChunkedArray], schema: pa.Schema
) -> pa.Table:
    """Make a table of these columns; the rows have the others."""
    for name in ("generation", "rank"):
        columns[name] = arrow.array(np.full(rows.num_rows, getattr(log, name), np.int32))
    selected = (columns[name] if name in columns else rows[name] for name in schema.names)
    whole = [cast(column, kind) for column, kind in zip(selected, schema.types, strict=True)]
    return pa.table(whole, schema=schema)


def _only_inside(rows: pa.Table) -> tuple[pa.Table, int]:
    """Drop timestamps before their step begins and data after it ends, and count them.

    A device may finish its work after the host's part of the step.
    """
    count = 0
    for name in ("data_us", "ready_us", "reduced_us"):
        times = rows[name]
        if not times.null_count and _are_inside(
            times, rows["end_us"] if name == "data_us" else None
        ):
            continue  # as in nearly all logs
        outside = pc.less(times, _ZERO)
        if name == "data_us":
            outside = pc.or_(outside, pc.greater(times, rows["end_us"]))
        if pc.any(outside).as_py():
            count += pc.sum(outside).as_py()
            at = rows.column_names.index(name)
            rows = rows.set_column(at, name, pc.if_else(outside, pa.NA, times))
    return rows, count


def _are_inside(times: pa.ChunkedArray, end: pa.ChunkedArray | None) -> bool:
    """Whether all times lie between the begin of their step and its end, if that is given."""
    values = arrow.numbers(times)
    return bool((values >= 0).all() and (end is None or (values <= arrow.numbers(end)).all()))


def intervals_of(log: Log, rows: pa.Table) -> pa.Table:
    """Make intervals of rows that are not steps."""
    if not rows.num_rows:
        return arrow.empty_table(INTERVAL_ROWS)
    begin = _nanoseconds(rows["begin_us"], log.anchor)
    columns = {
        name: pc.multiply(rows[f"{name}_us"], _NS_PER_US) for name in ("data", "ready", "reduced")
    }
    columns |= {"begin": begin, "end": _nanoseconds(rows["end_us"], begin), "steps": rows["micro"]}
    return _table(log, rows, columns, INTERVAL_ROWS)


def _nanoseconds(microseconds: pa.ChunkedArray, since: arrow.Column | int) -> arrow.Column:
    if not microseconds.null_count:
        start = since if isinstance(since, int) else arrow.numbers(since)
        return arrow.array(arrow.numbers(microseconds) * 1000 + start)
    start = arrow.scalar(since, pa.int64()) if isinstance(since, int) else since
    return pc.add(pc.multiply(microseconds, _NS_PER_US), start)


# -- Read lines of numbers as CSV, without lines that have too few or too many cells --------------


def read_cells(
    text: bytes | pa.Buffer,
    columns: Sequence[str],
    types: Mapping[str, pa.DataType],
    *,
    use_threads: bool = False,
    **conversion: Any,
) -> tuple[pa.Table, int]:
    """Read the cells of lines, null where one is empty, and count the lines that were skipped.

    Args:
        text: the lines, in UTF-8, without quotes.
        columns: the names of all columns.
        types: the types of the columns.
        use_threads: whether the text is long enough for several threads.
        conversion: further options of ``pyarrow.csv.ConvertOptions``.

    Raises:
        pyarrow.ArrowInvalid: if a cell is not of its column's type.
    """
    skipped = 0

    def skip(_row: pa.csv.InvalidRow) -> str:
        nonlocal skipped
        skipped += 1
        return "skip"

    table = pa.csv.read_csv(
        pa.BufferReader(text),
        read_options=pa.csv.ReadOptions(column_names=list(columns), use_threads=use_threads),
        parse_options=pa.csv.ParseOptions(invalid_row_handler=skip, quote_char=False),
        convert_options=pa.csv.ConvertOptions(
            column_types=dict(types), null_values=[""], **conversion
        ),
    )
    return table, skipped
