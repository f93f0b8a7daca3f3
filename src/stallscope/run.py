"""The Run: what was recorded of one job, between collecting and analysing.

Times are int64 nanoseconds on the monotonic clock of the rank's own host; each log's anchor ties
that clock to wall time. What was not measured is null.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
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

#: One row per epoch, validation, checkpoint or end of a log; ``step`` is the step that comes next. A
#: row of the kind ``skipped`` stands for ``steps`` steps that were not recorded one by one: ``data``,
#: ``ready`` and ``reduced`` are their sums from each step's begin, null where one lacks the timestamp.
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


@dataclass(frozen=True)
class Problem:
    """Something in the logs that was not read, or not as it was meant; never dropped in silence."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@dataclass(frozen=True)
class Log:
    """One log of one rank."""

    path: str
    rank: int
    generation: int
    part: int
    facts: Mapping[str, Any]
    #: Whether the recorder closed it; a killed rank's log has no end.
    ended: bool
    #: Bytes on disk, and lines that could not be read.
    size: int = 0
    torn: int = 0

    @property
    def host(self) -> str:
        return str(self.facts.get("host") or "unknown host")

    @property
    def clock_domain(self) -> str:
        """Logs with the same clock domain have one monotonic clock."""
        return str(self.facts.get("clock_domain") or self.host)

    @property
    def continues(self) -> bool:
        """Whether it goes on where the file before it had grown large enough."""
        return bool(self.facts.get("continues"))

    @property
    def wall_minus_monotonic(self) -> int:
        """Nanoseconds to add to this log's times to get wall time; 0 without an anchor."""
        anchor = self.facts.get("anchor") or {}
        return int(anchor.get("wall_ns", 0)) - int(anchor.get("monotonic_ns", 0))

    @property
    def anchor(self) -> int:
        """Monotonic nanoseconds at which this log begins."""
        return int((self.facts.get("anchor") or {}).get("monotonic_ns", 0))

    @property
    def process_start(self) -> int:
        """Monotonic nanoseconds at which the process began."""
        return self.anchor + int(self.facts.get("process_start_us") or 0) * 1000


@dataclass(frozen=True)
class InputStage:
    """A stage of an input pipeline, and the milliseconds that it adds to a batch."""

    #: ``read``, ``decode``, ``augment``, ``shuffle``, ``batch``, ``copy`` or ``other``.
    kind: str
    #: The operation, and the user's function in it.
    name: str
    ms: float
    ci95_ms: tuple[float, float] | None


@dataclass(frozen=True)
class MeasuredInput:
    """One rank's loader, run alone with ``measure_input``."""

    path: str
    rank: int
    #: Ranks of the job that measured.
    size: int
    host: str
    #: The run that it is for, and the launch that measured; None where not known.
    run_id: str | None
    launch: str | None
    #: Wall time in nanoseconds: from the first batch asked for to the last one.
    began: int
    ended: int
    #: What was measured: ``tf.data``, ``DataLoader``, ``Sequence``, ``iterator``, …
    kind: str
    #: Batches after the warm-up, and in it.
    batches: int
    warm_up: int
    first_batch_ms: float | None
    #: Milliseconds per batch after the warm-up; None where too few batches came.
    ms: float | None
    ci95_ms: tuple[float, float] | None
    samples_per_batch: float | None
    #: Whether the data ended before as many batches came as were asked for.
    data_ended: bool
    #: What the data raised, in one sentence.
    error: str | None
    stages: tuple[InputStage, ...]
    #: Why stages are missing, where some or all of them are.
    no_stages: str | None


@dataclass(frozen=True)
class Event:
    """Something that happened while a job ran, as a log beside its own tells it."""

    #: ``stall``, ``host_blacklisted``, …: what findings and pages go by.
    kind: str
    #: The file that tells it.
    where: str
    #: What happened, in a few words.
    what: str
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    #: Wall time, nanoseconds since 1970 in UTC; None where that is not known.
    wall_ns: int | None = None
    #: What the log has stamped, as if it were UTC, where the log does not tell its zone.
    local_ns: int | None = None
    #: By how much later than stamped it may have been.
    uncertainty_ns: int = 0
    #: For how long it had lasted by then, at least.
    waited_ns: int = 0


# Two are equal where they are the same one: arrays are not compared.
@dataclass(frozen=True, eq=False)
class Series:
    """What a machine measured of itself over time, as a log beside the run's own tells it."""

    #: As its log calls it, without unit and place: ``gpu_0_utilization``.
    name: str
    #: ``%``, ``MB``, ``W``, …; empty where the name does not tell it.
    unit: str
    #: The machine, as its log calls it, and the rank; None where that is not known.
    node: str | None
    rank: int | None
    #: The file that tells it.
    where: str
    #: Wall time at which each value was logged: nanoseconds since 1970 in UTC, in ascending order. A
    #: value is about the time since the one before it.
    wall_ns: npt.NDArray[np.int64]
    #: As many values, none of them missing.
    value: npt.NDArray[np.float64]


