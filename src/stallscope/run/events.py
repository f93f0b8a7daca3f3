"""Define events and measurements of machines during a run, from logs other than the step logs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Event:
    """Something that happened while a job ran, reported by a log other than the step logs."""

    #: ``stall``, ``host_blacklisted``, …
    kind: str
    #: The file that reports it.
    where: str
    #: A short description.
    what: str
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    #: Wall time, nanoseconds since 1970 in UTC; None if unknown.
    wall_ns: int | None = None
    #: The log's timestamp, taken as UTC, if the log has no time zone.
    local_ns: int | None = None
    #: How much later than its timestamp it may have happened.
    uncertainty_ns: int = 0
    #: The least time that it had lasted by then.
    waited_ns: int = 0
    #: Process numbers, if the log names processes instead of ranks.
    pids: tuple[int, ...] = ()
    #: The exit status of a process that ended; None for other events.
    status: int | None = None
    #: Whether lines about steps follow its message in the same file.
    followed: bool = False


# Compared by identity, because comparing arrays is ambiguous.
@dataclass(frozen=True, eq=False)
class Series:
    """Measurements of a machine over time, from a log other than the step logs."""

    #: The name in the log, without unit and place: ``gpu_0_utilization``.
    name: str
    #: ``%``, ``MB``, ``W``, …; empty if the name does not show it.
    unit: str
    #: The machine's name in the log, and the rank; None if unknown.
    node: str | None
    rank: int | None
    #: The file that has the measurements.
    where: str
    #: Wall times of the values, nanoseconds since 1970 in UTC, ascending. A value is about the time
    #: since the previous one.
    wall_ns: npt.NDArray[np.int64]
    #: The values; none is missing.
    value: npt.NDArray[np.float64]


# -- Define the measured speed of a rank's loader -------------------------------------------------


@dataclass(frozen=True)
class InputStage:
    """A stage of an input pipeline, with the milliseconds that it adds to a batch."""

    #: ``read``, ``decode``, ``augment``, ``shuffle``, ``batch``, ``copy`` or ``other``.
    kind: str
    #: The operation, with the user's function in it.
    name: str
    ms: float
    ci95_ms: tuple[float, float] | None


@dataclass(frozen=True)
class LoaderTrial:
    """A setting of a loader that was tried, with the milliseconds per batch."""

    workers: int
    #: Batches that each worker prepares in advance.
    prefetch: int
    ms: float
    ci95_ms: tuple[float, float] | None
    #: How long each of the last batches was waited for, milliseconds; empty if unknown.
    batches_ms: tuple[float, ...] = ()


@dataclass(frozen=True)
class MeasuredInput:
    """The speed of one rank's loader, measured with ``measure_input``."""

    path: str
    rank: int
    #: The number of ranks that measured.
    size: int
    host: str
    #: The run that it belongs to, and the launch that measured; None if unknown.
    run_id: str | None
    launch: str | None
    #: Wall time in nanoseconds, from the first request for a batch to the last batch.
    began: int
    ended: int
    #: The kind of loader: ``tf.data``, ``DataLoader``, ``Sequence``, ``iterator``, …
    kind: str
    #: The number of batches after the warm-up, and in it.
    batches: int
    warm_up: int
    first_batch_ms: float | None
    #: Milliseconds per batch after the warm-up; None with too few batches.
    ms: float | None
    ci95_ms: tuple[float, float] | None
    samples_per_batch: float | None
    #: Whether the data ended before the requested number of batches.
    data_ended: bool
    #: The error that the data raised, in one sentence.
    error: str | None
    stages: tuple[InputStage, ...]
    #: The reason for missing stages.
    no_stages: str | None
    #: Other settings of the loader.
    trials: tuple[LoaderTrial, ...] = ()


# -- Define the figures of a rank's DataLoader during training --------------------------------------


@dataclass(frozen=True)
class EpochBatches:
    """The batches of one epoch, in means per batch."""

    epoch: int
    batches: int
    made_ms: float
    waited_ms: float


