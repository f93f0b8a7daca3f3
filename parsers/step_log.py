"""Step logs, format 1, which Stallscope's own recorder writes (docs/step-log.md)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from stallscope.arrays import arrow
from stallscope.errors import UnknownVersionError, UnreadableError
from stallscope.run import Log, Problem

from .base import Contents, Parsed, Parser
from .machine_lines import MARK, machine_series
from .tables import INTERVAL_ROWS, STEP_ROWS, cast
from .world_size import MOST_RANKS

#: The start of the first line.
MAGIC = b"#stallscope "
# The quote would be escaped where a name contains such words.
_HEADER = re.compile(rb'#stallscope \d{1,9} \{"')
_LINE_END = ord("\n")
_KNOWN_VERSION = 1
_ZERO, _NS_PER_US = arrow.array([0, 1000], pa.int64())
_WORTH_THREADS = 4 * 2**20
# Rows per thread in longer logs: arrays of that size are soon reused from memory.
_ROWS_AT_ONCE = 2**20
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
)
_KIND = re.compile(rb"[a-z][a-z_-]{0,31}")
_NUMBER = re.compile(rb"-?\d{1,18}")
_BLANK = re.compile(rb"\s*\Z")
_VERSION = re.compile(rb"\d{1,9}")
# The largest plausible values: 142 years of microseconds, 2^31 epochs.
_FURTHEST = dict.fromkeys(_NUMBERS, 2**52) | {"epoch": 2**31 - 1, "micro": 2**31 - 1}


class StepLogParser(Parser):
    name: ClassVar[str] = "step-log"
    title: ClassVar[str] = "step logs of Stallscope's recorder"
    suffix: ClassVar[str] = ".steps.csv"

    def recognises(self, file_name: str, head: bytes) -> bool:
        return head.startswith(MAGIC)

    def parse(self, path: str, data: bytes) -> Parsed:
        first = data.find(b"\n") + 1 or len(data)
        facts = _header(path, data[:first].removesuffix(b"\n"))
        # Writes are whole lines, so that only the last one can be torn: by a kill, or by reading
        # while it is written.
        last = max(data.rfind(b"\n") + 1, first)
        torn = 1 if last < len(data) else 0

        bad_facts = 0
        comments, table = _apart(data, first, last)
        figures = [line for line in comments if line.startswith(MARK)]
        for line in comments:
            try:
                if not line.startswith(MARK):
                    facts.update(_facts(line))
            except ValueError:
                bad_facts += 1
        rows, bad_rows = _rows(path, data, table)
        torn += bad_facts + bad_rows

        is_step = arrow.equal(rows["kind"], "step")
        others = _others(rows, is_step)
        log = Log(
            path=path,
            rank=_place(path, facts, "rank"),
            generation=_place(path, facts, "generation"),
            part=_place(path, facts, "part"),
            facts=_checked(facts),
            ended="end" in others["kind"].to_pylist(),
            size=len(data),
            torn=torn,
        )
        run_id = str(facts.get("run_id") or "unnamed")
        steps, outside = _steps(log, rows if not others.num_rows else rows.filter(is_step))
        problems = torn_lines(log)
        if outside:
            what = f"{outside} timestamp(s) outside of their steps treated as missing"
            problems = (*problems, Problem(path, what))
        series, series_problems = machine_series(log, figures)
        return Parsed(
            log,
            run_id,
            steps,
            _intervals(log, others),
            problems,
            series=series,
            series_problems=series_problems,
        )

    def read(self, path: str, data: bytes) -> Contents:
        return Contents.of_logs(self.parse_each(path, data))

    def parse_each(self, path: str, data: bytes) -> Parsed:
        """Parse all step logs in a file, as ``cat rank-*.csv`` joins them, the others as ``more``.

        Raises:
            UnreadableError: if none of them can be read.
        """
        logs: list[Parsed] = []
        failures: list[UnreadableError] = []
        for part in _parts(data):
            try:
                logs.append(self.parse(path, part))
            except UnreadableError as error:
                failures.append(error)
        if not logs:
            raise failures[0]
        problems = [Problem(path, str(error).removeprefix(f"{path}: ")) for error in failures]
        first = replace(logs[0], problems=(*logs[0].problems, *problems))
        return replace(first, more=tuple(logs[1:])) if len(logs) > 1 else first


def is_joined(data: bytes) -> bool:
    """Whether there is more than one step log in bytes."""
    return len(list(islice(_headers(data), 2))) > 1


def _headers(data: bytes) -> Iterator[int]:
    """Find where step logs start, also after a torn line."""
    # Looking for a byte is much faster than for a word.
    at = data.find(b"#")
    while at >= 0:
        if _HEADER.match(data, at):
            yield at
        at = data.find(b"#", at + 1)


def _parts(data: bytes) -> Iterator[bytes]:
    """Split a file before each header; most files are one part."""
    start = 0
    for at in _headers(data):
        if at:
            yield data[start:at]
            start = at
    yield data[start:] if start else data


def torn_lines(log: Log) -> tuple[Problem, ...]:
    """Report a log's torn lines."""
    if not log.torn:
        return ()
    return (Problem(log.path, f"{log.torn} torn or unreadable line(s) skipped"),)


