"""What batches and experts get, and how much longer steps take for it: throughput, work, and padding.

How long an element or a token takes is estimated: from ranks whose batches, or experts' tokens, differ
within a step, and, for padding, from the batches of a rank one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.arrays import arrow
from stallscope.arrays.blocks import NULL, Block
from stallscope.arrays.distributions import normal_quantile
from stallscope.arrays.stats import Mean, mean_with_interval
from stallscope.arrays.types import Bools, Floats, Ints
from stallscope.formatting.numbers import percent, percent_ends, plus_minus
from stallscope.run import Run
from stallscope.words import WorkUnit

from ..ledger.ledger import Ledger
from ..steps.alignment import AlignedSteps
from .delays_in_steps import Delays, take_off

# Batches differ if their sizes within a step do by this share.
_VARIES = 0.01
# A rank has larger batches than the others from this share on, if that is not chance: so often a rank
# is named that has none. So many ranks are looked at, those with the largest batches.
_LARGER, _FALSE_ALARMS, _MOST_LARGER = 0.02, 0.02, 32

# -- throughput ------------------------------------------------------------------------------------

# The elements of a step are known if those of most steps are.
_MOST_STEPS = 0.9


@dataclass(frozen=True)
class Amount:
    """How much a job trains in one unit, of all ranks together, in the steady steps."""

    unit: WorkUnit
    per_step: Mean
    per_second: Mean

    @classmethod
    def of_steps(cls, unit: WorkUnit, per_step: Mean, step_ms: Mean) -> Amount:
        """Return the amount in steps that take this long."""
        return cls(unit, per_step, per_step.over(step_ms.scaled(1e-3)))


def amounts(
    run: Run,
    steady: Ledger | None,
    step_ms: Mean | None,
    samples_per_second: float | None,
    padding: Padding | None,
) -> tuple[Amount, ...]:
    """Return what the job trains in each unit that is known, the finest first."""
    if step_ms is None or step_ms.value <= 0:
        return ()
    tokens = None if padding is None else padding.tokens
    samples = None
    if samples_per_second:
        per_step = samples_per_second * step_ms.value / 1e3
        samples = Amount.of_steps("sample", Mean(per_step, (per_step, per_step)), step_ms)
    per_step_elements = _elements(run, steady, samples)
    elements = None
    if per_step_elements is not None:
        elements = Amount.of_steps("element", per_step_elements, step_ms)
    return tuple(amount for amount in (tokens, elements, samples) if amount is not None)


def _elements(run: Run, steady: Ledger | None, samples: Amount | None) -> Mean | None:
    """Return the elements of a step on all ranks; ranks without logs have as many as the others."""
    if not run.work_varies:
        if not isinstance(run.steps, pa.Table):
            return None
        usual = run.fact("sample_elements")
        facts = (log.facts.get("sample_elements") for log in run.last_logs.values())
        is_alike = type(usual) is int and all(fact == usual for fact in facts)
        if samples is None or not is_alike or usual <= 0:
            return None
        return samples.per_step.scaled(usual)
    if steady is None or "elements" not in steady.cells.names:
        return None
    sums = steady.cells.per_step(_sum_of_elements)
    is_known = sums >= 0
    if is_known.mean() < _MOST_STEPS:
        return None
    return mean_with_interval(sums[is_known]).scaled(run.size / len(steady.ranks))


def _sum_of_elements(block: Block) -> Ints:
    """Kernel: return the elements of all ranks per step; −1 if those of a rank are unknown."""
    elements = block["elements"]
    known = (elements != NULL).all(axis=1)
    return np.where(known, np.where(known[:, None], elements, 0).sum(axis=1), -1)


# -- unequal work ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Routed:
    """The tokens that each rank's experts received, in the steps in which all ranks noted them."""

    #: Positions of the steps in the ledger, and the tokens: s × R.
    at: Ints = field(repr=False)
    tokens: Floats = field(repr=False)


@dataclass(frozen=True)
class Work:
    """How much longer ranks compute for larger batches, or for more tokens of their experts."""

    #: Nanoseconds per element or token.
    slope: Mean
    #: The positions of ranks that certainly have more work than the mean, and how much more.
    larger: tuple[tuple[int, float], ...]
    #: The tokens of experts; None of batches, whose elements are in the ledger.
    routed: Routed | None


def routed_tokens(run: Run, aligned: AlignedSteps, ledger: Ledger) -> Routed | None:
    """Return what experts received in the steady steps; None if too few steps tell that."""
    noted = _noted(run, aligned, ledger, "routed")
    if noted is None:
        return None
    steps, times, tokens, _ = noted
    on_all = (times > 0).all(axis=1)
    if on_all.sum() < _FEWEST_COUNTED:
        return None
    return Routed(np.searchsorted(ledger.steps, steps[on_all]), tokens[on_all])


