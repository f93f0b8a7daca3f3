"""Define the Run: the records of one job, which parsers return and the analysis reads.

Times are int64 nanoseconds on the monotonic clock of the rank's host; each log's anchor relates that
clock to wall time. Values that were not measured are null.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stallscope.arrays.memory import Allocator, allocator_for

#: One row per step and rank. ``log`` is the index of the row's log in ``Run.logs``.
STEPS_SCHEMA = pa.schema(
    [
        ("log", pa.int32()),
        ("generation", pa.int32()),
        ("rank", pa.int32()),
        ("step", pa.int64()),
        ("epoch", pa.int32()),
        ("begin", pa.int64()),
        ("data", pa.int64()),
        ("ready", pa.int64()),
        ("reduced", pa.int64()),
        ("end", pa.int64()),
        ("micro", pa.int32()),
        ("samples", pa.int64()),
    ]
)

#: The timestamps of a step, in their order. Each of these columns is one array. The other columns are
#: equal on many ranks, so their chunks may share memory.
TIMESTAMPS = ("begin", "data", "ready", "reduced", "end")

#: One row per epoch, validation, checkpoint or end of a log; ``step`` is the next step. A row of the
#: kind ``skipped`` stands for ``steps`` steps that were not recorded separately: ``data``, ``ready`` and
#: ``reduced`` are their sums, from each step's start; null if a step lacks the timestamp.
INTERVALS_SCHEMA = pa.schema(
    [
        ("log", pa.int32()),
        ("generation", pa.int32()),
        ("rank", pa.int32()),
        ("kind", pa.string()),
        ("step", pa.int64()),
        ("epoch", pa.int32()),
        ("begin", pa.int64()),
        ("end", pa.int64()),
        ("steps", pa.int64()),
        ("samples", pa.int64()),
        ("data", pa.int64()),
        ("ready", pa.int64()),
        ("reduced", pa.int64()),
    ]
)


# Two measurements of one process's start differ by less.
_SAME_START_NS = 2_000_000_000


@dataclass(frozen=True)
class Problem:
    """Something in the logs that was not read, or was read differently than written."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@dataclass(frozen=True)
class Log:
    """One log of one rank."""

    path: str
    rank: int
    #: The number of its generation: the ranks that train together between changes of membership.
    generation: int
    part: int
    facts: Mapping[str, Any]
    #: Whether the recorder closed the log; it does not if the rank is killed.
    ended: bool
    #: Size in bytes, and the number of unreadable lines.
    size: int = 0
    torn: int = 0

    @property
    def host(self) -> str:
        return str(self.facts.get("host") or "unknown host")

    @property
    def recorded_generation(self) -> int:
        """Return the generation that the process itself counted; its peers may count differently."""
        recorded = self.facts.get("generation")
        return recorded if isinstance(recorded, int) else self.generation

    @property
    def clock_domain(self) -> str:
        """Return the clock domain; logs with the same domain share a monotonic clock."""
        return str(self.facts.get("clock_domain") or self.host)

    @property
    def continues(self) -> bool:
        """Whether the log continues a file that had reached its maximum size."""
        return bool(self.facts.get("continues"))

    @property
    def wall_minus_monotonic(self) -> int:
        """Return the nanoseconds to add to this log's times to get wall time; 0 without an anchor."""
        anchor = self.facts.get("anchor") or {}
        return int(anchor.get("wall_ns", 0)) - int(anchor.get("monotonic_ns", 0))

    @property
    def anchor(self) -> int:
        """Return the start of this log, monotonic nanoseconds."""
        return int((self.facts.get("anchor") or {}).get("monotonic_ns", 0))

    @property
    def has_wall_clock(self) -> bool:
        """Whether the log's anchor has a wall time."""
        return bool((self.facts.get("anchor") or {}).get("wall_ns"))

    @property
    def process_start(self) -> int:
        """Return the start of the process, monotonic nanoseconds."""
        return self.anchor + int(self.facts.get("process_start_us") or 0) * 1000

    @property
    def job_start(self) -> int:
        """Return when the job began in this process, monotonic nanoseconds.

        That is the process's own start, unless a launcher keeps processes for later jobs.
        """
        began = self.facts.get("job_start_us")
        return self.process_start if began is None else self.anchor + int(began) * 1000

    def is_of_process_started_at(self, start: int) -> bool:
        """Whether the log's process started at this time, within the error of a measurement.

        Process numbers are reused, and containers repeat them, so the number alone is not enough.
        """
        return abs(self.process_start - start) < _SAME_START_NS


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


