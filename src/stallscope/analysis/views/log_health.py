"""Summarise a run's logs rank by rank: their content, and the missing parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.arrays import arrow
from stallscope.arrays.pivot import in_parts, of_generation
from stallscope.arrays.types import Ints
from stallscope.run import Log, Run

from ..settings.setup import number

#: Timestamps within a step, in order.
TIMESTAMPS = ("data", "ready", "reduced")
# Numbers that are further apart come from a damaged log, and must not cost memory.
_FURTHEST_APART = 10_000_000


@dataclass(frozen=True)
class RankLogs:
    """The logs of one rank; it has none if ``files`` is 0."""

    rank: int
    #: The host on which it ran last; None if it left no log.
    host: str | None
    files: int
    size: int
    steps: int
    #: Steps that some other rank recorded in the same generations and this one did not.
    missing_steps: int
    torn: int
    #: Whether its last log has an end row.
    ended: bool
    #: The cost of recording: microseconds of the training thread per iteration (the median of the last
    #: ones), and bytes written. None if its last log does not record them.
    cost_us: float | None = None
    written: int | None = None

    @property
    def whole(self) -> bool:
        return bool(self.files) and self.ended and not self.torn and not self.missing_steps


@dataclass(frozen=True)
class MissingTimestamps:
    """Why timestamps could not be placed, and on which ranks."""

    reason: str
    ranks: tuple[int, ...]


def rank_logs(run: Run) -> tuple[RankLogs, ...]:
    """Summarise the logs of every rank that trained, by its number."""
    counts = np.zeros(len(run.logs), np.int64)
    for part in in_parts(run.steps):
        counts += np.bincount(arrow.numbers(part["log"]), minlength=len(run.logs))
    recorded = _steps_by_generation(run)
    costs = run.recorder_cost
    by_rank: dict[int, list[int]] = {rank: [] for rank in range(run.size)}
    for index, log in enumerate(run.logs):
        by_rank.setdefault(log.rank, []).append(index)
    return tuple(
        replace(
            _of_rank(rank, by_rank[rank], run, counts, recorded),
            cost_us=_amount(costs.get(rank, {}).get("host_us_median")),
            written=number(costs.get(rank, {}).get("bytes")),
        )
        for rank in sorted(by_rank)
    )


def timestamps_measured(run: Run) -> dict[str, float | None]:
    """Return the share of recorded steps that have each timestamp; None without steps."""
    rows = run.steps.num_rows
    return {name: 1 - run.steps[name].null_count / rows if rows else None for name in TIMESTAMPS}


def missing_timestamps(run: Run) -> tuple[MissingTimestamps, ...]:
    """Return the recorders' reasons for timestamps that they could not place."""
    ranks: dict[str, set[int]] = {}
    for log in run.logs:
        reason = _reason(log)
        if reason:
            ranks.setdefault(reason, set()).add(log.rank)
    return tuple(
        MissingTimestamps(reason, tuple(sorted(numbers))) for reason, numbers in ranks.items()
    )


def _amount(value: object) -> float | None:
    """Return a value from a log if it is a plausible number; None otherwise."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e15:
        return None
    return float(value)


def _reason(log: Log) -> str:
    stamps = log.facts.get("stamps")
    return str(stamps.get("reason") or "") if isinstance(stamps, Mapping) else ""


def _of_rank(
    rank: int, indices: list[int], run: Run, counts: Ints, recorded: Mapping[int, int]
) -> RankLogs:
    if not indices:
        return RankLogs(rank, None, 0, 0, 0, sum(recorded.values()), 0, ended=False)
    logs = [run.logs[index] for index in indices]
    last = max(logs, key=lambda log: (log.generation, log.part))
    steps = int(counts[indices].sum())
    expected = sum(recorded.get(generation, 0) for generation in {log.generation for log in logs})
    return RankLogs(
        rank,
        last.host,
        len(logs),
        sum(log.size for log in logs),
        steps,
        max(0, expected - steps),
        sum(log.torn for log in logs),
        last.ended,
    )


def _steps_by_generation(run: Run) -> dict[int, int]:
    """Count the distinct steps of each generation over all ranks."""
    numbers = pc.unique(run.steps["generation"]).to_pylist()
    return {
        number: _count_distinct(of_generation(run.steps, number)["step"])
        for number in sorted(numbers)
    }


def _count_distinct(step: pa.ChunkedArray) -> int:
    span = pc.min_max(step).as_py()
    if span["max"] - span["min"] > _FURTHEST_APART:
        return int(pc.count_distinct(step).as_py())
    seen = np.zeros(span["max"] - span["min"] + 1, bool)
    for chunk in step.chunks:
        seen[arrow.numbers(chunk) - span["min"]] = True
    return int(seen.sum())