def unequal_work(
    ledger: Ledger, every: Sequence[Delays], routed: Routed | None = None
) -> Work | None:
    """Estimate the time of an element from batches of different sizes within steps, or of a token.

    Ranks may differ in speed, so that each rank is compared with itself: its mean difference from the
    other ranks is taken off. Without work whose differences change, nothing is estimated.

    Args:
        ledger: the steady steps.
        every: delays of compute that are known otherwise.
        routed: the tokens of experts; None for the elements of batches.
    """
    if (routed is None and "elements" not in ledger.cells.names) or len(ledger.ranks) < 2:
        return None
    count, work, compute, total = ledger.cells.summed(_differences, every, routed)
    if not count.any() or not total.any():
        return None
    known = np.maximum(count, 1)
    means = work / known, compute / known
    products = ledger.cells.gathered(_products, every, routed, *means)
    of_both, of_work = (part.astype(np.float64) for part in products)
    usual = float(total.sum() / max(count.sum(), 1))
    variance = float(of_work.mean()) / len(ledger.ranks)
    if not usual or np.sqrt(variance) < _VARIES * usual:
        return None
    slope = float(of_both.mean() / of_work.mean())
    # The error of a ratio of means is that of the mean of the residuals.
    error = mean_with_interval((of_both - slope * of_work) / float(of_work.mean()))
    if error.ci95 is None:
        return None
    estimate = Mean(
        slope, (slope + error.ci95[0] - error.value, slope + error.ci95[1] - error.value)
    )
    assert estimate.ci95 is not None
    if estimate.ci95[0] <= 0:
        return None
    return Work(estimate, _larger(ledger, means[0] / usual, routed), routed)


def _larger(ledger: Ledger, more: Floats, routed: Routed | None) -> tuple[tuple[int, float], ...]:
    """Return which ranks have more work beyond chance, given by what share each rank has more."""
    largest = np.argsort(-more)[:_MOST_LARGER]
    largest = np.sort(largest[more[largest] > _LARGER])
    if not len(largest):
        return ()
    known, of_ranks = ledger.cells.gathered(_work_of, largest, routed)
    # One of many ranks has more work by chance.
    wider = normal_quantile(1 - _FALSE_ALARMS / len(more)) / normal_quantile(0.975)
    certain = []
    for position, of_rank in zip(largest.tolist(), of_ranks, strict=True):
        mean = mean_with_interval(of_rank[known])
        if mean.ci95 is not None and mean.value > wider * (mean.value - mean.ci95[0]):
            certain.append((position, float(more[position])))
    return tuple(certain)


def _work_of(block: Block, ranks: Ints, routed: Routed | None) -> tuple[Bools, Floats]:
    """Kernel: return the steps whose work is known, and the relative work of some ranks."""
    known, work, _ = relative_work(block, (), routed)
    return known, work[:, ranks].T


def _differences(block: Block, every: Sequence[Delays], routed: Routed | None) -> Ints:
    """Kernel: sum, per rank, the steps, the differences of work and of compute, and the work."""
    known, work, compute = relative_work(block, every, routed)
    total = np.where(known[:, None], _work_in(block, routed)[1], 0.0)
    count = np.broadcast_to(known[:, None], work.shape)
    return np.array([part.sum(axis=0) for part in (count, work, compute, total)], np.float64)


def _products(
    block: Block,
    every: Sequence[Delays],
    routed: Routed | None,
    mean_work: Floats,
    mean_compute: Floats,
) -> tuple[Floats, Floats]:
    """Kernel: return, per step, the sums over ranks of work × compute and of work²."""
    known, work, compute = relative_work(block, every, routed)
    work = np.where(known[:, None], work - mean_work, 0.0)
    return np.asarray((work * (compute - mean_compute)).sum(axis=1)), (work**2).sum(axis=1)


def relative_work(
    block: Block, every: Sequence[Delays], routed: Routed | None
) -> tuple[Bools, Floats, Floats]:
    """Return the steps whose work is known, and work and compute relative to the mean of all ranks."""
    compute = block["compute"].astype(np.float64)
    for pauses in every:
        take_off(block, compute, pauses)
    known, work = _work_in(block, routed)
    known = known & block["measured"].all(axis=1)
    work = np.where(known[:, None], work, 0.0)
    compute[~known] = 0.0
    return (
        known,
        work - work.mean(axis=1, keepdims=True),
        compute - compute.mean(axis=1, keepdims=True),
    )


