"""Collect epochs, evaluations, numbers of steps and settings from the events of ranks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from stallscope.arrays.types import Bools, Ints

from ...epochs_only import Epoch, windows_table
from ...window_durations import Durations
from ...window_lines import StepLines
from ...window_meaning import durations
from .mlperf_lines import RANKS, START, STEPS, MlperfEvent, as_whole, events

# Epochs are numbered by hand: larger numbers are samples.
_LAST_EPOCH = 100_000
_SAMPLES = ("train_samples", "train_dataset_size", "preproc_num_train_examples")
# A throughput counts samples if it equals their rate within this factor.
_ABOUT = 1.25


class EpochSpan(NamedTuple):
    """A time span, nanoseconds since 1970, with the number of its epoch as printed."""

    begin: int
    end: int
    epoch: int | None


class ProgressPoint(NamedTuple):
    """A moment, and the steps or samples so far."""

    ns: int
    so_far: int
    #: Whether an epoch or a block begins, so that there may be other work since the point before.
    begins: bool = False


class EpochBlock(NamedTuple):
    """Several epochs between two evaluations."""

    span: EpochSpan
    #: The printed number of the first one.
    first: int
    epochs: int


@dataclass
class JobSettings:
    """The settings of the job in events; None if unknown."""

    benchmark: str | None = None
    #: Samples of a step and of an epoch, of all ranks together.
    global_batch: int | None = None
    samples: int | None = None
    #: Ranks, or nodes and accelerators in each.
    ranks: int | None = None
    nodes: int | None = None
    accelerators: int | None = None

    @property
    def size(self) -> int | None:
        """Return the number of ranks."""
        if self.ranks is not None or self.nodes is None or self.accelerators is None:
            return self.ranks
        return self.nodes * self.accelerators

    @property
    def facts(self) -> dict[str, Any]:
        """Return the facts of the job that do not depend on its number of ranks."""
        known = {"model": self.benchmark, "training_samples": self.samples}
        return {name: value for name, value in known.items() if value is not None}

    def add(self, event: MlperfEvent) -> None:
        """Take the settings in an event; those of earlier events count."""
        value = as_whole(event.value) or None
        if event.key == "submission_benchmark" and isinstance(event.value, str):
            self.benchmark = self.benchmark or event.value[:80]
        elif event.key == "global_batch_size":
            self.global_batch = self.global_batch or value
        elif event.key in _SAMPLES:
            self.samples = self.samples or value
        elif event.key == "number_of_nodes":
            self.nodes = self.nodes or value
        elif event.key == "accelerators_per_node":
            self.accelerators = self.accelerators or value
        ranks = value if event.key in RANKS else event.whole(*RANKS)
        self.ranks = self.ranks or ranks or None
        if self.benchmark is None and isinstance(event.metadata.get("benchmark"), str):
            self.benchmark = event.metadata["benchmark"]


@dataclass
class Fit:
    """One training of a rank: from ``run_start`` to ``run_stop``."""

    start: int | None = None
    stop: int | None = None
    #: Epochs by their printed numbers.
    epochs: dict[int, EpochSpan] = field(default_factory=dict)
    evaluations: list[EpochSpan] = field(default_factory=list)
    blocks: list[EpochBlock] = field(default_factory=list)
    steps: list[ProgressPoint] = field(default_factory=list)
    samples: list[ProgressPoint] = field(default_factory=list)
    #: Per second, of samples or tokens, on one rank or all.
    throughputs: list[float] = field(default_factory=list)
    #: The number of spans that started again before their end.
    mixed: int = 0
    _open: dict[tuple[str, int | None], MlperfEvent] = field(default_factory=dict)
    #: The number and start of the running epoch, if only starts are logged.
    _last_start: tuple[int, int] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether it has no durations."""
        return not (self.epochs or self.evaluations or self.blocks or len(self.steps) > 1) and (
            len(self.samples) < 2 and self.stop is None
        )

    @property
    def single_epochs(self) -> list[Epoch]:
        """Return the epochs, with their printed numbers and times since 1970.

        A block of one epoch is an epoch; longer blocks are not divided.
        """
        spans = [Epoch(number, span.begin, span.end) for number, span in self.epochs.items()]
        if not spans and all(block.epochs == 1 for block in self.blocks):
            numbered = {block.first: block.span for block in self.blocks}
            spans = [Epoch(number, span.begin, span.end) for number, span in numbered.items()]
        return sorted(spans)

    @property
    def first(self) -> int:
        """Return the printed number of the first epoch, 1 or 0."""
        return int(min((epoch.number for epoch in self.single_epochs), default=0) == 1)

    def epochs_since(self, zero: int) -> list[Epoch]:
        """Return the epochs, counted from 0, on a clock that starts at ``zero``."""
        return [
            Epoch(epoch.number - self.first, epoch.begin - zero, epoch.end - zero)
            for epoch in self.single_epochs
        ]

    def validations_since(self, zero: int) -> list[tuple[int | None, int, int]]:
        """Return the evaluations with their epochs, on a clock that starts at ``zero``."""
        return [
            (None if epoch is None else max(epoch - self.first, 0), begin - zero, end - zero)
            for begin, end, epoch in self.evaluations
        ]

    @property
    def first_ns(self) -> int | None:
        """Return its first moment."""
        moments = [span.begin for span in (*self.epochs.values(), *self.evaluations)]
        moments += [block.span.begin for block in self.blocks]
        moments += [points[0].ns for points in (self.steps, self.samples) if points]
        moments += [] if self.start is None else [self.start]
        return min(moments, default=None)

    def begins_again(self, event: MlperfEvent) -> bool:
        """Whether an event begins the next training; among several ranks only the first one's does."""
        return event.key == "run_start" and (self.stop is not None or bool(self.epochs))

    def add(self, event: MlperfEvent) -> None:
        """Add an event."""
        kind, _, edge = event.key.rpartition("_")
        if event.key == "run_start":
            self.start = event.ns if self.start is None else self.start
        elif event.key in ("run_stop", "run_final"):
            self._stop(event.ns)
        elif event.key == "train_epoch":
            self._epoch_begins(as_whole(event.value), event.ns)
        elif kind in ("epoch", "block", "eval") and edge in ("start", "stop"):
            self._edge(kind, edge, event)
        elif event.key == "tracked_stats" and isinstance(event.value, dict):
            rate = event.value.get("throughput")
            if isinstance(rate, (int, float)) and rate > 0:
                self.throughputs.append(float(rate))
        self._count(event)

    def _stop(self, ns: int) -> None:
        if self._last_start is not None:
            number, begin = self._last_start
            self.epochs.setdefault(number, EpochSpan(begin, max(begin, ns), number))
            self._last_start = None
        self.stop = ns if self.stop is None else max(self.stop, ns)

    def _epoch_begins(self, number: int | None, ns: int) -> None:
        """Add the start of an epoch, which ends the one before."""
        if number is None or number > _LAST_EPOCH:
            return
        if self._last_start is not None:
            before, begin = self._last_start
            if before == number:
                return
            self.epochs.setdefault(before, EpochSpan(begin, max(begin, ns), before))
        self._last_start = (number, ns)

    def _edge(self, kind: str, edge: str, event: MlperfEvent) -> None:
        number = event.whole("epoch_num", "first_epoch_num", "samples_count", "step_num")
        if number is None:
            number = as_whole(event.value)
        # The start and the end of a block have different numbers of samples.
        key = (kind, None if kind == "block" else number)
        if edge == "start":
            # Among several ranks, the first start and the last end count.
            self.mixed += key in self._open
            self._open.setdefault(key, event)
        elif key in self._open:
            self._ended(kind, number, self._open.pop(key), event)
        elif self.mixed:
            self._ended_later(kind, number, event.ns)

    def _ended(self, kind: str, number: int | None, first: MlperfEvent, last: MlperfEvent) -> None:
        span = EpochSpan(first.ns, last.ns, number)
        if span.end < span.begin:
            return
        if kind == "epoch":
            number = len(self.epochs) if number is None else number
            if number <= _LAST_EPOCH:
                self.epochs[number] = span._replace(epoch=number)
        elif kind == "eval":
            known = number is not None and number <= _LAST_EPOCH
            self.evaluations.append(span if known else span._replace(epoch=None))
        else:
            begins, count = first.whole("first_epoch_num"), first.whole("epoch_count")
            if count and begins is not None and begins + count <= _LAST_EPOCH:
                self.blocks.append(EpochBlock(span, begins, count))

    def _ended_later(self, kind: str, number: int | None, ns: int) -> None:
        """Extend the last span of a kind to the end on a later rank."""
        if kind == "epoch" and number in self.epochs:
            self.epochs[number] = _until(self.epochs[number], ns)
        elif kind == "eval" and self.evaluations:
            self.evaluations[-1] = _until(self.evaluations[-1], ns)
        elif kind == "block" and self.blocks:
            self.blocks[-1] = self.blocks[-1]._replace(span=_until(self.blocks[-1].span, ns))

    def _count(self, event: MlperfEvent) -> None:
        for points, names in ((self.steps, STEPS), (self.samples, ("samples_count",))):
            count = event.whole(*names)
            if count is None:
                continue
            before = points[-1] if points else ProgressPoint(0, -1)
            begins = event.key in ("epoch_start", "block_start")
            # Among several ranks, the first one at a step counts.
            if count > before.so_far or (count == before.so_far and begins and not before.begins):
                points.append(ProgressPoint(event.ns, count, begins))