@dataclass(frozen=True)
class Run:
    """Everything that was recorded of one job."""

    id: str
    source: str
    logs: tuple[Log, ...]
    steps: pa.Table
    intervals: pa.Table
    problems: tuple[Problem, ...] = field(default=())
    #: Loaders that were run alone beside this run; a rank may have measured more than once.
    input_times: tuple[MeasuredInput, ...] = field(default=())
    #: What other logs say that happened meanwhile.
    events: tuple[Event, ...] = field(default=())
    #: What machines measured of themselves meanwhile. Not a default of the class: of a collected run it
    #: is read on demand.
    series: tuple[Series, ...] = field(default_factory=tuple)

    @property
    def name(self) -> str:
        return str(self.fact("run_name") or self.id)

    @property
    def rows(self) -> int:
        """Rows of ``steps``."""
        return int(self.steps.num_rows)

    @property
    def allocate(self) -> Allocator:
        """Where arrays with a number per row of ``steps`` lie."""
        return allocator_for(self.rows)

    @property
    def ranks(self) -> list[int]:
        """Ranks that left a log."""
        return sorted({log.rank for log in self.logs})

    @property
    def size(self) -> int:
        """Ranks that trained, whether or not they left a log."""
        last = max(log.generation for log in self.logs)
        sizes = [int(log.facts.get("size") or 0) for log in self.logs if log.generation == last]
        return max([*sizes, 1 + max(log.rank for log in self.logs if log.generation == last)])

    @property
    def missing_ranks(self) -> list[int]:
        """Ranks that trained and left no log."""
        return sorted(set(range(self.size)) - set(self.ranks))

    @property
    def one_log_of_many(self) -> bool:
        """Whether a single rank's log is here of several ranks that trained: no waiting can be seen."""
        return self.size > 1 and len(self.ranks) == 1

    @property
    def hosts(self) -> list[str]:
        return sorted({log.host for log in self.logs})

    @property
    def sessions(self) -> list[int]:
        """Per log the index of the log with which its training session began: its own, or that of the
        first of the files in which it goes on."""
        first = list(range(len(self.logs)))
        last: dict[tuple[int, int], int] = {}
        by_part = sorted(first, key=lambda index: self.logs[index].part)
        for index in by_part:
            log = self.logs[index]
            before = last.get((log.rank, log.generation))
            if log.continues and before is not None and self.logs[before].part == log.part - 1:
                first[index] = first[before]
            last[log.rank, log.generation] = index
        return first

    @property
    def synthetic(self) -> bool:
        return bool(self.fact("synthetic"))

    @property
    def status(self) -> str:
        """``completed`` where every rank closed its last log; otherwise ``open``: running, or killed."""
        last: dict[int, Log] = {}
        for log in sorted(self.logs, key=lambda log: (log.generation, log.part)):
            last[log.rank] = log
        return "completed" if all(log.ended for log in last.values()) else "open"

    @property
    def started_at(self) -> datetime | None:
        """Wall time at which the first log began, in UTC."""
        walls = [int((log.facts.get("anchor") or {}).get("wall_ns", 0)) for log in self.logs]
        known = [wall for wall in walls if wall > 0]
        return datetime.fromtimestamp(min(known) / 1e9, tz=UTC) if known else None

    @property
    def recorder_cost(self) -> dict[int, Mapping[str, Any]]:
        """What recording cost, as the last log of each rank tells it; ranks that do not are left out."""
        costs = {}
        for log in sorted(self.logs, key=lambda log: (log.generation, log.part)):
            cost = log.facts.get("recorder_cost")
            if isinstance(cost, Mapping):
                costs[log.rank] = cost
        return costs

    def fact(self, name: str) -> Any:
        """A fact as the lowest rank that knows it recorded it; None where no rank does."""
        know = (log for log in self.logs if log.facts.get(name) is not None)
        first = min(know, key=lambda log: (log.rank, -log.generation, -log.part), default=None)
        return None if first is None else first.facts[name]

    def host_of(self, rank: int) -> str:
        """The host on which the rank ran last."""
        own = [log for log in self.logs if log.rank == rank]
        return max(own, key=lambda log: (log.generation, log.part)).host


def newest_first(runs: Iterable[Run]) -> list[Run]:
    """Runs by the time at which they began, the latest first."""

    def began(run: Run) -> float:
        return run.started_at.timestamp() if run.started_at else 0.0

    return sorted(runs, key=began, reverse=True)
