"""Compute the times of epochs, for runs without stages of steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc

from stallscope.arrays import arrow
from stallscope.arrays.stats import passes
from stallscope.run import Log, Run


@dataclass(frozen=True)
class EpochTime:
    """How long an epoch took on a rank, validation included; the precision is a half width."""

    rank: int
    #: Fits of one job, and trainings of one log, are counted from 0, and epochs within them as training
    #: counts them, from 0.
    fit: int
    epoch: int
    s: float
    precision_s: float


# Epochs that are rounded by more of their time tell no throughput.
_ROUNDED = 0.05


@dataclass(frozen=True)
class EpochTimes:
    """Times from logs of epochs; None if these do not show them. ``*_precision_*`` are half widths."""

    #: The source of the logs and their precision, in words.
    known_from: str
    precision: str
    #: The epochs of each fit in the order in which they were trained; a restart may repeat some.
    epochs: tuple[EpochTime, ...]
    #: The mean over the epochs of the last fit, without the first, which includes tracing.
    mean_s: float | None
    precision_s: float | None
    #: The mean time of a step; it includes validation if the logs do not separate it.
    step_ms: float | None
    step_precision_ms: float | None
    #: The mean time between steps of a metric that may be epochs or steps.
    metric_step_ms: float | None
    #: The throughput of one rank over the same epochs.
    samples_per_second_per_rank: float | None

    @property
    def count(self) -> int:
        """Count the epochs, of the rank with most of them."""
        return max(Counter(epoch.rank for epoch in self.epochs).values(), default=0)


def epoch_times(run: Run) -> EpochTimes | None:
    """Summarise a run's logs of epochs; None for a run with steps, or without either."""
    precision = run.fact("precision")
    if run.rows or precision is None:
        return None
    epochs = _epochs(run)
    mean, precision_s = _mean(run, epochs)
    step_ms, step_half = _step(run, mean, precision_s)
    return EpochTimes(
        known_from=str(run.fact("known_from")),
        precision=str(precision),
        epochs=epochs,
        mean_s=mean,
        precision_s=precision_s,
        step_ms=step_ms,
        step_precision_ms=step_half,
        metric_step_ms=recorded_number(run, "metric_step_ms"),
        samples_per_second_per_rank=_throughput(run, mean, precision_s, step_ms),
    )


def samples_of_all_ranks(run: Run, known: EpochTimes) -> float | None:
    """Return the samples per second of all ranks together; None if their number is unknown."""
    per_rank, size = known.samples_per_second_per_rank, known_size(run)
    return None if per_rank is None or size is None or run.size_is_least else per_rank * size


def known_size(run: Run) -> int | None:
    """Return the number of ranks that trained; None if a single log does not record it."""
    return run.size if run.fact("size") is not None or len(run.ranks) > 1 else None


def samples_per_epoch(run: Run) -> float | None:
    """Return the samples of all ranks in an epoch; None if they are not recorded."""
    size, whole = known_size(run), recorded_number(run, "training_samples")
    steps, batch = recorded_number(run, "steps_per_epoch"), recorded_number(run, "batch_size")
    if size is None:
        return None
    each = recorded_number(run, "samples_per_epoch")
    if each is not None:
        return each * size
    if steps is None or batch is None:
        return whole
    # A data set that is split among ranks fills all steps except the last one.
    shared_out = whole is not None and abs(steps * batch * size - whole) <= batch * size
    return whole if shared_out else steps * batch * size


def steady_epochs(epochs: Sequence[EpochTime], first_epoch: object) -> list[EpochTime]:
    """Return the epochs of the last fit without the first; the first if it is the only one."""
    last_fit = max((epoch.fit for epoch in epochs), default=0)
    of_last_fit = [epoch for epoch in epochs if epoch.fit == last_fit]
    return [epoch for epoch in of_last_fit if epoch.epoch != first_epoch] or of_last_fit


class _Rows(NamedTuple):
    """The epochs of a run's logs as columns, in the order in which each log has them."""

    log: list[int]
    fit: list[int]
    epoch: list[int]
    begin: list[int]
    end: list[int]

    @classmethod
    def of(cls, run: Run) -> _Rows:
        """Read them; where a log's epochs begin again with the first, so does a training."""
        table = run.intervals.filter(arrow.equal(run.intervals["kind"], "epoch"))
        log, begin, end = (arrow.numbers(table[name]) for name in ("log", "begin", "end"))
        epoch = arrow.numbers(pc.fill_null(table["epoch"], 0)).astype(np.int64)
        fit = np.array([each.part for each in run.logs], np.int64)[log]
        order = np.argsort(log, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(log[order])) + 1):
            fit[rows] += passes(epoch[rows])
        return cls(*(column.tolist() for column in (log, fit, epoch, begin, end)))