def _header(path: str, line: bytes) -> dict[str, Any]:
    version, _, text = line.removeprefix(MAGIC).partition(b" ")
    if _VERSION.fullmatch(version) is None:
        raise UnreadableError(f"{path}: the first line is not a step log's header")
    if int(version) > _KNOWN_VERSION:
        raise UnknownVersionError(
            f"{path}: step log format {int(version)} is newer than this Stallscope, which knows "
            f"{_KNOWN_VERSION}: upgrade it with pip install --upgrade stallscope"
        )
    try:
        return _facts(b"#facts " + text)
    except ValueError:
        raise UnreadableError(f"{path}: the header's facts are torn or not JSON") from None


def _apart(data: bytes, first: int, last: int) -> tuple[list[bytes], list[slice]]:
    """Split the whole lines between two places into comments and the places of all other lines."""
    comments, others, at = [], [], first
    mark = data.find(b"#", first, last)
    while mark >= 0:
        end = data.index(b"\n", mark, last) + 1
        if data[mark - 1] == _LINE_END:
            comments.append(data[mark:end])
            others.append(slice(at, mark))
            at = end
        mark = data.find(b"#", end, last)
    return comments, [one for one in (*others, slice(at, last)) if one.start < one.stop]


def _facts(line: bytes) -> dict[str, Any]:
    try:
        facts = json.loads(line.partition(b" ")[2])
    except RecursionError:
        raise ValueError("nested without end") from None
    if not isinstance(facts, dict):
        raise ValueError("facts are a JSON object")
    return facts


def _rows(path: str, data: bytes, table: list[slice]) -> tuple[pa.Table, int]:
    """Parse the rows, and count the lines that are none."""
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
            return _read_all(columns, bodies)
    except pa.ArrowInvalid:
        # A cell is not a number: rare enough to check every line.
        pass
    lines = [line for body in bodies for line in bytes(body).splitlines() if line]
    good = [line for line in lines if _well_formed(columns, line)]
    bad = len(lines) - len(good)
    if not good:
        return _typed(_empty(columns)), bad
    rows, more = _read_csv(columns, pa.py_buffer(b"\n".join(good) + b"\n"))
    return rows, bad + more


def _bodies(data: bytes, places: list[slice]) -> list[memoryview]:
    """Return the text at these places, without blank text. Of much text the longest piece is not
    copied.
    """
    whole = memoryview(data)
    split = [places]
    if sum(place.stop - place.start for place in places) >= _WORTH_THREADS:
        longest = max(range(len(places)), key=lambda at: places[at].stop - places[at].start)
        split = [places[:longest], places[longest : longest + 1], places[longest + 1 :]]
    bodies = [
        whole[some[0]] if len(some) == 1 else memoryview(b"".join(whole[one] for one in some))
        for some in split
    ]
    return [body for body in bodies if _BLANK.match(body) is None]


def _read_all(columns: list[str], bodies: list[memoryview]) -> tuple[pa.Table, int]:
    read = [_read_csv(columns, pa.py_buffer(body)) for body in bodies]
    return pa.concat_tables([rows for rows, _ in read]), sum(bad for _, bad in read)


