"""Handle runs that recorded some steps in full, and the others as sums (docs/step-log.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from stallscope.arrays import arrow
from stallscope.arrays.blocks import NULL, Block
from stallscope.arrays.stats import mean_with_interval
from stallscope.arrays.types import Bools, Ints
from stallscope.run import Run

from ..steps.alignment import PAUSES, AlignedSteps
from .build import earliest
from .ledger import Ledger, mean_over_ranks

#: The kind of rows that hold sums over steps.
SKIPPED = "skipped"
# The sample is representative if its mean differs from the others' by no more than this many half
# intervals, or by no more than this share.
_INTERVALS = 2.0
_NEGLIGIBLE = 0.02


@dataclass(frozen=True)
class Sampling:
    """The steps that were recorded in full: the first ones, then one block in ``one_in``."""

    full_steps: int
    one_in: int
    block: int
    seed: int

    def keeps(self, steps: Ints) -> Bools:
        """Mark the sampled steps, by the same rule as the recorder."""
        golden, first, second = (
            np.uint64(x) for x in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
        )
        offset = np.uint64((self.seed + 1) * int(golden) % 2**64)
        x = (steps // self.block).astype(np.uint64) + offset
        x = (x ^ (x >> np.uint64(30))) * first
        x = (x ^ (x >> np.uint64(27))) * second
        kept = (x ^ (x >> np.uint64(31))) % np.uint64(self.one_in) == 0
        return np.asarray(kept | (steps < self.full_steps))


def sampling_of(run: Run) -> Sampling | None:
    """Return how the run was sampled; None if every step was recorded."""
    fact = run.fact("sampling")
    if not isinstance(fact, Mapping):
        return None
    values = {name: fact.get(name) for name in ("full_steps", "one_in", "block", "seed")}
    known = {name: value for name, value in values.items() if type(value) is int and value >= 0}
    if len(known) < len(values) or not known["one_in"] or not known["block"]:
        return None
    return Sampling(**known)


def skipped_steps(run: Run) -> int:
    """Count the steps that are in the logs as sums only: per generation, the most of any rank."""
    table = run.intervals.filter(arrow.equal(run.intervals["kind"], SKIPPED))
    if not table.num_rows:
        return 0
    per_rank = table.group_by(["generation", "rank"]).aggregate([("steps", "sum")])
    most = per_rank.group_by("generation").aggregate([("steps_sum", "max")])
    return int(pc.sum(most["steps_sum_max"]).as_py() or 0)


def count_sampled_out(run: Run, aligned: Sequence[AlignedSteps], ledgers: Sequence[Ledger]) -> int:
    """Count the steps that are only recorded to time the next one, and are in no ledger."""
    sampling = sampling_of(run)
    if sampling is None:
        return 0
    count = 0
    for generation, ledger in zip(aligned, ledgers, strict=True):
        outside = ~np.isin(generation.steps, ledger.steps, assume_unique=True)
        count += int((outside & ~sampling.keeps(generation.steps)).sum())
    return count


@dataclass(frozen=True)
class TimeOutside:
    """Nanoseconds of a generation that are not in its ledger, between its first and its last step."""

    steps: int
    validation: int
    checkpoint: int
    #: In steps that no log has.
    unrecorded: int
    #: The last step with a known end, and its end.
    last_step: int
    ended: int


def time_outside(run: Run, aligned: AlignedSteps, ledger: Ledger) -> TimeOutside:
    """Return the time that the ledger lacks: steps sampled out, or measured by too few ranks.

    Args:
        run: the run.
        aligned: a generation.
        ledger: its ledger, with at least one step.
    """
    ended = aligned.cells.per_step(_reduced_first)
    known = np.flatnonzero(ended != NULL)
    sessions = np.cumsum(aligned.session_start)[known]
    follows = np.append(False, sessions[1:] == sessions[:-1])
    inside = np.isin(aligned.steps[known], ledger.steps, assume_unique=True)
    at = np.flatnonzero(follows & ~inside)
    begin, end = ended[known[at - 1]], np.maximum(ended[known[at]], ended[known[at - 1]])
    validation, checkpoint = (_within(aligned, kind, begin, end) for kind in PAUSES)
    last = int(ended[known[-1]])
    steps = int((end - begin).sum()) - validation - checkpoint
    unrecorded = 0
    if sampling_of(run) is None and steps > 0:
        # A stretch over a hole also has the steps around it.
        numbers = np.diff(aligned.steps[known])[at - 1]
        lost = (end - begin) * (1 - np.diff(known)[at - 1] / numbers)
        unrecorded = round(steps * float(lost.sum()) / max(1, int((end - begin).sum())))
    steps += _after_last_step(run, aligned, last) - unrecorded
    last_step = int(aligned.steps[known[-1]])
    return TimeOutside(steps, validation, checkpoint, unrecorded, last_step, last)


def holes(run: Run, aligned: AlignedSteps) -> tuple[tuple[int, int], ...]:
    """Return the first and last number of each stretch of steps that no log of a session has."""
    if sampling_of(run) is not None:
        return ()
    at = np.flatnonzero((np.diff(aligned.steps) > 1) & ~aligned.session_start[1:])
    ends = (aligned.steps[at] + 1).tolist(), (aligned.steps[at + 1] - 1).tolist()
    return tuple(zip(*ends, strict=True))


def _reduced_first(block: Block) -> Ints:
    return earliest(block["reduced"])


def _after_last_step(run: Run, aligned: AlignedSteps, last: int) -> int:
    """Return the nanoseconds in steps after the last recorded one, on the first rank's clock."""
    table = run.intervals
    chosen = pc.and_(
        arrow.equal(table["kind"], SKIPPED), arrow.equal(table["rank"], aligned.ranks[0])
    )
    chosen = pc.and_(chosen, arrow.equal(table["generation"], aligned.generation))
    after = arrow.scalar(int(aligned.steps[-1]) + 1, table["step"].type)
    table = table.filter(pc.and_(chosen, pc.greater(table["step"], after)))
    end = pc.max(table["end"]).as_py()
    if end is None or end <= last:
        return 0
    stretch = np.array([last]), np.array([end])
    return int(end - last - sum(_within(aligned, kind, *stretch) for kind in PAUSES))