@dataclass(frozen=True)
class Shards:
    """The shards of an iterable data set, by the time of batches that come from one of them."""

    #: How many are known, and the milliseconds that a batch usually takes.
    known: int
    ms: float
    #: The slowest: name, worker, batches, and the median milliseconds of one.
    slowest: tuple[tuple[str, int, int, float], ...]


@dataclass(frozen=True)
class LoaderFigures:
    """One rank's loader during training: milliseconds per batch; None where unknown."""

    rank: int
    #: ``DataLoader``, or the library that counts by itself: ``Ray Data``, ``tf.data``.
    kind: str
    #: The number of worker processes; without any, training makes batches itself.
    workers: int
    prefetch: int | None
    persistent: bool
    #: Batches that were made, and that training asked for, without the first of each loop.
    batches: int
    asked: int
    #: Each worker's share of time in which it made batches, and its time for one.
    busy: tuple[float, ...]
    worker_ms: tuple[float, ...]
    #: The time to make a batch: mean, median and 99th percentile, collating, on a CPU core, and ready
    #: to run without one.
    made_ms: float | None
    p50_ms: float | None
    p99_ms: float | None
    collate_ms: float | None
    cpu_ms: float | None
    crowded_ms: float | None
    #: The data set's longest functions with their shares of that time.
    functions: tuple[tuple[str, float], ...]
    shards: Shards | None
    #: Workers whose data ended before their first batch.
    without_data: tuple[int, ...]
    #: Ray Data: the parts of the wait. tf.data: the work of each stage, in all of its threads.
    stages: tuple[tuple[str, float], ...]
    #: The share of requests without a ready batch, and the mean number of ready ones.
    empty: float | None
    queued: float | None
    #: Training's wait, its parts for passing the batch on and for its turn, and the batch's own wait.
    waited_ms: float | None
    passed_ms: float | None
    blocked_ms: float | None
    turn_ms: float | None
    #: Loops over the loader, and the wait for the first batch of one.
    loops: int
    first_ms: float | None
    epochs: tuple[EpochBatches, ...]
    #: Why figures are missing.
    reason: str | None

    @classmethod
    def of(cls, rank: int, fact: Any) -> LoaderFigures | None:
        """Read the figures in the fact of a rank's log; None without any."""
        if not isinstance(fact, dict) or not _count(fact.get("batches")):
            return None
        quantiles = _numbers(fact.get("made_us_quantiles"))
        asked, empty = _count(fact.get("asked")), _count(fact.get("empty"))
        times = {name: _ms(fact.get(f"{name}_us")) for name in _TIMES}
        return cls(
            rank=rank,
            kind=fact["kind"] if isinstance(fact.get("kind"), str) else "DataLoader",
            workers=_count(fact.get("workers")),
            prefetch=_count(fact.get("prefetch")) or None,
            persistent=fact.get("persistent") is True,
            batches=_count(fact.get("batches")),
            asked=asked,
            busy=_numbers(fact.get("worker_busy")),
            worker_ms=tuple(us / 1e3 for us in _numbers(fact.get("worker_made_us"))),
            made_ms=times["made"],
            p50_ms=quantiles[0] / 1e3 if len(quantiles) == 3 else None,
            p99_ms=quantiles[2] / 1e3 if len(quantiles) == 3 else None,
            collate_ms=times["collate"],
            cpu_ms=times["cpu"],
            crowded_ms=times["crowded"],
            functions=_named(fact.get("functions")),
            shards=_shards(fact.get("shards")),
            without_data=tuple(map(int, _numbers(fact.get("workers_without_data")))),
            stages=tuple((name, us / 1e3) for name, us in _named(fact.get("stages"))),
            empty=min(empty / asked, 1.0) if asked else None,
            queued=next(iter(_numbers([fact.get("queued")])), None),
            waited_ms=times["waited"],
            passed_ms=times["passed"],
            blocked_ms=times["blocked"],
            turn_ms=times["turn"],
            loops=_count(fact.get("iterations")),
            first_ms=times["first"],
            epochs=_epochs(fact.get("epochs")),
            reason=fact["reason"] if isinstance(fact.get("reason"), str) else None,
        )

    @property
    def busy_share(self) -> float | None:
        """Return the mean share of time in which a worker makes batches."""
        return fmean(self.busy) if self.busy else None

    def share_of_making(self, ms: float | None) -> float | None:
        """Return a part of the time to make a batch as a share of it."""
        return ms / self.made_ms if ms is not None and self.made_ms else None