def _read_csv(columns: list[str], body: pa.Buffer) -> tuple[pa.Table, int]:
    skipped = 0

    def skip(_row: pa.csv.InvalidRow) -> str:
        nonlocal skipped
        skipped += 1
        return "skip"

    table = pa.csv.read_csv(
        pa.BufferReader(body),
        # Small logs are many, and gain nothing by being handed to threads.
        read_options=pa.csv.ReadOptions(
            column_names=columns, use_threads=len(body) >= _WORTH_THREADS
        ),
        parse_options=pa.csv.ParseOptions(invalid_row_handler=skip, quote_char=False),
        convert_options=pa.csv.ConvertOptions(
            column_types={name: pa.int64() for name in _NUMBERS} | {"kind": pa.string()},
            include_columns=[name for name in ("kind", *_NUMBERS) if name in columns],
            null_values=[""],
            # The text is ASCII.
            check_utf8=False,
        ),
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
    """Return the table with every known column, null where the log has none, and only possible
    rows.
    """
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
        extremes = pc.min_max(full[name]).as_py()
        if max(abs(extremes["min"] or 0), abs(extremes["max"] or 0)) > furthest:
            low, high = (arrow.scalar(value, pa.int64()) for value in (-furthest, furthest))
            near = pc.and_(pc.less_equal(full[name], high), pc.greater(full[name], low))
            full = full.filter(pc.or_kleene(pc.is_null(full[name]), near))
    return full


def _others(rows: pa.Table, is_step: pa.ChunkedArray) -> pa.Table:
    """Return the few rows that are no steps."""
    if pc.all(is_step).as_py() is True:
        return rows.slice(0, 0)
    return rows.filter(pc.invert(is_step))


def _steps(log: Log, rows: pa.Table) -> tuple[pa.Table, int]:
    """Return the steps of rows of steps, and count their timestamps outside of them."""
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
    return _table(log, rows, columns, STEP_ROWS), outside


def _table(
    log: Log, rows: pa.Table, columns: dict[str, pa.ChunkedArray], schema: pa.Schema
) -> pa.Table:
    """Return a table of a schema, from columns of it and of the rows."""
    for name in ("generation", "rank"):
        columns[name] = arrow.array(np.full(rows.num_rows, getattr(log, name), np.int32))
    found = (columns[name] if name in columns else rows[name] for name in schema.names)
    whole = [cast(column, kind) for column, kind in zip(found, schema.types, strict=True)]
    return pa.table(whole, schema=schema)


def _only_inside(rows: pa.Table) -> tuple[pa.Table, int]:
    """Return the rows without impossible timestamps: before the step's begin, or data after its end.

    What a device does may well be over later than the host's part of the step.
    """
    count = 0
    for name in ("data_us", "ready_us", "reduced_us"):
        own = rows[name]
        if not own.null_count and _are_inside(own, rows["end_us"] if name == "data_us" else None):
            # As in nearly all logs.
            continue
        outside = pc.less(own, _ZERO)
        if name == "data_us":
            outside = pc.or_(outside, pc.greater(own, rows["end_us"]))
        if pc.any(outside).as_py():
            count += pc.sum(outside).as_py()
            at = rows.column_names.index(name)
            rows = rows.set_column(at, name, pc.if_else(outside, pa.NA, own))
    return rows, count


def _are_inside(times: pa.ChunkedArray, end: pa.ChunkedArray | None) -> bool:
    """Whether no time is before a step's begin, or after its end."""
    own = arrow.numbers(times)
    return bool((own >= 0).all() and (end is None or (own <= arrow.numbers(end)).all()))


def _intervals(log: Log, rows: pa.Table) -> pa.Table:
    """Return the intervals of rows that are no steps."""
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


def _place(path: str, facts: dict[str, Any], name: str) -> int:
    """Read the rank, generation or part: 0 where an old recorder did not write it."""
    value = facts.get(name, 0)
    most = MOST_RANKS if name == "rank" else 2**31
    if type(value) is not int or not 0 <= value < most:
        raise UnreadableError(
            f"{path}: the header has the {name} {value!r}, which is not a valid number"
        )
    return value


def _checked(facts: dict[str, Any]) -> dict[str, Any]:
    """Drop facts that should be numbers and are not."""
    anchor = facts.get("anchor")
    usable = isinstance(anchor, dict) and all(
        isinstance(anchor.get(name), int) and abs(anchor[name]) < 2**62
        for name in ("monotonic_ns", "wall_ns")
    )
    dropped = {"anchor"} if not usable else set()
    for name in ("size", "pid", "batch_size", "process_start_us", "job_start_us", "went_on_us"):
        if not _is_plausible(facts.get(name)):
            dropped.add(name)
    if "size" not in dropped and facts["size"] > MOST_RANKS:
        dropped.add("size")
    for name in ("in_flight", "suspended"):
        if not all(map(_is_plausible, _numbers_of(facts.get(name)))):
            dropped.add(name)
    if not isinstance(facts.get("stamps"), dict):
        dropped.add("stamps")
    return {name: value for name, value in facts.items() if name not in dropped}


def _is_plausible(value: Any) -> bool:
    return isinstance(value, int) and abs(value) < 2**52


def _numbers_of(fact: Any) -> Iterator[Any]:
    """Yield the times and steps of a fact that is an object or a list of objects."""
    for one in fact if isinstance(fact, list) else [fact]:
        for name, value in one.items() if isinstance(one, dict) else ():
            if name == "step" or (name.endswith("_us") and value is not None):
                yield value