def _work_in(block: Block, routed: Routed | None) -> tuple[Bools, Floats]:
    """Return the steps of which all ranks' elements, or tokens, are known, and these."""
    if routed is None:
        elements = block["elements"]
        return (elements != NULL).all(axis=1), elements.astype(np.float64)
    first, last = np.searchsorted(routed.at, (block.steps.start, block.steps.stop))
    at = routed.at[first:last] - block.steps.start
    tokens = np.zeros(block["compute"].shape)
    tokens[at] = routed.tokens[first:last]
    known = np.zeros(len(tokens), bool)
    known[at] = True
    return known, tokens


# -- padding ---------------------------------------------------------------------------------------

# Fewer steps whose batches all ranks have counted tell no share.
_FEWEST_COUNTED = 10
# Fewer independent ones tell no cost. Counted batches are far apart, and mostly chance makes τ large.
# Of 26 values with a correlation of 0.5, 93 % of the intervals contain the mean, and 87 % of those that
# have 10 independent values.
_FEWEST_APART = 5
#: Batches may be this much smaller than the mean batch: the time of smaller ones was not seen.
SMALLEST_BATCH = 0.5


@dataclass(frozen=True)
class Padding:
    """The tokens in batches of the steady steps, and what pads them; all ranks count some batches."""

    #: The share of places that hold no token, of all ranks and of each rank.
    share: Mean
    of_ranks: tuple[tuple[int, float], ...]
    #: None if the number of batches in a step is unknown.
    tokens: Amount | None
    #: The batches that were counted.
    batches: int
    #: The time per step that the job would save without padding; None if unknown, for this reason.
    saved_ms: Mean | None
    unknown: str

    def in_words(self) -> str:
        """Return a sentence, and the throughput in tokens."""
        share, tokens = self.share, self.tokens
        between = "" if share.ci95 is None else f" ({percent_ends(share.ci95)})"
        pace = ""
        if tokens is not None:
            rate = tokens.per_second
            pace = f" The job trains {plus_minus(rate.value, rate.ci95)} tokens/s."
        return (
            f"{percent(share.value)} of the places in batches{between} are padding, computed for "
            f"nothing.{pace}"
        )


@dataclass(frozen=True)
class _Counted:
    """Tokens and padding of steps in which all ranks have counted a batch: s × R, per batch."""

    at: Ints
    tokens: Floats
    padding: Floats
    batches: int


def noted_padding(run: Run, aligned: AlignedSteps, ledger: Ledger) -> Padding | None:
    """Return the padding in the steady steps; None if too few batches were counted."""
    counted = _counted(run, aligned, ledger)
    if counted is None:
        return None
    places = counted.tokens + counted.padding
    per_step = places.sum(axis=1)
    value = float(counted.padding.sum() / places.sum())
    # The error of a ratio of means is that of the mean of the residuals.
    error = mean_with_interval(
        (counted.padding.sum(axis=1) - value * per_step) / per_step.mean(), _FEWEST_APART
    )
    share = Mean(value, None)
    if error.ci95 is not None:
        share = Mean(value, (value + error.ci95[0], value + error.ci95[1]))
    micro = _batches_per_step(run, aligned.generation)
    tokens = None
    if micro is not None:
        # Ranks without logs have as many as the others.
        batches = micro * run.size / len(ledger.ranks)
        per_step = mean_with_interval(counted.tokens.sum(axis=1) * batches)
        step_ms = mean_with_interval(ledger.total).scaled(1e-6)
        tokens = Amount.of_steps("token", per_step, step_ms)
    saved, unknown = _without_padding(counted, micro, ledger)
    shares = counted.padding.sum(axis=0) / places.sum(axis=0)
    of_ranks = tuple(zip(ledger.ranks, shares.tolist(), strict=True))
    return Padding(share, of_ranks, tokens, counted.batches, saved, unknown)


def _counted(run: Run, aligned: AlignedSteps, ledger: Ledger) -> _Counted | None:
    noted = _noted(run, aligned, ledger, "padding")
    if noted is None:
        return None
    steps, batches, tokens, padding = noted
    on_all = ((batches > 0) & (tokens + padding > 0)).all(axis=1)
    if on_all.sum() < _FEWEST_COUNTED:
        return None
    each = np.maximum(batches[on_all], 1)
    at = np.searchsorted(ledger.steps, steps[on_all])
    return _Counted(at, tokens[on_all] / each, padding[on_all] / each, int(batches.sum()))


