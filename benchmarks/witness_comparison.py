"""Compare what the step log and the Horovod Timeline record of rank 0's steps, for witness.py.

Ours is what the ledger books on rank 0 as wait and allreduce: from its last gradient ready until
reduced. The Timeline, which has rank 0 only, has for every gradient the intervals NEGOTIATE_ALLREDUCE
and ALLREDUCE. Fused gradients repeat the same interval, so their union counts, not their sum:

- whole: the union of all of a step's intervals. It begins with the first gradient, long before the
  last one is ready;
- exposed: the part of that union after rank 0's gradients were ready, which delays rank 0;
- span: from ready to the end of the last interval, including the time between intervals;
- alone: from the start of the last gradient's negotiation to the end of the last interval. It uses
  no timestamp of ours. A negotiation starts with the first rank that has the gradient, so it is
  comparable with ours only in steps in which rank 0 was ready before rank 1.

Ours is longer than exposed by three parts that add up exactly: *lead*, from ready until Horovod's
thread starts or continues with the gradient; *gaps* between the intervals; and *tail*, from the last
interval's end until TensorFlow has the result.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
from scipy import stats

from stallscope.parsers import read
from stallscope.parsers.formats.horovod_timeline import (
    Activities,
    BlockRows,
    TimelineReader,
    open_timeline,
)
from stallscope.run import Log, Run

# Horovod names every eager allreduce after its operation: the training's probes.
_PROBE = "HorovodAllreduce"
_OPERATION, _NEGOTIATION = "ALLREDUCE", "NEGOTIATE_ALLREDUCE"
# Tracing, and the first negotiation of every gradient: neither is a step's cost.
SKIPPED = 10
# Timestamps are in microseconds, and the wall and monotonic clocks are read one after the other.
RESOLUTION_NS = 100_000
_CLOSE_SHARE, _CLOSE_MS = 0.10, 1.0

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Clocks:
    """The range in milliseconds by which the timeline's clock is behind ours, after both anchors."""

    low_ms: float
    high_ms: float

    @property
    def correction_ms(self) -> float:
        """Return the smallest correction that keeps every allreduce within its probe."""
        return float(np.clip(0.0, self.low_ms, self.high_ms))


@dataclass(frozen=True)
class Comparison:
    """The steps of one training as both recorded them, without the first ones; milliseconds per step."""

    clocks: Clocks
    #: Share of all steps whose allreduces, in the timeline, lie between the two reductions of ours.
    matched: float
    gradients: int
    ours: Floats
    whole: Floats
    exposed: Floats
    span: Floats
    lead: Floats
    gaps: Floats
    tail: Floats
    alone: Floats
    #: Whether rank 0 was ready before the others.
    rank_0_first: Bools
    #: Cycles that started between ready and the negotiation of the last gradient; None if unmarked.
    cycles: Ints | None

    def agreement(self, measure: str) -> Agreement:
        """Return how far ours agrees with one of the timeline's measures."""
        like = self.rank_0_first if measure == "alone" else np.ones(len(self.ours), bool)
        return agreement(self.ours[like], getattr(self, measure)[like])


@dataclass(frozen=True)
class Agreement:
    """How far two figures of the same steps agree: differences are ours minus theirs."""

    steps: int
    ours_ms: float
    theirs_ms: float
    difference_ms: float
    p5_ms: float
    p95_ms: float
    correlation: float
    rank_correlation: float
    within_share: float
    within_ms: float


def compare(folder: Path) -> Comparison:
    """Compare the outputs of one training of witness_training.py.

    Raises:
        ValueError: if the timeline's allreduces cannot be assigned to steps.
    """
    (run,) = read(str(folder / "logs"))
    with open_timeline(folder / "timeline.json") as timeline:
        whole = BlockRows.joined(list(timeline.block_rows()))
    log = next(log for log in run.logs if log.rank == 0)
    ready_of_all, reduced = _stamps(run)
    ready = ready_of_all[:, 0]
    to_ours = _shift(timeline, log)
    clocks = _clocks(timeline, whole, to_ours, json.loads((folder / "probes.json").read_text()))
    to_ours += round(clocks.correction_ms * 1e6)

    begin, end = _intervals(_named(timeline, whole, _OPERATION), len(ready))
    asked, answered = _intervals(_named(timeline, whole, _NEGOTIATION), len(ready))
    begin, end, asked, answered = (us * 1000 + to_ours for us in (begin, end, asked, answered))
    # Horovod gets rank 0's gradient of a step only after its previous step was reduced.
    after = np.append(0, reduced[:-1])[:, None] - RESOLUTION_NS
    before = reduced[:, None] + RESOLUTION_NS
    matched = ((begin > after) & (end < before)).all(axis=1)

    begins, ends = np.hstack([asked, begin]), np.hstack([answered, end])
    start = np.zeros_like(ready)
    exposed, first, last = union(begins, ends, ready)
    columns = {
        "ours": reduced - ready,
        "whole": union(begins, ends, start)[0],
        "exposed": exposed,
        "span": last - ready,
        "lead": first - ready,
        "gaps": last - first - exposed,
        "tail": reduced - last,
        "alone": end.max(axis=1) - asked.max(axis=1),
    }
    ms = {name: column[SKIPPED:] / 1e6 for name, column in columns.items()}
    rank_0_first = ready_of_all.argmin(axis=1)[SKIPPED:] == 0
    return Comparison(
        clocks,
        float(matched.mean()),
        begin.shape[1],
        **ms,
        rank_0_first=rank_0_first,
        cycles=_cycles(whole.cycles * 1000 + to_ours, ready, asked.max(axis=1)),
    )


