"""Find a timeline's steps by the repetitions of its tensors.

A step starts where tensors with more than half of the bytes of the step before begin to repeat. So
tensors of few bytes make no steps, such as metrics that are averaged over an evaluation. Tensors that
repeat within steps make none either.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stallscope.arrays.types import Bools, Floats, Ints

from .segment import by_tensor

# Names that Horovod makes up: they differ in every step.
_UNNAMED = re.compile(r"\.noname\.\d+")
_FEWEST_PERIODS = 3
# Gaps before the steps of unnamed tensors, as a ratio of the longer to the shorter ones. A larger ratio
# means that a step consists of several periods.
_EVEN = 4.0
_MOST_PERIODS_TRIED = 4096
# The share of a tensor's repetitions that may lie within steps: damaged ones.
_WITHIN = 0.01
# A set of tensors with this share of the bytes, once every few steps, makes steps ambiguous.
_SUBSTANTIAL = 0.2
_EVERY_FEW = 10

SINGLE = (
    "too few tensors are negotiated twice; either it has less than two steps, or names differ from step "
    "to step"
)
UNNAMED = (
    "its tensors have no names, and their sizes do not show where a step starts; name them, as in "
    "hvd.allreduce(gradient, name='layer1')"
)
SEVERAL_SETS = (
    "two sets of tensors repeat at different rates, and either can be a step, as in training with "
    "two optimizers"
)
NOTHING = "no reduction is negotiated"


@dataclass(frozen=True)
class Negotiations:
    """The negotiations of a timeline, in the order of their starts."""

    #: The tensor of each, from 0 on.
    tensor: Ints
    #: Microseconds without any operation before each.
    idle_us: Ints
    #: Positions of the first negotiation of each job: several if a job was started again.
    jobs: Ints


def step_positions(found: Negotiations, size: Floats, names: Sequence[str]) -> tuple[Ints, str]:
    """Return the positions of the negotiations at which steps start, and why there are none.

    Args:
        found: the negotiations.
        size: bytes of each tensor; NaN if unknown.
        names: the name of each tensor.
    """
    none = np.zeros(0, np.int64)
    if not len(found.tensor):
        return none, NOTHING
    weight = _weights(size)
    count = np.bincount(found.tensor, minlength=len(weight))
    once = count == 1
    if weight[once].sum() > weight @ count / 2:
        return _unnamed(found, once, size, names)
    starts = [
        first + _steps(found.tensor[first:last], weight)
        for first, last in zip(
            found.jobs, np.append(found.jobs[1:], len(found.tensor)), strict=True
        )
    ]
    positions = np.concatenate(starts)
    if _several_sets(found.tensor, positions, weight):
        return none, SEVERAL_SETS
    return positions, ""


def _weights(size: Floats) -> Floats:
    """Return the tensors' bytes; those of unknown size count as usual ones."""
    known = np.isfinite(size)
    usual = float(np.median(size[known])) if known.any() else 1.0
    weight = np.where(known, size, usual)
    return weight if weight.any() else np.ones(len(weight))


# -- tensors with names ---------------------------------------------------------------------------


def _steps(tensor: Ints, weight: Floats) -> Ints:
    """Return the positions at which the steps of one job start."""
    before = _previous(tensor)
    starts = _greedy(before)
    if not _repeat_most(tensor, before, starts, weight):
        starts = _heavy(tensor, before, weight)
        starts = _without_repetitions_within(tensor, before, starts, weight)
    return starts


def _previous(tensor: Ints) -> Ints:
    """Return the position of each tensor's previous negotiation; -1 for the first one."""
    order = by_tensor(tensor)
    again = np.append(False, tensor[order][1:] == tensor[order][:-1])[: len(order)]
    before = np.full(len(tensor), -1)
    before[order[again]] = order[np.flatnonzero(again) - 1]
    return before


def _greedy(before: Ints) -> Ints:
    """Start a step wherever any tensor of the step before repeats."""
    latest = np.maximum.accumulate(before)
    starts = [0]
    while (start := int(np.searchsorted(latest, starts[-1]))) < len(before):
        starts.append(start)
    return np.array(starts)


def _repeat_most(tensor: Ints, before: Ints, starts: Ints, weight: Floats) -> bool:
    """Whether each step, except for the last one, repeats most bytes of the step before."""
    step = _step_of(starts, len(tensor))
    own = weight[tensor]
    repeats = (before >= 0) & (step[before] == step - 1)
    whole = np.bincount(step, own)
    repeated = np.bincount(step, own * repeats, minlength=len(whole))
    return bool(np.all(repeated[1:-1] > whole[:-2] / 2))