@dataclass(frozen=True)
class Run:
    """All records of one job."""

    id: str
    source: str
    logs: tuple[Log, ...]
    steps: pa.Table
    intervals: pa.Table
    problems: tuple[Problem, ...] = field(default=())
    #: Measurements of the loaders of this job; a rank may have measured more than once.
    input_times: tuple[MeasuredInput, ...] = field(default=())
    #: Measurements of the network on which this job ran.
    network_checks: tuple[NetworkCheck, ...] = field(default=())
    #: Events of other logs during the run.
    events: tuple[Event, ...] = field(default=())
    #: Measurements of machines during the run. A default_factory, because a class attribute would
    #: prevent RunOnDisk from loading it on demand.
    series: tuple[Series, ...] = field(default_factory=tuple)

    @property
    def name(self) -> str:
        return str(self.fact("run_name") or self.id)

    @property
    def rows(self) -> int:
        """Return the number of rows of ``steps``."""
        return int(self.steps.num_rows)

    @property
    def allocate(self) -> Allocator:
        """Return the allocator for arrays with a number per row of ``steps``."""
        return allocator_for(self.rows)

    @property
    def ranks(self) -> list[int]:
        """Return the ranks with a log."""
        return sorted({log.rank for log in self.logs})

    @cached_property
    def size(self) -> int:
        """Return the number of ranks that trained, with or without a log."""
        return self.size_of(self._last_generation)

    def size_of(self, generation: int) -> int:
        """Return the number of ranks that trained in a generation, with or without a log."""
        own = [log for log in self.logs if log.generation == generation]
        sizes = [int(log.facts.get("size") or 0) for log in own]
        return max([*sizes, 1 + max(log.rank for log in own)])

    @property
    def _last_generation(self) -> int:
        return max(log.generation for log in self.logs)

    @property
    def missing_ranks(self) -> list[int]:
        """Return the ranks that trained in the last generation and have no log of it."""
        return sorted(set(range(self.size)) - set(self.last_logs))

    @property
    def one_log_of_many(self) -> bool:
        """Whether only one of several ranks has a log; then waiting is not visible."""
        return self.size > 1 and len(self.ranks) == 1

    @property
    def hosts(self) -> list[str]:
        return sorted({log.host for log in self.logs})

    @property
    def sessions(self) -> list[int]:
        """Return per log the index of its session's first log."""
        return sessions_of(self.logs)

    @property
    def synthetic(self) -> bool:
        return bool(self.fact("synthetic"))

    @property
    def status(self) -> str:
        """Return ``completed`` if every rank closed its last log, otherwise ``open``."""
        return "completed" if all(log.ended for log in self.last_logs.values()) else "open"

    @cached_property
    def last_logs(self) -> dict[int, Log]:
        """Return the last log of each rank of the last generation, by rank."""
        return self.last_logs_of(self._last_generation)

    def last_logs_of(self, generation: int) -> dict[int, Log]:
        """Return the last log of each rank of a generation, by rank."""
        own = (log for log in self.logs if log.generation == generation)
        return {log.rank: log for log in sorted(own, key=lambda log: (log.rank, log.part))}

    @property
    def started_at(self) -> datetime | None:
        """Return the start of the first log, in UTC; None if unknown."""
        walls = [int((log.facts.get("anchor") or {}).get("wall_ns", 0)) for log in self.logs]
        known = [wall for wall in walls if wall > 0]
        return datetime.fromtimestamp(min(known) / 1e9, tz=UTC) if known else None

    @property
    def recorder_cost(self) -> dict[int, Mapping[str, Any]]:
        """Return the cost of recording by rank, from the last log of each rank that has it."""
        costs = {}
        for log in sorted(self.logs, key=lambda log: (log.generation, log.part)):
            cost = log.facts.get("recorder_cost")
            if isinstance(cost, Mapping):
                costs[log.rank] = cost
        return costs

    def ranks_of(self, event: Event) -> tuple[int, ...]:
        """Return the ranks that an event is about; it may name their processes instead."""
        by_process = {log.rank for log in self.logs if log.facts.get("pid") in event.pids}
        return tuple(sorted({*event.ranks, *by_process}))

    @cached_property
    def logs_by_rank(self) -> list[Log]:
        """Return the logs by rank, each rank's last one first."""
        return sorted(self.logs, key=lambda log: (log.rank, -log.generation, -log.part))

    def fact(self, name: str) -> Any:
        """Return a fact from the lowest rank that recorded it; None if no rank did."""
        return self._facts.get(name)

    @cached_property
    def _facts(self) -> dict[str, Any]:
        """Return each fact from the lowest rank that recorded it, looked up once for all logs."""
        found: dict[str, Any] = {}
        for log in self.logs_by_rank:
            for name, value in log.facts.items():
                if value is not None:
                    found.setdefault(name, value)
        return found


def sessions_of(logs: Sequence[Log]) -> list[int]:
    """Return per log the index of its session's first log: its own, unless it continues a file.

    Where processes take turns at one rank, the parts of one session are not consecutive.
    """
    first = list(range(len(logs)))
    last: dict[tuple[int, int, str, Any], int] = {}
    parts = {(log.rank, log.recorded_generation, log.part) for log in logs}
    for index in sorted(first, key=lambda one: logs[one].part):
        log = logs[index]
        place = (log.rank, log.recorded_generation)
        key = (*place, log.host, log.facts.get("pid"))
        before = last.get(key)
        if log.continues and before is not None:
            between = range(logs[before].part + 1, log.part)
            if all((*place, part) in parts for part in between):
                first[index] = first[before]
        last[key] = index
    return first


def newest_first(runs: Iterable[Run]) -> list[Run]:
    """Sort runs by start, the latest first."""

    def start(run: Run) -> float:
        return run.started_at.timestamp() if run.started_at else 0.0

    return sorted(runs, key=start, reverse=True)
