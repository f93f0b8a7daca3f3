"""Define the Run: all records of one job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import pyarrow as pa

from stallscope.arrays.memory import Allocator, allocator_for

from .events import Event, Series
from .log import Log, Problem, sessions_of
from .measured_input import MeasuredInput
from .network_check import NetworkCheck


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


def newest_first(runs: Iterable[Run]) -> list[Run]:
    """Sort runs by start, the latest first."""

    def start(run: Run) -> float:
        return run.started_at.timestamp() if run.started_at else 0.0

    return sorted(runs, key=start, reverse=True)
