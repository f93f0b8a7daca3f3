"""Format facts and rows as lines of a step log, format 1.

docs/step-log.md describes every column; the parser is ``stallscope.parsers.formats.step_log.parser``.
"""

from __future__ import annotations

import json
from typing import Any, Dict, NamedTuple, Optional

VERSION = 1
SUFFIX = ".steps.csv"

#: Kinds of rows other than ``step``: intervals with a start and an end.
EPOCH = "epoch"
VALIDATION = "validation"
CHECKPOINT = "checkpoint"
END = "end"
#: Sums of several steps, in runs that record only some steps in full.
SKIPPED = "skipped"


class StepRow(NamedTuple):
    """One step of one rank. Times are monotonic nanoseconds; None was not measured."""

    step: int
    epoch: Optional[int]
    begin: int
    data: Optional[int]
    ready: Optional[int]
    reduced: Optional[int]
    end: int
    #: Iterations of the training loop that were summed into this step (gradient accumulation).
    micro: int
    #: Samples that this rank processed in the step.
    samples: Optional[int]
    #: Wall minus monotonic clock as last read: at the end of the previous step, or when the row
    #: was made.
    clock: int


class IntervalRow(NamedTuple):
    """An interval other than a step: epoch, validation, checkpoint or the end of the log."""

    kind: str
    #: The next step.
    step: int
    epoch: Optional[int]
    begin: int
    end: int
    clock: int


class SkippedRow(NamedTuple):
    """The number and the sums of steps of one epoch that the log does not list one by one.

    ``data``, ``ready`` and ``reduced`` are nanoseconds from the start of each step, added up; None
    where a step lacks the timestamp.
    """

    #: The next step.
    step: int
    epoch: Optional[int]
    #: Start of the first step and end of the last; the log may list steps between them.
    begin: int
    end: int
    steps: int
    samples: Optional[int]
    data: Optional[int]
    ready: Optional[int]
    reduced: Optional[int]
    clock: int


class MachineRow(NamedTuple):
    """The kernel's counts at a monotonic time in nanoseconds."""

    at: int
    cells: str


COLUMNS = (
    "kind",
    "step",
    "epoch",
    "begin_us",
    "data_us",
    "ready_us",
    "reduced_us",
    "end_us",
    "micro",
    "samples",
    "clock_us",
)


def file_name(rank: int, generation: int, part: int) -> str:
    return "rank-%05d.%d.%d%s" % (rank, generation, part, SUFFIX)


def header(facts: Dict[str, Any]) -> str:
    return "#stallscope %d %s\n%s\n" % (VERSION, _json(facts), ",".join(COLUMNS))


def header_facts(line: bytes) -> Dict[str, Any]:
    """Return the facts in a log's first line.

    Raises:
        ValueError: if the line is not a header.
    """
    facts = json.loads(line.partition(b" ")[2].partition(b" ")[2])
    if not isinstance(facts, dict):
        raise ValueError("facts are a JSON object")
    return facts


def facts_line(facts: Dict[str, Any]) -> str:
    return "#facts %s\n" % _json(facts)


def _json(facts: Dict[str, Any]) -> str:
    # Always one line: json escapes line breaks, and repr covers what json cannot write.
    return json.dumps(facts, separators=(",", ":"), sort_keys=True, default=repr)


class RowFormatter:
    """Format rows as lines, with times in microseconds since the log's anchor."""

    def __init__(self, anchor_monotonic_ns: int, anchor_clock_ns: int) -> None:
        self._origin = anchor_monotonic_ns
        self._clock = anchor_clock_ns

    def step(self, row: StepRow) -> str:
        begin = row.begin
        return "step,%d,%s,%d,%s,%s,%s,%d,%d,%s,%d\n" % (
            row.step,
            _text(row.epoch),
            (begin - self._origin) // 1000,
            _since(row.data, begin),
            _since(row.ready, begin),
            _since(row.reduced, begin),
            (row.end - begin) // 1000,
            row.micro,
            _text(row.samples),
            (row.clock - self._clock) // 1000,
        )

    def skipped(self, row: SkippedRow) -> str:
        return "%s,%d,%s,%d,%s,%s,%s,%d,%d,%s,%d\n" % (
            SKIPPED,
            row.step,
            _text(row.epoch),
            (row.begin - self._origin) // 1000,
            _since(row.data, 0),
            _since(row.ready, 0),
            _since(row.reduced, 0),
            (row.end - row.begin) // 1000,
            row.steps,
            _text(row.samples),
            (row.clock - self._clock) // 1000,
        )

    def interval(self, row: IntervalRow) -> str:
        return "%s,%d,%s,%d,,,,%d,,,%d\n" % (
            row.kind,
            row.step,
            _text(row.epoch),
            (row.begin - self._origin) // 1000,
            (row.end - row.begin) // 1000,
            (row.clock - self._clock) // 1000,
        )

    def machine(self, row: MachineRow) -> str:
        return "#machine %d,%s\n" % ((row.at - self._origin) // 1000, row.cells)


def _text(value: Optional[int]) -> str:
    return "" if value is None else "%d" % value


def _since(timestamp: Optional[int], begin: int) -> str:
    return "" if timestamp is None else "%d" % ((timestamp - begin) // 1000)