def _step_of(starts: Ints, count: int) -> Ints:
    return np.repeat(np.arange(len(starts)), np.diff(np.append(starts, count)))


def _heavy(tensor: Ints, before: Ints, weight: Floats) -> Ints:
    """Start a step at the first repetition, once most bytes of the step before have repeated."""
    own = weight[tensor]
    earlier = np.where(before >= 0, before[before], -1)
    starts, window = [0], 256
    while True:
        first = starts[-1]
        here = slice(first, first + window)
        repeats = before[here] >= first
        repeated = np.cumsum(own[here] * (repeats & (earlier[here] < first)))
        most = repeated > np.cumsum(own[here] * ~repeats) / 2
        if most.any():
            length = int(np.argmax(repeats))
            starts.append(first + length)
            window = 4 * length + 64
        elif first + window >= len(tensor):
            return np.array(starts)
        else:
            window *= 2


def _without_repetitions_within(tensor: Ints, before: Ints, starts: Ints, weight: Floats) -> Ints:
    """Move starts of steps to the repetitions of tensors that occur once in every step."""
    step = _step_of(starts, len(tensor))
    count = np.bincount(tensor, minlength=len(weight))
    within = (before >= 0) & (step[before] == step)
    repeated = np.bincount(tensor[within], minlength=len(weight))
    single = (repeated <= _WITHIN * count) & (count > 0)
    if weight[single].sum() <= weight[count > 0].sum() / 2:
        return starts
    chosen = np.flatnonzero(single[tensor])
    found = chosen[_greedy(_previous(tensor[chosen]))]
    found[0] = 0
    return found


def _several_sets(tensor: Ints, starts: Ints, weight: Floats) -> bool:
    """Whether tensors with many bytes are absent from steps, and return every few steps."""
    step, before = _step_of(starts, len(tensor)), _previous(tensor)
    again = before >= 0
    gap = step[again] - step[before[again]]
    repeats = np.bincount(tensor[again], minlength=len(weight))
    next_step = np.bincount(tensor[again][gap <= 1], minlength=len(weight))
    soon = np.bincount(tensor[again][gap <= _EVERY_FEW], minlength=len(weight))
    skips = (repeats > 1) & (next_step < repeats / 2) & (soon > repeats / 2)
    if not skips.any():
        return False
    usual = float(np.median(np.bincount(step, weight[tensor])))
    return bool(weight[skips].sum() > _SUBSTANTIAL * usual)


# -- tensors without names ------------------------------------------------------------------------


def _unnamed(
    found: Negotiations, once: Bools, size: Floats, names: Sequence[str]
) -> tuple[Ints, str]:
    """Find the period with which the sizes of unnamed tensors repeat."""
    none = np.zeros(0, np.int64)
    unnamed = np.array([bool(_UNNAMED.search(name)) for name in names], bool)
    chosen = np.flatnonzero((once & unnamed)[found.tensor])
    if len(chosen) <= np.count_nonzero(once) / 2:
        return none, SINGLE
    sizes = np.nan_to_num(size[found.tensor[chosen]], nan=-1)
    jobs = np.searchsorted(chosen, found.jobs)
    period = _period(sizes, jobs)
    if period < 2:
        return none, UNNAMED
    job = np.searchsorted(jobs, np.arange(len(chosen)), "right") - 1
    first = chosen[(np.arange(len(chosen)) - jobs[job]) % period == 0]
    gaps = found.idle_us[first[1:]]
    short, long = np.percentile(gaps, [25, 90])
    if long > _EVEN * max(short, 1):
        return none, UNNAMED
    return first, ""


def _period(sizes: Floats, jobs: Ints) -> int:
    """Return the smallest period of the sizes of all jobs; 0 if there is none."""
    ends = np.append(jobs[1:], len(sizes))
    longest = int(np.argmax(ends - jobs))
    own = sizes[jobs[longest] : ends[longest]]
    candidates = np.flatnonzero(own == own[:1])[1:]
    for period in candidates[candidates <= len(own) // _FEWEST_PERIODS][
        :_MOST_PERIODS_TRIED
    ].tolist():
        start = own[:period]
        if all(
            np.array_equal(part, np.resize(start, len(part)))
            for part in (sizes[first:last] for first, last in zip(jobs, ends, strict=True))
        ):
            return int(period)
    return 0
