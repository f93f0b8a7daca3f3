"""The result of inspecting logs: files, the runs that they make up, summaries and excerpts of logs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Literal

import pyarrow.compute as pc

from stallscope.arrays import arrow
from stallscope.errors import UnreadableError
from stallscope.run import Log

from ..base import Parsed
from ..formats.printed_steps.step_lines_parser import StepLinesParser, best_evidence, logs_by
from ..formats.printed_steps.vocabulary import is_known_word
from ..lines.line_blocks import Column

Sure = Literal["certain", "likely", "told"]

#: The precision of step logs, and of all other logs with steps.
PRECISION = "steps, to the microsecond"


@dataclass(frozen=True)
class TimeSpan:
    """A time span as ISO 8601; without a zone if the zone is unknown."""

    begin: str
    end: str
    zone_known: bool


@dataclass(frozen=True)
class Proposal:
    """What a file would show whose lines nothing confirms. Unknown values are None."""

    #: For ``--read-as``.
    read_as: str
    #: The number of lines, and their share of the lines of their kind.
    lines: int
    share: float
    ranks: tuple[int, ...]
    #: The first and the last one.
    epochs: tuple[int, int] | None
    steps: tuple[int, int] | None
    #: The mean step time over the ranks, and the possible error of each rank's.
    step_ms: float | None
    step_precision_ms: float | None
    #: The mean of all epochs with a known end.
    epoch_s: float | None
    span: TimeSpan | None
    #: What it leaves out or assumes.
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class InspectedFile:
    """One file. Unknown values are None."""

    path: str
    bytes: int | None
    #: The format's name; None if it is unknown.
    format: str | None
    title: str
    sure: Sure | None
    #: The launcher that has labelled its lines.
    launcher: str | None = None
    ranks: tuple[int, ...] = ()
    steps: int | None = None
    epochs: int | None = None
    span: TimeSpan | None = None
    precision: str | None = None
    torn_lines: int = 0
    #: Whether its times are used in a run.
    used: bool = False
    #: Skipped parts, with the reasons, and other remarks.
    notes: tuple[str, ...] = ()
    #: What it would show, if nothing confirms it.
    proposal: Proposal | None = None


@dataclass(frozen=True)
class InspectedRun:
    """One run that the files make up."""

    id: str
    name: str
    source: str
    #: The number of ranks that trained, and of those with a log.
    size: int
    ranks: int
    #: Whether logs have the number of ranks, and its source; None for the recorder's logs.
    size_known: bool
    size_from: str | None
    #: None if unknown.
    hosts: int | None
    steps: int | None
    epochs: int | None
    span: TimeSpan | None
    precision: str
    status: str
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Inspection:
    """All files and runs at a place."""

    files: tuple[InspectedFile, ...]
    runs: tuple[InspectedRun, ...]
    #: Problems of all files together.
    warnings: tuple[str, ...]


# -- Propose to read the lines about steps of a text, where nothing in it confirms their times ----


def proposal_for(name: str, data: bytes) -> Proposal | str:
    """Return what can be read from the lines about steps of a text; the reason if nothing can.

    Args:
        name: the file's name, which may contain a rank.
        data: its bytes, in UTF-8.
    """
    evidence = best_evidence(data)
    if isinstance(evidence, str):
        return evidence
    try:
        logs = logs_by(name, data, evidence)
    except UnreadableError as error:
        return str(error).removeprefix(f"{name}: ")
    epochs = [log.intervals.filter(arrow.equal(log.intervals["kind"], "epoch")) for log in logs]
    took = [
        ns / 1e9 for table in epochs for ns in pc.subtract(table["end"], table["begin"]).to_pylist()
    ]
    summaries = [summary_of(log, whole=True) for log in logs]
    columns = evidence.columns
    return Proposal(
        read_as=StepLinesParser.name,
        lines=len(columns["timed"]),
        share=1.0,
        ranks=tuple(log.log.rank for log in logs),
        epochs=_extremes(columns.get("epoch")),
        steps=_extremes(columns.get("step")),
        step_ms=_mean([log.log.facts.get("step_ms") for log in logs]),
        step_precision_ms=_mean([log.log.facts.get("step_precision_ms") for log in logs]),
        epoch_s=_mean(took),
        span=span_of(summaries),
        notes=tuple(dict.fromkeys(problem.what for log in logs for problem in log.problems)),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _extremes(column: Column | None) -> tuple[int, int] | None:
    return None if column is None else (int(column.min()), int(column.max()))


# -- Summaries of logs, kept in place of their rows -----------------------------------------------


@dataclass(frozen=True)
class Summary:
    """A log without its rows."""

    log: Log
    #: The number of distinct steps; all from the first to the last one if the middle was not read.
    steps: int
    first_step: int
    last_step: int
    #: The fit and the number of each epoch; the fit is 0 if fits are not distinguished.
    epochs: frozenset[tuple[int, int]]
    #: Nanoseconds on the log's clock.
    begin: int | None
    end: int | None


def summary_of(parsed: Parsed, *, whole: bool) -> Summary:
    """Summarise a log.

    Args:
        whole: whether all of it was read.
    """
    steps, intervals = parsed.steps, parsed.intervals
    windows = intervals.filter(arrow.equal(intervals["kind"], "window"))
    extremes = pc.min_max(steps["step"]).as_py()
    first, last = extremes["min"] or 0, extremes["max"] or 0
    count = pc.count_distinct(steps["step"]).as_py()
    if count and not whole:
        count = last - first + 1
    if windows.num_rows:
        # Windows have the step after their last one, and a number of steps.
        last = pc.max(windows["step"]).as_py() - 1
        first = windows["step"][0].as_py() - windows["steps"][0].as_py()
        count = pc.sum(windows["steps"]).as_py() if whole else last - first + 1
    epochs = {*pc.unique(steps["epoch"]).to_pylist()}
    ended = intervals.filter(arrow.equal(intervals["kind"], "epoch"))
    epochs |= {*pc.unique(ended["epoch"]).to_pylist(), *pc.unique(windows["epoch"]).to_pylist()}
    fit = 0 if steps.num_rows else parsed.log.part
    begins = [pc.min(table["begin"]).as_py() for table in (steps, intervals)]
    ends = [pc.max(table["end"]).as_py() for table in (steps, intervals)]
    return Summary(
        log=parsed.log,
        steps=count,
        first_step=first,
        last_step=last,
        epochs=frozenset((fit, number) for number in epochs if number is not None),
        begin=min((begin for begin in begins if begin is not None), default=None),
        end=max((end for end in ends if end is not None), default=None),
    )


def steps_of(summaries: Iterable[Summary]) -> int:
    """Count the distinct steps of several logs, each without gaps."""
    logs = [summary for summary in summaries if summary.steps]
    if len(logs) == 1:
        return logs[0].steps
    count, until = 0, None
    for first, last in sorted((summary.first_step, summary.last_step) for summary in logs):
        begin = first if until is None else max(first, until + 1)
        count += max(last - begin + 1, 0)
        until = last if until is None else max(until, last)
    return count


def span_of(summaries: Sequence[Summary]) -> TimeSpan | None:
    """Return the first and last moment by wall clocks or timestamps of lines; None without them."""
    anchored = [
        summary for summary in summaries if summary.begin is not None and summary.log.has_wall_clock
    ]
    if anchored:
        begins = [(summary.begin or 0) + summary.log.wall_minus_monotonic for summary in anchored]
        ends = [(summary.end or 0) + summary.log.wall_minus_monotonic for summary in anchored]
        return TimeSpan(iso(min(begins)) + "Z", iso(max(ends)) + "Z", True)
    local = [
        summary
        for summary in summaries
        if summary.begin is not None and summary.log.facts.get("began_local")
    ]
    if not local:
        return None
    # Times of lines count from the first line.
    zero = datetime.fromisoformat(f"{local[0].log.facts['began_local']}+00:00")
    zero_ns = int(zero.timestamp()) * 10**9
    begin, end = (
        min(summary.begin or 0 for summary in local),
        max(summary.end or 0 for summary in local),
    )
    return TimeSpan(iso(zero_ns + begin), iso(zero_ns + end), False)


def iso(ns: int) -> str:
    try:
        return f"{datetime.fromtimestamp(ns // 10**9, UTC):%Y-%m-%dT%H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return "unknown"  # a damaged clock


def key_of(log: Log) -> tuple[object, ...]:
    of = (str(log.facts.get("run_id")), log.facts.get("repeat"))
    return log.path, *of, log.generation, log.rank, log.part


# -- Excerpts of printed logs for others to look at, without names --------------------------------
#
# Words that trainers print stay, and so do all numbers, because times, rates and counters are checked
# against each other. Letters of other words become ``x``, and the digits within such words ``0``: names
# of hosts, users, files, projects and models.

#: Lines from the start of a log, and lines in a row with steps.
FIRST_LINES, STEP_LINES = 20, 30
# Steps begin within so many lines, each of which is cut.
_MOST_LINES, _MOST_CHARACTERS = 200_000, 2_000
# A line of which the log has fewer is no line of a step.
_FEWEST_ALIKE = 3

# A run of letters and digits: a number (with a unit, an exponent), a word, or a mixture.
_RUN = re.compile(r"[^\W_]+")
_NUMBER = re.compile(r"\d+(?:e\d+)?", re.ASCII)
_WITH_UNIT = re.compile(r"(\d+)([^\W\d_]+)")
_WITH_NUMBER = re.compile(r"([^\W\d_]+)(\d+)")
_PARTS = re.compile(r"(?<=[a-z])(?=[A-Z])")
# Addresses of machines are numbers that tell who printed the log.
_ADDRESS = re.compile(
    r"\b\d{1,3}(?:\.\d{1,3}){3}\b|\b[0-9a-f]{1,4}(?::[0-9a-f]{0,4}){4,7}\b",
    re.ASCII | re.IGNORECASE,
)
_LETTER, _DIGIT, _DIGITS = re.compile(r"[^\W\d_]"), re.compile(r"\d"), re.compile(r"\d+")


def excerpt(path: Path) -> Iterator[str]:
    """Yield the first lines of a log, and some lines in a row with steps, with names masked.

    Raises:
        UnreadableError: if the file cannot be read.
    """
    try:
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            lines = list(islice(_cut(file), _MOST_LINES))
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be read: {error.strerror or error}") from error
    yield from map(masked, lines[:FIRST_LINES])
    start = max(_first_step(lines), FIRST_LINES)
    if start > FIRST_LINES:
        yield "…"
    yield from map(masked, lines[start : start + STEP_LINES])


def masked(line: str) -> str:
    """Return a line whose words are those of trainers; other words are masked."""
    return _RUN.sub(_masked_run, _ADDRESS.sub(lambda match: _mask(match[0]), line))


def _cut(file: Iterable[str]) -> Iterator[str]:
    for line in file:
        yield line.rstrip("\r\n")[:_MOST_CHARACTERS]


def _first_step(lines: Sequence[str]) -> int:
    """Return the index of the first line of the kind that the log has most of, with two numbers."""
    kinds = [_DIGITS.sub("0", line) for line in lines]
    counts = Counter(kind for kind in kinds if kind.count("0") > 1)
    if not counts:
        return len(lines)
    kind, count = counts.most_common(1)[0]
    return kinds.index(kind) if count >= _FEWEST_ALIKE else len(lines)


def _masked_run(match: re.Match[str]) -> str:
    run = match[0]
    if _NUMBER.fullmatch(run) or _is_known(run):
        return run
    for pattern, word in ((_WITH_UNIT, 2), (_WITH_NUMBER, 1)):
        parts = pattern.fullmatch(run)
        if parts is not None and is_known_word(parts[word].lower()):
            return run
    return _mask(run)


def _is_known(run: str) -> bool:
    return all(is_known_word(word.lower()) for word in _PARTS.split(run))


def _mask(run: str) -> str:
    return _DIGIT.sub("0", _LETTER.sub("x", run))
