"""Step log, format 1: how facts and rows become lines.

The format is described column by column in docs/step-log.md; the parser is
``stallscope.parsers.step_log``.
"""

from __future__ import annotations

import json
from typing import Any, Dict, NamedTuple, Optional

VERSION = 1
SUFFIX = ".steps.csv"

#: Kinds of rows besides ``step``; all of them are intervals with a begin and an end.
EPOCH = "epoch"
VALIDATION = "validation"
CHECKPOINT = "checkpoint"
END = "end"
#: Steps that were recorded as their sums, in runs of which some steps are recorded in full.
SKIPPED = "skipped"


class StepRow(NamedTuple):
    """One step of one rank. Times are monotonic nanoseconds; what was not measured is None."""

    step: int
    epoch: Optional[int]
    begin: int
    data: Optional[int]
    ready: Optional[int]
    reduced: Optional[int]
    end: int
    #: Turns of the training loop that were summed into this step (gradient accumulation).
    micro: int
    #: Samples that this rank worked through in the step.
    samples: Optional[int]
    #: Wall minus monotonic clock, as it was last read: at the end of the step before, or when the row
    #: was made.
    clock: int


class IntervalRow(NamedTuple):
    """Something besides a step: epoch, validation, checkpoint or the end of the log."""

    kind: str
    #: The step that comes next.
    step: int
    epoch: Optional[int]
    begin: int
    end: int
    clock: int


class SkippedRow(NamedTuple):
    """Steps of one epoch that are not in the log one by one: how many, and their sums.

    ``data``, ``ready`` and ``reduced`` are nanoseconds from each step's begin, added up; None where a
    step lacks the timestamp.
    """

    #: The step that comes next.
    step: int
    epoch: Optional[int]
    #: Of the first step and of the last one; steps between them may be in the log.
    begin: int
    end: int
    steps: int
    samples: Optional[int]
    data: Optional[int]
    ready: Optional[int]
    reduced: Optional[int]
    clock: int


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
    """The facts in a log's first line.

    Raises:
        ValueError: if the line is no header.
    """
    facts = json.loads(line.partition(b" ")[2].partition(b" ")[2])
    if not isinstance(facts, dict):
        raise ValueError("facts are a JSON object")
    return facts


def facts_line(facts: Dict[str, Any]) -> str:
    return "#facts %s\n" % _json(facts)


def _json(facts: Dict[str, Any]) -> str:
    # One line whatever the facts hold: json escapes line breaks, and repr takes what json cannot.
    return json.dumps(facts, separators=(",", ":"), sort_keys=True, default=repr)


class RowFormatter:
    """Rows to lines, with times counted in microseconds from the log's anchor."""

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


def _text(value: Optional[int]) -> str:
    return "" if value is None else "%d" % value


def _since(stamp: Optional[int], begin: int) -> str:
    return "" if stamp is None else "%d" % ((stamp - begin) // 1000)