def _epochs(run: Run) -> tuple[EpochTime, ...]:
    places: Counter[tuple[int, int]] = Counter()
    placed = []
    for log, fit, number, begin, end in zip(*_Rows.of(run), strict=True):
        epoch = _epoch(run.logs[log], fit, number, end - begin)
        # Ranks take turns.
        placed.append((fit, places[log, fit], epoch.rank, epoch))
        places[log, fit] += 1
    return tuple(epoch for *_, epoch in sorted(placed, key=lambda each: each[:3]))


def _epoch(log: Log, fit: int, number: int, ns: int) -> EpochTime:
    half = log.facts.get("epoch_precision_ms") or 0.0
    return EpochTime(log.rank, fit, number, ns / 1e9, half / 1e3)


def _mean(run: Run, epochs: Sequence[EpochTime]) -> tuple[float | None, float | None]:
    """Return the mean steady epoch and its half width, seconds."""
    steady = steady_epochs(epochs, run.fact("first_epoch"))
    if not steady:
        return None, None
    mean, half = (
        float(np.mean([epoch.s for epoch in steady])),
        recorded_number(run, "epoch_precision_ms"),
    )
    if half is None:
        return mean, None
    estimate = _between_timestamps(run, steady)
    # If epochs follow each other, the timestamps of their ends give a more precise mean than the logged
    # durations.
    if (
        estimate is not None
        and estimate[1] < half / 1e3
        and abs(estimate[0] - mean) <= estimate[1] + half / 1e3
    ):
        return estimate
    return mean, half / 1e3


def _between_timestamps(run: Run, steady: Sequence[EpochTime]) -> tuple[float, float] | None:
    """Return the mean time between the ends of epochs and its half width, seconds.

    None if lines have no timestamps, or an epoch is missing.
    """
    # An epoch of lines about steps may end anywhere between two of them.
    of_lines = run.fact("windows") is not None
    half = recorded_number(run, "epoch_precision_ms" if of_lines else "stamp_precision_ms")
    ends = {
        (run.logs[log].rank, fit, number): end
        for log, fit, number, _, end in zip(*_Rows.of(run), strict=True)
    }
    rank, fit = steady[0].rank, steady[0].fit
    numbers = sorted(epoch.epoch for epoch in steady if epoch.rank == rank)
    before = ends.get((rank, fit, numbers[0] - 1))
    count = numbers[-1] - numbers[0] + 1
    if half is None or before is None or count != len(numbers):
        return None
    return (ends[rank, fit, numbers[-1]] - before) / 1e9 / count, half / 1e3 / count


def _step(
    run: Run, mean_s: float | None, precision_s: float | None
) -> tuple[float | None, float | None]:
    """Return the mean step and its half width, ms: as logged, or epoch time over its steps."""
    logged = recorded_number(run, "step_ms")
    steps = recorded_number(run, "steps_per_epoch")
    if logged is not None:
        return logged, recorded_number(run, "step_precision_ms")
    # An epoch that is shorter than its rounding does not show how long its steps are.
    if not steps or mean_s is None or precision_s is None or mean_s <= precision_s:
        return None, None
    return mean_s * 1e3 / steps, precision_s * 1e3 / steps


def _throughput(
    run: Run, mean_s: float | None, precision_s: float | None, step_ms: float | None
) -> float | None:
    samples, batch = recorded_number(run, "samples_per_epoch"), recorded_number(run, "batch_size")
    whole = None if run.fact("training_samples") is None else samples_per_epoch(run)
    if whole is not None:
        samples = whole / run.size
    if samples is not None and mean_s is not None and (precision_s or 0.0) < _ROUNDED * mean_s:
        return samples / mean_s
    if run.fact("windows") is not None and run.fact("batch_from") is None:
        # A batch size in the settings may be that of one rank, or of a part of a step.
        return None
    of_step = recorded_number(run, "samples_per_step")
    if batch is not None and of_step is not None:
        # Ranks that share a model share a batch as well.
        batch = of_step / run.size
    return batch * 1e3 / step_ms if batch is not None and step_ms else None


def recorded_number(run: Run, name: str) -> float | None:
    """Return a fact that is a number; None for anything else."""
    value = run.fact(name)
    return float(value) if isinstance(value, (int, float)) else None