def _until(span: EpochSpan, ns: int) -> EpochSpan:
    return span._replace(end=max(span.end, ns))


@dataclass
class RankEvents:
    """The events of one rank."""

    fits: list[Fit] = field(default_factory=lambda: [Fit()])
    #: The coarsest unit that a timestamp is rounded down to, nanoseconds.
    resolution_ns: int = 1
    _seen: tuple[object, ...] = ()

    def add(self, event: MlperfEvent) -> None:
        """Add an event, unless it repeats the one before, as when two loggers print it."""
        this = (event.ns, event.key, str(event.value), str(event.metadata.get("epoch_num")))
        if this == self._seen:
            return
        self._seen = this
        self.resolution_ns = max(self.resolution_ns, event.timestamp.resolution_ns)
        if self.fits[-1].begins_again(event):
            self.fits.append(Fit())
        self.fits[-1].add(event)

    @property
    def trainings(self) -> list[Fit]:
        """Return the trainings that have durations."""
        return [fit for fit in self.fits if not fit.is_empty]


class Logged(NamedTuple):
    """The events of a file."""

    #: By rank; None for lines without a launcher's label.
    ranks: Mapping[int | None, RankEvents]
    settings: JobSettings


def logged(data: bytes) -> Logged:
    """Read the events in a launcher's output."""
    ranks: dict[int | None, RankEvents] = defaultdict(RankEvents)
    settings = JobSettings()
    for event in events(data) if START in data else ():
        settings.add(event)
        ranks[event.rank].add(event)
    timed = {rank: marks for rank, marks in ranks.items() if marks.trainings}
    if len(timed) > 1:
        # Lines without a label are the launcher's own.
        timed.pop(None, None)
    return Logged(timed, settings)