def _noted(
    run: Run, aligned: AlignedSteps, ledger: Ledger, kind: Literal["routed", "padding"]
) -> tuple[Ints, Floats, Floats, Floats] | None:
    """Return steps with rows of a kind, and the rows, tokens and padding of each rank: s × R.

    None without any.
    """
    table = run.intervals.filter(arrow.equal(run.intervals["kind"], kind))
    table = table.filter(arrow.equal(table["generation"], aligned.generation))
    table = table.filter(pc.is_in(table["rank"], arrow.array(np.array(ledger.ranks, np.int32))))
    table = table.filter(pc.is_in(table["step"], arrow.array(ledger.steps)))
    if not table.num_rows:
        return None
    rank = np.searchsorted(ledger.ranks, arrow.numbers(table["rank"]))
    steps, index = np.unique(arrow.numbers(table["step"]), return_inverse=True)
    sums = []
    for values in (
        np.ones(len(rank)),
        arrow.numbers(table["samples"]),
        arrow.numbers(table["steps"]),
    ):
        cells = np.zeros((len(steps), len(ledger.ranks)))
        np.add.at(cells, (index, rank), values)
        sums.append(cells)
    batches, tokens, padding = sums
    return steps, batches, tokens, padding


def _batches_per_step(run: Run, generation: int) -> float | None:
    """Return the mean number of batches that a rank trains in a step; None if unknown."""
    if not isinstance(run.steps, pa.Table):
        return None
    rows = run.steps.filter(arrow.equal(run.steps["generation"], generation))
    mean = pc.mean(rows["micro"]).as_py()
    return None if mean is None else float(mean)


def _without_padding(
    counted: _Counted, micro: float | None, ledger: Ledger
) -> tuple[Mean | None, str]:
    """Return the milliseconds per step that batches without padding save, at least, or why not."""
    if micro is None or "elements" not in ledger.cells.names:
        return None, "all batches have the same size, so that the time of a token does not show"
    slope = _slope_between_steps(ledger)
    if slope is None or slope.ci95 is None:
        return None, "whether larger batches take longer does not show"
    elements = ledger.cells.rows("elements", counted.at).astype(np.float64)
    if (elements == NULL).any():
        return None, "the sizes of some batches are unknown"
    # Elements of the first tensor for each place of the mask.
    places = (counted.tokens + counted.padding) * micro
    each = float(elements.mean() / places.mean())
    arrival = ledger.cells.rows("arrival", counted.at).astype(np.float64)
    shorter = slope.value * counted.padding * micro * each
    share = counted.padding.sum() * micro / places.sum()
    if share > 1 - SMALLEST_BATCH:
        # The slope at the usual size is too steep for smaller batches if time grows faster than size.
        compute = ledger.cells.rows("compute", counted.at).astype(np.float64)
        shorter = np.minimum(shorter * (1 - SMALLEST_BATCH) / share, (1 - SMALLEST_BATCH) * compute)
    saved = arrival.max(axis=1) - (arrival - shorter).max(axis=1)
    mean = mean_with_interval(saved, _FEWEST_APART)
    if mean.ci95 is None:
        return None, "too few batches were counted"
    error = mean.value * (slope.ci95[1] - slope.ci95[0]) / 2 / slope.value
    return mean.with_error(error).scaled(1e-6), ""


def _slope_between_steps(ledger: Ledger) -> Mean | None:
    """Estimate the time of an element from consecutive batches of a rank; None if they do not vary.

    Differences leave out what changes slowly, and that ranks differ in speed.
    """
    of_both, of_work, of_size = ledger.cells.gathered(_differences_in_time)
    variance = float(of_work.mean()) / len(ledger.ranks) / 2
    usual = float(of_size.mean()) / len(ledger.ranks)
    if not usual or np.sqrt(variance) < _VARIES * usual:
        return None
    slope = float(of_both.mean() / of_work.mean())
    error = mean_with_interval((of_both - slope * of_work) / float(of_work.mean()))
    if error.ci95 is None or slope + error.ci95[0] - error.value <= 0:
        return None
    return Mean(slope, (slope + error.ci95[0] - error.value, slope + error.ci95[1] - error.value))


def _differences_in_time(block: Block) -> tuple[Floats, Floats, Floats]:
    """Kernel: return, per step, sums over ranks of differences to the step before, and of elements.

    These are work × compute and work²; 0 in the first step of a block, and where something is unknown.
    """
    elements, compute = block["elements"].astype(np.float64), block["compute"].astype(np.float64)
    known = (block["elements"] != NULL) & block["measured"]
    comparable = np.zeros_like(known)
    comparable[1:] = known[1:] & known[:-1]
    work, time = np.zeros_like(elements), np.zeros_like(compute)
    work[1:], time[1:] = np.diff(elements, axis=0), np.diff(compute, axis=0)
    work, time = np.where(comparable, work, 0.0), np.where(comparable, time, 0.0)
    sizes = np.where(known, elements, 0.0)
    return (work * time).sum(axis=1), (work**2).sum(axis=1), sizes.sum(axis=1)
