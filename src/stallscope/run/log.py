"""Define one log of one rank, problems in logs, and the schemas of their tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

# Two measurements of one process's start differ by less.
_SAME_START_NS = 2_000_000_000

#: The source of a number of ranks that only labels of lines tell.
FROM_LABELS = "ranks of the lines"
#: One row per step and rank. ``log`` is the index of the row's log in ``Run.logs``; ``elements`` are the
#: numbers in the batch's first tensor, null unless they vary.
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
        ("elements", pa.int64()),
    ]
)
#: The timestamps of a step, in their order. Each of these columns is one array. The other columns are
#: equal on many ranks, so their chunks may share memory.
TIMESTAMPS = ("begin", "data", "ready", "reduced", "end")
#: Where a host dispatches steps to its devices, the meaning of *ready*.
_HOST_WORK = "own work of the host"
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


@dataclass(frozen=True)
class Problem:
    """Something in the logs that was not read, or was read differently than written."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@dataclass(frozen=True)
class FetchedAhead:
    """The batches that a rank's input probe fetched ahead, and the steps that trained on them."""

    #: The step in which they were fetched, and the first step after the last one with such a batch.
    first_step: int
    end_step: int
    #: The time of each fetch.
    fetched_us: tuple[int, ...]
    #: Batches that the loader's workers keep ready; None if unknown.
    ready: int | None


@dataclass(frozen=True)
class PipelinePart:
    """A rank's part of a pipeline: its stages, of all of them, and how each step goes through them."""

    stages: tuple[int, ...]
    of: int
    micro_batches: int
    #: The name of the library's class, or of Megatron-Core's function.
    schedule: str


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
    def input_probes(self) -> list[FetchedAhead]:
        """Return the rank's input probes, in their order; what is no such description is left out."""
        fact = self.facts.get("input_probe")
        probes = fact.get("probes") if isinstance(fact, Mapping) else None
        read = map(_fetched_ahead, probes if isinstance(probes, list) else [])
        return [probe for probe in read if probe is not None]

    @property
    def refused_probe(self) -> str | None:
        """Return why batches could not be fetched ahead, if the user asked for it; None otherwise."""
        fact = self.facts.get("input_probe")
        reason = fact.get("refused") if isinstance(fact, Mapping) else None
        return reason if isinstance(reason, str) and reason else None

    @property
    def times_own_work(self) -> bool:
        """Whether *ready* is the rank's own work in the step: all waits in collectives come after it."""
        return self._meaning_of_ready in ("own work", _HOST_WORK)

    @property
    def times_host_work(self) -> bool:
        """Whether *ready* is the end of the host's work: what devices do comes after it, unseen."""
        return self._meaning_of_ready == _HOST_WORK

    @property
    def _meaning_of_ready(self) -> object:
        stamps = self.facts.get("stamps")
        return stamps.get("ready") if isinstance(stamps, Mapping) else None

    @property
    def pipeline_part(self) -> PipelinePart | None:
        """Return the rank's part of a pipeline; None without one."""
        fact = self.facts.get("pipeline_schedule")
        stages = fact.get("stages") if isinstance(fact, Mapping) else None
        if not isinstance(fact, Mapping) or not isinstance(stages, list):
            return None
        known = tuple(stage for stage in map(_count, stages) if stage is not None)
        of, micro_batches = _count(fact.get("of")), _count(fact.get("micro_batches"))
        if not known or len(known) < len(stages) or not of or not micro_batches:
            return None
        return PipelinePart(known, of, micro_batches, str(fact.get("schedule")))

    @property
    def place(self) -> dict[str, int]:
        """Return the rank's place in each named dimension of the job's mesh; empty without one."""
        groups = self.facts.get("groups")
        place = {}
        for group in groups if isinstance(groups, list) else []:
            if isinstance(group, Mapping) and group.get("name") not in (None, "undefined"):
                first, stride = _count(group.get("first")), _count(group.get("stride"))
                if first is not None and stride and self.rank >= first:
                    place[str(group["name"])] = (self.rank - first) // stride
        return place

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


def _fetched_ahead(entry: Any) -> FetchedAhead | None:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("fetched_us"), list):
        return None
    first, fetched = _count(entry.get("first_step")), [_count(us) for us in entry["fetched_us"]]
    times = tuple(us for us in fetched if us is not None)
    if first is None or len(times) < len(fetched):
        return None
    # A killed rank has trained on no more steps than batches.
    end = _count(entry.get("end_step"))
    end = first + len(times) if end is None else end
    return FetchedAhead(first, end, times, _count(entry.get("ready")))


def _count(value: Any) -> int | None:
    """Return a plausible count; anything else becomes None."""
    return value if type(value) is int and 0 <= value < 2**52 else None


def places_of(logs: Sequence[Log]) -> dict[str, list[str]]:
    """Return each dimension of the job's mesh in which all logs have a place, with these: ``dp 1``."""
    places = [log.place for log in logs]
    return {
        name: [f"{name} {place[name]}" for place in places]
        for name in (places[0] if places else ())
        if all(name in place for place in places)
    }


def wall_offsets(logs: Iterable[Log]) -> dict[str, int]:
    """Return per clock the nanoseconds to add to its times to get wall time, as its first log tells.

    A wall clock that is set later, as NTP does, then changes neither durations nor the order of logs.
    Logs that do not name their clock may be of a host before and after it was started again.
    """
    first: dict[str, Log] = {}
    for log in logs:
        if log.has_wall_clock and log.facts.get("clock_domain"):
            known = first.setdefault(log.clock_domain, log)
            if log.anchor < known.anchor:
                first[log.clock_domain] = log
    return {clock: log.wall_minus_monotonic for clock, log in first.items()}


def sessions_of(logs: Sequence[Log]) -> list[int]:
    """Return per log the index of its session's first log: its own, unless it continues a file.

    Where processes take turns at one rank, the parts of one session are not consecutive.
    """
    first = list(range(len(logs)))
    last: dict[tuple[int, int, str, Any], int] = {}
    parts = {(log.rank, log.recorded_generation, log.part) for log in logs}
    for index in sorted(first, key=lambda position: logs[position].part):
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


# -- Define the columns of a run's steps and intervals --------------------------------------------
