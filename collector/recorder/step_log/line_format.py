"""Format facts and rows as lines of a step log, format 1, and choose the steps that are kept.

docs/step-log.md describes every column; the parser is in ``parsers/formats/step_log``.
"""

from __future__ import annotations

import json
from typing import Any, Dict, List, NamedTuple, Optional, Union

VERSION = 1
SUFFIX = ".steps.csv"
#: Kinds of rows other than ``step``: intervals with a start and an end.
EPOCH = "epoch"
VALIDATION = "validation"
CHECKPOINT = "checkpoint"
END = "end"
#: Sums of several steps, in runs that record only some steps in full.
SKIPPED = "skipped"
#: Time within steps that is no work of the model.
GARBAGE_COLLECTION = "garbage_collection"
COMPILATION = "compilation"
#: Saves by the training thread within steps, and what other threads do beside training.
SAVING = "saving"
BACKGROUND_SAVING = "background_saving"
BACKGROUND_EVALUATION = "background_evaluation"
#: A moment at which the training thread waited for Python's lock, and the time that it stands for.
INTERPRETER = "interpreter"
#: Tokens and padding in a batch, and tokens that this rank's experts receive in a step.
PADDING = "padding"
ROUTED = "routed"

#: Elements of a step whose samples are known, in a log that tells the usual number of each.
UNKNOWN_ELEMENTS = -1

#: Steps that are kept or left out together, so that the effect of one step on the next still shows.
BLOCK = 16
# A killed process loses at most this much of the sums.
_LONGEST_NS = 60 * 10**9
_MASK = 2**64 - 1


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
    #: Numbers in the batches' first tensor, as token ids; None if unknown.
    elements: Optional[int] = None


class IntervalRow(NamedTuple):
    """An interval other than a step: epoch, validation, checkpoint or the end of the log."""

    kind: str
    #: The next step.
    step: int
    epoch: Optional[int]
    begin: int
    end: int
    clock: int


class InterruptionRow(NamedTuple):
    """Something other than the model's work that took time within a step."""

    kind: str
    #: The next step.
    step: int
    begin: int
    end: int
    #: Of a garbage collection the generation; otherwise 1.
    amount: int


class TokensRow(NamedTuple):
    """The tokens in a batch, and what pads them, of some batches; or the tokens of a rank's experts."""

    step: int
    #: The start of the step.
    begin: int
    tokens: int
    padding: int
    kind: str = PADDING


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
    "elements",
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
        return "step,%d,%s,%d,%s,%s,%s,%d,%d,%s,%d,%s\n" % (
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
            _text(row.elements),
        )

    def skipped(self, row: SkippedRow) -> str:
        return "%s,%d,%s,%d,%s,%s,%s,%d,%d,%s,%d,\n" % (
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
        return "%s,%d,%s,%d,,,,%d,,,%d,\n" % (
            row.kind,
            row.step,
            _text(row.epoch),
            (row.begin - self._origin) // 1000,
            (row.end - row.begin) // 1000,
            (row.clock - self._clock) // 1000,
        )

    def interruption(self, row: InterruptionRow) -> str:
        return "%s,%d,,%d,,,,%d,%d,,,\n" % (
            row.kind,
            row.step,
            (row.begin - self._origin) // 1000,
            (row.end - row.begin) // 1000,
            row.amount,
        )

    def tokens(self, row: TokensRow) -> str:
        return "%s,%d,,%d,,,,0,%d,%d,,\n" % (
            row.kind,
            row.step,
            (row.begin - self._origin) // 1000,
            row.padding,
            row.tokens,
        )

    def machine(self, row: MachineRow) -> str:
        return "#machine %d,%s\n" % ((row.at - self._origin) // 1000, row.cells)


def _text(value: Optional[int]) -> str:
    return "" if value is None else "%d" % value


def _since(timestamp: Optional[int], begin: int) -> str:
    return "" if timestamp is None else "%d" % ((timestamp - begin) // 1000)


# -- Record some steps of a very long run in full, and sum the others into rows per epoch ---------
#
# All ranks keep the same steps without communicating: a hash of a block's number decides whether
# the block of steps is kept. The hash has no period, so an event in every n-th step is as frequent
# in the kept steps as in all. The step before a kept block is kept too: a step's time starts when
# the previous step is reduced.


class Sampling(NamedTuple):
    """Which steps are recorded in full: the first ones, then one in ``one_in``."""

    full_steps: int
    one_in: int
    seed: int = 0

    def fact(self) -> Dict[str, Any]:
        return {**self._asdict(), "block": BLOCK}


def is_kept(block: int, sampling: Sampling) -> bool:
    """Return whether a block of steps is kept (the finaliser of splitmix64)."""
    x = (block + (sampling.seed + 1) * 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return (x ^ (x >> 31)) % sampling.one_in == 0


class Sampler:
    """Takes the rows of a rank one by one and returns the rows to write."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._block, self._kept = -1, True
        self._skipped: Optional[_Sums] = None

    def rows(self, row: StepRow) -> List[Union[StepRow, SkippedRow]]:
        """Return the rows that a step adds: earlier skipped steps, the step itself, both or none."""
        written: List[Union[StepRow, SkippedRow]] = []
        if self._skipped is not None and not self._skipped.goes_on_with(row):
            written += self.rest()
        if self.keeps(row.step):
            written.append(row)
        elif self._skipped is None:
            self._skipped = _Sums(row)
        else:
            self._skipped.add(row)
        return written

    def rest(self) -> List[SkippedRow]:
        """Return the steps skipped since the last such row."""
        skipped, self._skipped = self._skipped, None
        return [] if skipped is None else [skipped.row()]

    def keeps(self, step: int) -> bool:
        """Return whether a step is recorded in full."""
        if step < self._sampling.full_steps:
            return True
        return self._is_kept(step // BLOCK) or (
            (step + 1) % BLOCK == 0 and is_kept((step + 1) // BLOCK, self._sampling)
        )

    def _is_kept(self, block: int) -> bool:
        if block != self._block:
            self._block, self._kept = block, is_kept(block, self._sampling)
        return self._kept


class _Sums:
    """The sums of steps that are not written. A timestamp that one of them lacks has no sum."""

    def __init__(self, row: StepRow) -> None:
        self.epoch = row.epoch
        self._first = self._last = row
        self._steps = 0
        self._stages: List[Optional[int]] = [0, 0, 0]
        self._samples: Optional[int] = 0
        self.add(row)

    def goes_on_with(self, row: StepRow) -> bool:
        return row.epoch == self.epoch and row.end - self._first.begin < _LONGEST_NS

    def add(self, row: StepRow) -> None:
        self._last = row
        self._steps += 1
        for at, timestamp in enumerate((row.data, row.ready, row.reduced)):
            sum_ = self._stages[at]
            self._stages[at] = (
                None if sum_ is None or timestamp is None else sum_ + timestamp - row.begin
            )
        known = self._samples is not None and row.samples is not None
        self._samples = (self._samples or 0) + (row.samples or 0) if known else None

    def row(self) -> SkippedRow:
        data, ready, reduced = self._stages
        return SkippedRow(
            step=self._last.step + 1,
            epoch=self.epoch,
            begin=self._first.begin,
            end=self._last.end,
            steps=self._steps,
            samples=self._samples,
            data=data,
            ready=ready,
            reduced=reduced,
            clock=self._first.clock,
        )