_TIMES = ("made", "collate", "cpu", "crowded", "waited", "passed", "blocked", "turn", "first")


def _count(value: Any) -> int:
    """Return a fact that is a count; 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _numbers(values: Any) -> tuple[float, ...]:
    """Return a list of finite numbers that are not negative; empty if it is not one."""
    if not isinstance(values, list):
        return ()
    valid = all(
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and math.isfinite(value)
        and value >= 0
        for value in values
    )
    return tuple(map(float, values)) if valid else ()


def _ms(microseconds: Any) -> float | None:
    return next((us / 1e3 for us in _numbers([microseconds])), None)


def _named(pairs: Any) -> tuple[tuple[str, float], ...]:
    return tuple(
        (pair[0], share)
        for pair in (pairs if isinstance(pairs, list) else [])
        if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str)
        for share in _numbers(pair[1:])
    )


def _shards(fact: Any) -> Shards | None:
    if not isinstance(fact, dict) or not isinstance(fact.get("slowest"), list):
        return None
    slowest = tuple(
        (shard[0], int(numbers[0]), int(numbers[1]), numbers[2] / 1e3)
        for shard in fact["slowest"]
        if isinstance(shard, list) and len(shard) == 4 and isinstance(shard[0], str)
        for numbers in [_numbers(shard[1:])]
        if numbers
    )
    ms = _ms(fact.get("us"))
    return None if ms is None else Shards(_count(fact.get("known")), ms, slowest)


def _epochs(rows: Any) -> tuple[EpochBatches, ...]:
    known = [_numbers(row) for row in (rows if isinstance(rows, list) else [])]
    return tuple(
        EpochBatches(int(row[0]), int(row[1]), row[2] / 1e3, row[3] / 1e3)
        for row in known
        if len(row) == 4
    )


# -- Define the measured speed of a network -------------------------------------------------------


@dataclass(frozen=True)
class Rounds:
    """Repeated reductions of this many bytes, in this many messages."""

    bytes: int
    messages: int
    #: Microseconds of each repetition.
    us: tuple[float, ...]


@dataclass(frozen=True)
class PairRounds:
    """Repeated exchanges of this many bytes between two hosts, both ways at once."""

    hosts: tuple[str, str]
    bytes: int
    #: Microseconds of each exchange, and of each exchange of a few bytes.
    us: tuple[float, ...]
    small_us: tuple[float, ...]


@dataclass(frozen=True)
class NetworkCheck:
    """The speed of a network without training, measured by ``stallscope netcheck``."""

    path: str
    #: The run that the gradients are from; None if unknown.
    run_id: str | None
    #: Wall time, nanoseconds, and the seconds of all measurements together.
    began: int
    seconds: float
    #: ``torch``, ``tensorflow`` or ``mxnet``.
    framework: str
    #: ``horovod`` or ``torch.distributed``, and the libraries that it used.
    reduced_by: str
    reduces_with: tuple[str, ...]
    device: str
    size: int
    #: The host of each rank.
    hosts: tuple[str, ...]
    settings: Mapping[str, str]
    #: Whether the run's logs gave the ``sizes`` of its gradients, or only their ``totals``; None without
    #: a run.
    gradients_from: str | None
    #: All gradients at once, as the run reduces them; and as one message. None without a run.
    as_run: Rounds | None
    together: Rounds | None
    #: One message of each of several sizes.
    sweep: tuple[Rounds, ...]
    #: One message of a few bytes, and several at once that cannot be fused.
    tiny: tuple[Rounds, ...]
    pairs: tuple[PairRounds, ...]
    #: Measurements that were left out, each with the reason.
    left_out: tuple[str, ...]

    @property
    def measured_at(self) -> datetime:
        """Return when it began, in UTC."""
        return datetime.fromtimestamp(self.began / 1e9, UTC)