def agreement(ours: Floats, theirs: Floats) -> Agreement:
    difference = ours - theirs
    p5, p95 = np.percentile(difference, [5, 95])
    return Agreement(
        steps=len(ours),
        ours_ms=float(np.median(ours)),
        theirs_ms=float(np.median(theirs)),
        difference_ms=float(np.median(difference)),
        p5_ms=float(p5),
        p95_ms=float(p95),
        correlation=float(np.corrcoef(ours, theirs)[0, 1]),
        # A few long steps do not dominate it, as they do the other one.
        rank_correlation=float(stats.spearmanr(ours, theirs).statistic),
        within_share=float(np.mean(np.abs(difference) <= _CLOSE_SHARE * ours)),
        within_ms=float(np.mean(np.abs(difference) <= _CLOSE_MS)),
    )


def _stamps(run: Run) -> tuple[Ints, Ints]:
    """Return when gradients were ready (steps × ranks), and when rank 0's were reduced."""
    ranks = [run.steps.filter(pc.equal(run.steps["rank"], rank)).sort_by("step") for rank in (0, 1)]
    if any(steps["ready"].null_count or steps["reduced"].null_count for steps in ranks):
        raise ValueError("some steps have no timestamps")
    ready = np.stack([steps["ready"].to_numpy() for steps in ranks], axis=1)
    return ready, ranks[0]["reduced"].to_numpy()


def _shift(timeline: TimelineReader, log: Log) -> int:
    """Return the nanoseconds from the timeline's times to the log's monotonic ones, by both anchors."""
    if timeline.start_us is None:
        raise ValueError("the timeline does not say when it began")
    return timeline.start_us * 1000 - log.wall_minus_monotonic


def _clocks(
    timeline: TimelineReader, whole: BlockRows, to_ours: int, probes: list[tuple[int, int]]
) -> Clocks:
    """Return the range that the probes allow: each allreduce lies between the readings around it."""
    operations = _named(timeline, whole, _OPERATION)
    number = next(number for number, name in timeline.tensors.items() if name == _PROBE)
    operations = operations.only(operations.tensor == number)
    before, after = np.array(probes).T
    if len(operations) != len(before):
        raise ValueError(f"{len(operations)} allreduces answer {len(before)} probes")
    begin, end = (us * 1000 + to_ours for us in (operations.begin, operations.end))
    low, high = (before - begin).max() / 1e6, (after - end).min() / 1e6
    if low > high:
        raise ValueError("a clock was set while the training ran")
    return Clocks(float(low), float(high))


def _named(timeline: TimelineReader, whole: BlockRows, activity: str) -> Activities:
    number = timeline.activity_names.index(activity)
    return whole.activities.only(whole.activities.name == number)


def _intervals(rows: Activities, steps: int) -> tuple[Ints, Ints]:
    """Return start and end in the timeline's microseconds (steps × gradients).

    Every gradient is reduced once per step, so its n-th interval is that of the n-th step.

    Raises:
        ValueError: if no tensor has as many of them as there are steps.
    """
    numbers, counts = np.unique(rows.tensor, return_counts=True)
    gradients = numbers[counts == steps]
    if not len(gradients):
        raise ValueError(f"no tensor has {steps} activities of one kind")
    order = np.argsort(rows.tensor, kind="stable")
    order = order[np.isin(rows.tensor[order], gradients)]
    shape = (len(gradients), steps)
    return rows.begin[order].reshape(shape).T, rows.end[order].reshape(shape).T


def _cycles(begin: Ints, ready: Ints, asked: Ints) -> Ints | None:
    """Return, per step, how many cycles started after ready until the last gradient was requested."""
    if not len(begin):
        return None
    return (np.searchsorted(begin, asked) - np.searchsorted(begin, ready))[SKIPPED:]


def union(begin: Ints, end: Ints, start: Ints) -> tuple[Ints, Ints, Ints]:
    """Return, per step, the union after its start: its length, its first start and its last end."""
    order = np.argsort(begin, axis=1)
    begin = np.maximum(np.take_along_axis(begin, order, axis=1), start[:, None])
    end = np.maximum(np.take_along_axis(end, order, axis=1), begin)
    reached = np.maximum.accumulate(end, axis=1)
    new_from = begin.copy()
    new_from[:, 1:] = np.maximum(begin[:, 1:], reached[:, :-1])
    length = np.maximum(end - new_from, 0).sum(axis=1)
    last = reached[:, -1]
    first = np.where(end > begin, begin, last[:, None]).min(axis=1)
    return length, first, last