def epochs_per_ns(fit: Fit, settings: JobSettings) -> float | None:
    """Return epochs per nanosecond, without evaluations; None if unknown."""
    spans = [(epoch.end - epoch.begin, 1) for epoch in fit.single_epochs]
    # Some programs log a block's number of samples as that of epochs.
    most = settings.samples or 0
    blocks = [block for block in fit.blocks if block.epochs < most]
    spans = spans or [(block.span.end - block.span.begin, block.epochs) for block in blocks]
    # The first steps compile and fill caches.
    counted = spans[1:] or spans
    took = sum(ns for ns, _ in counted)
    return sum(count for _, count in counted) / took if took else None


def disagree(fit: Fit, settings: JobSettings) -> bool:
    """Whether the samples of an epoch contradict the throughput, if both are logged.

    Some programs log the number of batches as that of samples, or the rate of one rank.
    """
    epochs = epochs_per_ns(fit, settings)
    if epochs is None or not settings.samples or not fit.throughputs:
        return False
    rate = settings.samples * epochs * 1e9
    return not 1 / _ABOUT < float(np.median(fit.throughputs)) / rate < _ABOUT


# -- Make windows of steps between events with numbers of steps or samples ------------------------


def windows(fit: Fit, batch: int | None, resolution_ns: int) -> tuple[Durations, StepLines] | None:
    """Measure windows of steps; None without numbers of steps.

    Args:
        fit: one training of a rank.
        batch: samples of a step on all ranks.
        resolution_ns: the unit that timestamps are rounded down to.
    """
    lines = _lines(_points(fit, batch), fit, resolution_ns)
    measured = durations(lines, "last", None)
    return None if measured is None else (measured, lines)


def table_of(rank: int, measured: Durations, lines: StepLines, zero: int) -> pa.Table:
    """Make the intervals of windows.

    Args:
        zero: the start of the log's clock, nanoseconds since 1970.
    """
    end = lines.columns["ns"][measured.at] - zero
    took = np.rint(measured.step_s * measured.steps * 1e9).astype(np.int64)
    return windows_table(
        rank, lines.last_step[measured.at], None, end - took, end, measured.steps, None
    )


def _points(fit: Fit, batch: int | None) -> Sequence[ProgressPoint]:
    if len(fit.steps) > 1 or batch is None:
        return fit.steps
    # Numbers that are not multiples of the batch count something else, such as tokens.
    whole = [point for point in fit.samples if point.so_far % batch == 0]
    if whole != fit.samples:
        return []
    return [point._replace(so_far=point.so_far // batch) for point in whole]


def _lines(points: Sequence[ProgressPoint], fit: Fit, resolution_ns: int) -> StepLines:
    ns, step = (np.array([point[at] for point in points], np.int64) for at in (0, 1))
    begins = np.append(True, _interrupted(ns, fit))[: len(ns)]
    begins |= np.array([point.begins for point in points], bool)
    since = np.diff(step, prepend=step[:1] - 1)
    columns = {
        "step": step,
        "ns": ns,
        "timed": np.ones(len(ns), bool),
        "zone_known": np.ones(len(ns), bool),
        "resolution_ns": np.full(len(ns), resolution_ns),
    }
    return StepLines(columns, begins, step, since, last_step=step, repeated=0)


def _interrupted(ns: Ints, fit: Fit) -> Bools:
    """Mark moments, from the second one, with an evaluation or the start of an epoch before them."""
    evaluated = np.sort([span.begin for span in fit.evaluations])
    begun = np.sort([span.begin for span in fit.epochs.values()])
    passed = np.searchsorted(evaluated, ns, side="left")
    passed += np.searchsorted(begun, ns, side="right")
    return np.asarray(passed[1:] > passed[:-1])
