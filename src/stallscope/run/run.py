"""Define the Run: all records of one job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.arrays import arrow
from stallscope.arrays.memory import Allocator, allocator_for
from stallscope.arrays.pivot import by_parts
from stallscope.words import StepCauseCode

from .events import Event, LoaderFigures, MeasuredInput, NetworkCheck, Series
from .log import FROM_LABELS, STEPS_SCHEMA, Log, Problem, sessions_of, wall_offsets

# A rank that lacks a smaller share of the steps, or fewer steps, was only written, or read, a moment
# earlier.
_INCOMPLETE = 0.05
_FEWEST_LACKING = 10
# A rank with a smaller share of the steps is not compared with its peers, nor one with few steps where
# they have many.
_LEFT_OUT = 0.05
_FEW_STEPS, _FEW = 50, 0.25
# With less than this share of its steps, a rank's lateness is unknown in most steps.
_MOST = 0.5

#: What ``Run.ends_of`` returns.
END_COLUMNS = ("rank", "step", "end")

# How many steps a rank's logs have, the first and the last; None without steps.
_Span = tuple[int, int | None, int | None]


@dataclass(frozen=True)
class IncompleteRank:
    """A rank whose logs lack steps that its peers recorded: torn, cut, or without one of their parts."""

    generation: int
    rank: int
    #: How many steps its logs have, and the most that any rank's have.
    steps: int
    of: int
    #: Its first and last step; None without steps.
    first: int | None
    last: int | None
    #: The first and last step of the generation.
    began: int
    ended: int
    #: Whether it has too few steps for a comparison: the analysis is that of its peers.
    left_out: bool = False

    @property
    def missing(self) -> str:
        """Say where its steps are missing."""
        if self.first is None or self.last is None:
            return f"from step {self.began:,} on"
        parts = [f"before step {self.first:,}"] if self.first > self.began else []
        parts += [f"from step {self.last + 1:,} on"] if self.last < self.ended else []
        return " and ".join(parts) or f"in {self.of - self.steps:,} steps in between"


@dataclass(frozen=True)
class Run:
    """All records of one job."""

    id: str
    source: str
    logs: tuple[Log, ...]
    steps: pa.Table
    intervals: pa.Table
    problems: tuple[Problem, ...] = field(default=())
    #: Warnings about logs and folders at its place that are in none of the place's runs.
    place_warnings: tuple[str, ...] = field(default=())
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

    def ends_of(self, generation: int, steps: Sequence[int]) -> pa.Table:
        """Return ``END_COLUMNS`` of these steps of a generation, on all ranks.

        There are none if the rows are not in one table.
        """
        if not isinstance(self.steps, pa.Table):
            return STEPS_SCHEMA.empty_table().select([*END_COLUMNS])
        rows = self.steps.select(["generation", *END_COLUMNS])
        rows = rows.filter(pc.is_in(rows["step"], arrow.array(np.array(steps))))
        return rows.filter(arrow.equal(rows["generation"], generation)).select([*END_COLUMNS])

    @cached_property
    def work_varies(self) -> bool:
        """Whether the elements of batches were recorded, which they are only where they vary."""
        steps = self.steps
        return isinstance(steps, pa.Table) and steps["elements"].null_count < steps.num_rows

    def notes_cause(self, code: StepCauseCode) -> bool:
        """Whether all recorders of the last generation note this cause inside of steps."""
        if code == "unequal_work":
            return self.work_varies
        if code in ("padding", "uneven_routing"):
            kind = "routed" if code == "uneven_routing" else code
            return bool(self.intervals.filter(arrow.equal(self.intervals["kind"], kind)).num_rows)
        noted = (code in (log.facts.get("interruptions") or ()) for log in self.last_logs.values())
        # Recorders list evaluations once there is one, on the ranks that have it.
        return any(noted) if code == "background_evaluation" else all(noted)

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

    @property
    def size_known(self) -> bool:
        """Whether the logs say how many ranks trained; those of other programs may not."""
        return self.fact("size") is not None or self.fact("known_from") is None

    @property
    def size_is_least(self) -> bool:
        """Whether more ranks may have trained: labels name some that have no lines about steps."""
        return self.fact("size_from") == FROM_LABELS and len(self.ranks) < self.size

    @property
    def known_size(self) -> int | None:
        """Return the number of ranks that trained; None if the only rank's log does not say it."""
        return self.size if self.size_known or len(self.ranks) > 1 else None

    def size_of(self, generation: int) -> int:
        """Return the number of ranks that trained in a generation, with or without a log."""
        logs = [log for log in self.logs if log.generation == generation]
        sizes = [int(log.facts.get("size") or 0) for log in logs]
        return max([*sizes, 1 + max(log.rank for log in logs)])

    @property
    def _last_generation(self) -> int:
        return max(log.generation for log in self.logs)

    @property
    def missing_ranks(self) -> list[int]:
        """Return the ranks that trained in the last generation and have no log of it."""
        return sorted(set(range(self.size)) - set(self.last_logs))

    @cached_property
    def incomplete_ranks(self) -> tuple[IncompleteRank, ...]:
        """Return the ranks whose logs lack many of their generation's steps.

        Logs of one generation have the same steps, unless a file was cut or one of its parts is lost.
        """
        if _are_alike(self.logs, 1 - _INCOMPLETE):
            return ()
        spans: dict[tuple[int, int], tuple[int, int, int]] = {}
        for part in by_parts(self.steps, ("generation", "rank", "step"), _spans_in):
            for key, (steps, first, last) in part.items():
                before = spans.get(key, (0, first, last))
                joined = before[0] + steps, min(before[1], first), max(before[2], last)
                spans[key] = joined
        by_generation: dict[int, dict[int, _Span]] = {}
        for (generation, rank), span in spans.items():
            by_generation.setdefault(generation, {})[rank] = span
        for log in self.logs:
            # A log may have been cut before its first step.
            if log.generation in by_generation:
                by_generation[log.generation].setdefault(log.rank, (0, None, None))
        return tuple(
            rank
            for generation, spans_of_ranks in sorted(by_generation.items())
            for rank in _incomplete_in(generation, spans_of_ranks)
        )

    def recall_incomplete_ranks(self, ranks: tuple[IncompleteRank, ...]) -> None:
        """Take the incomplete ranks from an earlier analysis, so that no step is read for them."""
        vars(self)["incomplete_ranks"] = ranks

    def left_out(self, generation: int) -> set[int]:
        """Return the ranks with too few steps in a generation to be compared with their peers."""
        # The sizes of most runs' logs show it, without reading their steps.
        if _are_alike(self.logs, _MOST):
            return set()
        incomplete = self.incomplete_ranks
        return {rank.rank for rank in incomplete if rank.left_out and rank.generation == generation}

    @property
    def unknown_ranks(self) -> list[int]:
        """Return the ranks for which waiting looks like allreduce, in most steps or all of them."""
        if _are_alike(self.logs, _MOST):
            return self.missing_ranks
        short = {
            rank.rank
            for rank in self.incomplete_ranks
            if rank.generation == self._last_generation and rank.steps < _MOST * rank.of
        }
        return sorted({*self.missing_ranks, *short})

    @property
    def compared_ranks(self) -> list[int]:
        """Return the ranks of the last generation whose logs have enough steps for a comparison."""
        return sorted({*self.last_logs} - self.left_out(self._last_generation))

    @property
    def why_unknown(self) -> str:
        """Say what the logs of these ranks are."""
        return "missing" if self.unknown_ranks == self.missing_ranks else "missing or too short"

    @cached_property
    def loaders(self) -> tuple[LoaderFigures, ...]:
        """Return the figures of DataLoaders during training, of each rank that has recorded them."""
        last = (self.last_logs[rank] for rank in sorted(self.last_logs))
        figures = (LoaderFigures.of(log.rank, log.facts.get("loader")) for log in last)
        return tuple(loader for loader in figures if loader is not None)

    @property
    def one_log_of_many(self) -> bool:
        """Whether only one of several ranks has a log to compare; then waiting is not visible."""
        return self.size > 1 and len({*self.ranks} - self.left_out(self._last_generation)) == 1

    @property
    def times_host_work(self) -> bool:
        """Whether ranks' timestamps are those of their hosts, so that devices' work is unseen."""
        return any(log.times_host_work for log in self.logs)

    @property
    def hosts(self) -> list[str]:
        return sorted({log.host for log in self.logs})

    @property
    def sessions(self) -> list[int]:
        """Return per log the index of its session's first log."""
        return sessions_of(self.logs)

    def wall_offset(self, log: Log) -> int:
        """Return the nanoseconds to add to a log's times to get wall time, one number per clock."""
        return self._wall_offsets.get(log.clock_domain, log.wall_minus_monotonic)

    @cached_property
    def _wall_offsets(self) -> dict[str, int]:
        return wall_offsets(self.logs)

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
        logs = (log for log in self.logs if log.generation == generation)
        return {log.rank: log for log in sorted(logs, key=lambda log: (log.rank, log.part))}

    @property
    def lacks_end(self) -> bool:
        """Whether a log should have an end and has none; those of other programs just stop."""
        return self.status == "open" and self.fact("known_from") is None

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
        facts: dict[str, Any] = {}
        for log in self.logs_by_rank:
            for name, value in log.facts.items():
                if value is not None:
                    facts.setdefault(name, value)
        return facts


