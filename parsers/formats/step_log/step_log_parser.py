"""Step logs, format 1, which Stallscope's own recorder writes (docs/step-log.md)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any, ClassVar, NamedTuple

from stallscope.arrays import arrow
from stallscope.collector.recorder.job.job_settings import with_masked_settings
from stallscope.errors import UnknownVersionError, UnreadableError
from stallscope.formatting.lists import counted
from stallscope.run import Log, Problem

from ...base import INTERVAL_ROWS, MOST_RANKS, STEP_ROWS, Contents, EmbeddedFormat, Parsed, Parser
from ...log_records import LogRecords
from .machine_lines import MARK, machine_series
from .step_rows import intervals_of, rows_in, split_rows, steps_of

#: The start of the first line.
MAGIC = b"#stallscope "
# Within a name the quote would be escaped.
_HEADER = re.compile(rb'#stallscope \d{1,9} \{"')
_LINE_END = ord("\n")
_KNOWN_VERSION = 1
_VERSION = re.compile(rb"\d{1,9}")


class StepLogParser(Parser):
    name: ClassVar[str] = "step-log"
    title: ClassVar[str] = "step logs of Stallscope's recorder"
    suffix: ClassVar[str] = ".steps.csv"

    def recognises(self, file_name: str, head: bytes) -> bool:
        return head.startswith(MAGIC)

    def parse(self, path: str, data: bytes) -> Parsed:
        text = _apart(path, data)
        rows, bad_rows = rows_in(path, data, text.table)
        step_rows, others = split_rows(rows)
        ended = "end" in others["kind"].to_pylist()
        log = _log(path, data, text.facts, ended=ended, torn=text.torn + bad_rows)
        steps, outside = steps_of(log, step_rows)
        problems = torn_lines(log)
        if outside:
            what = f"{counted(outside, 'timestamp')} outside of their steps treated as missing"
            problems = (*problems, Problem(path, what))
        series, series_problems = machine_series(log, text.figures)
        return Parsed(
            log,
            text.run_id,
            steps,
            intervals_of(log, others),
            problems,
            series=series,
            series_problems=series_problems,
        )

    def parse_head(self, path: str, data: bytes) -> Parsed:
        """Parse a step log without its rows, in a twentieth of the time: its tables are empty.

        Raises:
            UnreadableError: if only ``read`` can tell what is in the file.
        """
        text = _apart(path, data)
        named = any(data.startswith(b"kind,", place.start) for place in text.table[:1])
        if not named or b"\nstep," not in data or is_joined(data):
            raise UnreadableError(f"{path}: not one step log with rows")
        log = _log(path, data, text.facts, ended=b"\nend," in data, torn=text.torn)
        steps, intervals = map(arrow.empty_table, (STEP_ROWS, INTERVAL_ROWS))
        return Parsed(log, text.run_id, steps, intervals)

    def read(self, path: str, data: bytes) -> Contents:
        """Read all step logs in a file, as ``cat rank-*.csv`` joins them.

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
        first = replace(logs[0], problems=(*logs[0].problems, *problems), more=tuple(logs[1:]))
        return Contents.of_logs(first)


class LogRecordsFormat(EmbeddedFormat):
    name: ClassVar[str] = "step-log"
    title: ClassVar[str] = "records of step logs in printed output"
    replaces_epochs: ClassVar[bool] = True

    def read(self, path: str, data: bytes) -> Contents:
        records = LogRecords()
        records.add(path, data)
        return Contents(records=records)


def is_joined(data: bytes) -> bool:
    """Whether data contains more than one step log."""
    return len(list(islice(_headers(data), 2))) > 1


def _headers(data: bytes) -> Iterator[int]:
    """Find the starts of step logs, also after a torn line."""
    # Searching for a byte is much faster than for a word.
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
    return (Problem(log.path, f"{counted(log.torn, 'torn or unreadable line')} skipped"),)


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


class _Text(NamedTuple):
    """The parts of a step log's text."""

    facts: dict[str, Any]
    #: The lines with figures of machines.
    figures: list[bytes]
    #: The places of the line of column names and of all rows.
    table: list[slice]
    #: The number of lines among the others that cannot be read.
    torn: int

    @property
    def run_id(self) -> str:
        return str(self.facts.get("run_id") or "unnamed")


def _apart(path: str, data: bytes) -> _Text:
    """Split a step log into its facts, its figures and the places of its rows.

    Raises:
        UnreadableError: if it does not begin with a header that this version knows.
    """
    first = data.find(b"\n") + 1 or len(data)
    facts = _header(path, data[:first].removesuffix(b"\n"))
    # The recorder writes whole lines: only the last one can be torn, by a kill or an early read.
    last = max(data.rfind(b"\n") + 1, first)
    torn = 1 if last < len(data) else 0
    comments, table = _comments(data, first, last)
    for line in comments:
        try:
            if not line.startswith(MARK):
                facts.update(_facts(line))
        except ValueError:
            torn += 1
    return _Text(facts, [line for line in comments if line.startswith(MARK)], table, torn)


def _log(path: str, data: bytes, facts: dict[str, Any], *, ended: bool, torn: int) -> Log:
    return Log(
        path=path,
        rank=_place(path, facts, "rank"),
        generation=_place(path, facts, "generation"),
        part=_place(path, facts, "part"),
        facts=_checked(facts),
        ended=ended,
        size=len(data),
        torn=torn,
    )


def _comments(data: bytes, first: int, last: int) -> tuple[list[bytes], list[slice]]:
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
    return comments, [place for place in (*others, slice(at, last)) if place.start < place.stop]


def _facts(line: bytes) -> dict[str, Any]:
    try:
        facts = json.loads(line.partition(b" ")[2])
    except RecursionError:
        raise ValueError("nested without end") from None
    if not isinstance(facts, dict):
        raise ValueError("facts are a JSON object")
    return facts


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
    """Drop facts that the analysis needs as numbers and that are not valid ones; mask credentials."""
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
    stamps = facts.get("stamps")
    if not isinstance(stamps, dict) or not isinstance(stamps.get("placed", []), list):
        dropped.add("stamps")
    return with_masked_settings({name: facts[name] for name in facts if name not in dropped})


def _is_plausible(value: Any) -> bool:
    return isinstance(value, int) and abs(value) < 2**52


def _numbers_of(fact: Any) -> Iterator[Any]:
    """Yield the times and steps in a fact, which is an object or a list of objects."""
    for entry in fact if isinstance(fact, list) else [fact]:
        for name, value in entry.items() if isinstance(entry, dict) else ():
            if name == "step" or (name.endswith("_us") and value is not None):
                yield value
