"""Summarise a run's logs rank by rank, and the progress of each rank."""

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

from ..result import Analysis
from ..setup import number

#: Timestamps within a step, in order.
TIMESTAMPS = ("data", "ready", "reduced")
# Numbers that are further apart come from a damaged log, and must not cost memory.
_FURTHEST_APART = 10_000_000

# A rank has stopped if it is this many steps, and this many writes of its log, behind the others.
_BEHIND_STEPS = 3
_BEHIND_WRITES = 2


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


# -- Estimate how far a running job is, and how long the rest will take ---------------------------


@dataclass(frozen=True)
class Progress:
    """The progress of a job; None where the logs do not show it."""

    #: The last step that was reduced on any rank, and its epoch.
    last_step: int
    epoch: int | None
    #: Finished steps and all steps of the training, without those before the checkpoint from which the
    #: job resumed.
    done: int | None
    total: int | None
    #: Seconds left at the pace so far, including time between steps.
    left_s: float | None
    #: Ranks with logs that end some steps before the others', each with its last step.
    behind: tuple[tuple[int, int], ...]


def progress(analysis: Analysis) -> Progress | None:
    """Return the progress of a run; None before its first step."""
    run = analysis.run
    if not run.steps.num_rows:
        return None
    step = arrow.numbers(run.steps["step"])
    last = int(step.max())
    epoch = arrow.numbers(arrow.filled(run.steps["epoch"], -1))[step == last].max()
    per_epoch, epochs = _per_epoch(run), number(run.fact("epochs"))
    pace = _pace_s(analysis)
    done = total = left = None
    if per_epoch is not None and epochs is not None and epoch >= 0:
        first = number(run.fact("first_step")) or 0
        in_epoch = (last - first) % per_epoch + 1
        steps_left = per_epoch - in_epoch + max(epochs - 1 - int(epoch), 0) * per_epoch
        done = last + 1 - first
        total = done + steps_left
        left = None if pace is None else steps_left * pace
    behind = _behind(run, last, pace)
    return Progress(last, int(epoch) if epoch >= 0 else None, done, total, left, behind)


def _per_epoch(run: Run) -> int | None:
    """Return the steps of an epoch: several batches may be one step."""
    batches = number(run.fact("batches_per_epoch"))
    passes = number(run.fact("backward_passes_per_step")) or 1
    return None if batches is None or batches < passes else batches // passes


def _pace_s(analysis: Analysis) -> float | None:
    """Return seconds from one step to the next, including validation and checkpoints."""
    ledger = analysis.steady
    if ledger is None or len(ledger) < 2:
        return None if analysis.step is None else analysis.step.mean / 1e3
    whole = ledger.total.sum() + ledger.gaps[~ledger.session_start].sum()
    return float(whole) / len(ledger) / 1e9


def _behind(run: Run, last: int, pace: float | None) -> tuple[tuple[int, int], ...]:
    # Logs are written about once a second, not with every step.
    every = run.fact("flush_seconds")
    writes = _BEHIND_WRITES * every / pace if pace and isinstance(every, int | float) else 0
    allowed = _BEHIND_STEPS + writes
    ranks = arrow.numbers(run.steps["rank"])
    furthest = np.full(max(run.ranks) + 1, -1, np.int64)
    np.maximum.at(furthest, ranks, arrow.numbers(run.steps["step"]))
    late = [rank for rank in run.ranks if furthest[rank] < last - allowed]
    return tuple((rank, int(furthest[rank])) for rank in late)