def newest_first(runs: Iterable[Run]) -> list[Run]:
    """Sort runs by start, the latest first."""

    def start(run: Run) -> float:
        return run.started_at.timestamp() if run.started_at else 0.0

    return sorted(runs, key=start, reverse=True)


def _are_alike(logs: Iterable[Log], least: float) -> bool:
    """Whether every rank's logs have more than this share of the bytes of its largest peer's."""
    sizes: dict[tuple[int, int], int] = {}
    for log in logs:
        key = log.generation, log.rank
        sizes[key] = sizes.get(key, 0) + log.size
    largest: dict[int, int] = {}
    for (generation, _), size in sizes.items():
        largest[generation] = max(largest.get(generation, 0), size)
    return all(size > least * largest[generation] for (generation, _), size in sizes.items())


def _spans_in(part: pa.Table) -> dict[tuple[int, int], tuple[int, int, int]]:
    """Kernel: return the number of steps, the first and the last of each generation and rank."""
    generation, rank, step = (
        arrow.numbers(part[name]).astype(np.int64) for name in ("generation", "rank", "step")
    )
    changes = (np.diff(generation) != 0) | (np.diff(rank) != 0)
    if changes.sum() * 8 > len(step):
        # The rows are in another order than rank by rank.
        order = np.lexsort((rank, generation))
        generation, rank, step = generation[order], rank[order], step[order]
        changes = (np.diff(generation) != 0) | (np.diff(rank) != 0)
    starts = np.append(0, np.flatnonzero(changes) + 1)
    counts = np.diff(starts, append=len(step))
    first, last = (join.reduceat(step, starts) for join in (np.minimum, np.maximum))
    spans: dict[tuple[int, int], tuple[int, int, int]] = {}
    for at, start in enumerate(starts.tolist()):
        key = int(generation[start]), int(rank[start])
        before = spans.get(key, (0, int(first[at]), int(last[at])))
        steps = before[0] + int(counts[at])
        spans[key] = steps, min(before[1], int(first[at])), max(before[2], int(last[at]))
    return spans


def _incomplete_in(generation: int, spans: Mapping[int, _Span]) -> Iterable[IncompleteRank]:
    """Return the incomplete ranks of a generation, by rank.

    Args:
        generation: its number.
        spans: per rank, how many steps its logs have, the first and the last.
    """
    counts = sorted((steps for steps, _, _ in spans.values()), reverse=True)
    most = counts[0]
    # Waiting shows only between two ranks, so the two with most steps stay unless both have too few.
    second = counts[1] if len(counts) > 1 else most
    peers = most if second < _least_of(most) else second
    began = min(first for _, first, _ in spans.values() if first is not None)
    ended = max(last for _, _, last in spans.values() if last is not None)
    for rank, (steps, first, last) in sorted(spans.items()):
        if most - steps > max(_FEWEST_LACKING, _INCOMPLETE * most):
            yield IncompleteRank(
                generation, rank, steps, most, first, last, began, ended, steps < _least_of(peers)
            )


def _least_of(steps: int) -> float:
    """Return the fewest steps with which a rank is compared with a peer that has this many."""
    return max(_LEFT_OUT * steps, min(_FEW_STEPS, _FEW * steps))