def _within(aligned: AlignedSteps, kind: str, begin: Ints, end: Ints) -> int:
    """Return the time in intervals of a kind within some periods, of the rank with most."""
    if not len(begin):
        return 0
    chosen = aligned.intervals.kind == kind
    low, high = aligned.intervals.begin[chosen], aligned.intervals.end[chosen]
    at = np.searchsorted(begin, low, side="right") - 1
    inside = at >= 0
    clipped = np.maximum(np.minimum(high, end[at]) - low, 0)
    spent = np.zeros(len(aligned.ranks), np.int64)
    np.add.at(spent, aligned.intervals.rank_index[chosen][inside], clipped[inside].astype(np.int64))
    return int(spent.max(initial=0))


def sampling_bias_warning(run: Run, steady: Ledger) -> str | None:
    """Describe a stage in which the sampled steps differ from the others by more than chance.

    The logs have the sums of the others, so their mean is known exactly.
    """
    sampling = sampling_of(run)
    table = run.intervals.filter(arrow.equal(run.intervals["kind"], SKIPPED))
    if sampling is None or not table.num_rows:
        return None
    kept = steady.take(sampling.keeps(steady.steps) & (steady.steps >= sampling.full_steps))
    sums = {name: pc.sum(table[name]).as_py() for name in ("steps", "data", "ready")}
    if not len(kept) or any(table[name].null_count for name in sums) or not sums["steps"]:
        return None
    stages = {"input": sums["data"], "compute": sums["ready"] - sums["data"]}
    if run.times_host_work:
        # The time of the devices is known of single steps only.
        del stages["compute"]
    for name, skipped in stages.items():
        mean = mean_with_interval(kept.cells.per_step(mean_over_ranks, name))
        rest = skipped / sums["steps"]
        if mean.ci95 is None:
            continue
        far = _INTERVALS * (mean.ci95[1] - mean.ci95[0]) / 2
        if abs(mean.value - rest) > max(far, _NEGLIGIBLE * rest):
            return (
                f"{name} took {mean.value / 1e6:.3g} ms on average in the steps that were recorded in "
                f"full and {rest / 1e6:.3g} ms in the others: the figures of the first may not hold for "
                "all steps"
            )
    return None
