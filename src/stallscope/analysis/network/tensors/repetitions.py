"""Find a timeline's steps by the repetitions of its tensors.

A step starts where tensors with more than half of the bytes of the previous step begin to repeat. So
tensors of few bytes start no steps, such as metrics that are averaged over an evaluation. Neither do
tensors that repeat within steps. Tensors without names are recognised by their sizes.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from stallscope.arrays.types import Bools, Floats, Ints

from .segment import by_tensor

# Names that PyTorch's and MXNet's ranks generate: they differ in every step. TensorFlow's eager mode
# gives all tensors one name.
_UNNAMED = re.compile(r"\.noname\.\d+")
_FEWEST_PERIODS = 3
# Metrics are numbers of up to 16 bytes. A step has more than this share of all tensors' bytes.
_METRIC_BYTES = 16
_NEGLIGIBLE = 1e-4
_LAST_STEPS = 5
# If a step consists of several periods, the gap before every second (third, …) one is longer by this.
_LONGER = 4.0
_FEWEST_GAPS = 5
_MOST_PERIODS, _MOST_WHOLE, _EARLY = 4096, 64, 4096
# At most this share of a tensor's repetitions may lie within steps, in damaged timelines.
_WITHIN = 0.01
# Tensors with this share of a step's bytes, or most of all tensors, make steps ambiguous if they repeat
# at another rate.
_SUBSTANTIAL = 0.2
_EVERY_FEW = 10

SINGLE = (
    "most tensors are negotiated once: the timeline has fewer than two steps, or names differ from step "
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


def step_positions(
    negotiations: Negotiations, size: Floats, names: Sequence[str]
) -> tuple[Ints, str]:
    """Return the positions of the negotiations at which steps start, and why there are none.

    Args:
        negotiations: all of a timeline.
        size: bytes of each tensor; NaN if unknown.
        names: the name of each tensor.
    """
    none = np.zeros(0, np.int64)
    if not len(negotiations.tensor):
        return none, NOTHING
    count = np.bincount(negotiations.tensor, minlength=len(size))
    weight = _weights(size, count)
    once = count == 1
    unnamed = _unnamed(names, count)
    if weight[unnamed] @ count[unnamed] > weight @ count / 2:
        return _by_size(negotiations, unnamed & (weight > 0), size)
    if weight[once].sum() > weight @ count / 2:
        return none, SINGLE
    before = _previous(negotiations.tensor)
    positions = np.concatenate(
        [
            first
            + _steps(
                negotiations.tensor[first:last], np.maximum(before[first:last] - first, -1), weight
            )
            for first, last in pairwise([*negotiations.jobs.tolist(), len(negotiations.tensor)])
        ]
    )
    if _several_sets(negotiations.tensor, before, positions, weight):
        return none, SEVERAL_SETS
    return positions, ""


def _weights(size: Floats, count: Ints) -> Floats:
    """Return the tensors' bytes: 0 for metrics, the usual size for tensors of unknown size."""
    known = np.isfinite(size) & (count > 0)
    usual = float(np.median(size[known])) if known.any() else 0.0
    weight = np.where(known, size, usual)
    weight[(weight <= _METRIC_BYTES) | (count == 0)] = 0
    return weight if weight.any() else np.where(count > 0, 1.0, 0.0)


# -- tensors with names ---------------------------------------------------------------------------


def _steps(tensor: Ints, before: Ints, weight: Floats) -> Ints:
    """Return the positions at which the steps of one job start.

    Args:
        tensor: the tensor of each negotiation.
        before: the position of its previous negotiation; -1 for the first one.
        weight: the tensors' bytes.
    """
    if not weight[tensor].any():
        return np.zeros(0, np.int64)
    starts = _greedy(before)
    if _repeat_most(tensor, before, starts, weight):
        return starts
    starts = _heavy(tensor, before, weight)
    return _without_repetitions_within(tensor, before, starts, weight)


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
    """Whether each step repeats most bytes of the previous one; the last step may be cut short."""
    step = _step_of(starts, len(tensor))
    weights = weight[tensor]
    repeats = (before >= 0) & (step[before] == step - 1)
    whole = np.bincount(step, weights)
    repeated = np.bincount(step, weights * repeats, minlength=len(whole))
    return bool(np.all(repeated[1:-1] > whole[:-2] / 2) and (len(starts) < 2 or repeated[-1] > 0))


def _step_of(starts: Ints, count: int) -> Ints:
    """Return the step of each position; -1 before the first one."""
    return np.repeat(np.arange(-1, len(starts)), np.diff([0, *starts.tolist(), count]))


def _heavy(tensor: Ints, before: Ints, weight: Floats) -> Ints:
    """Start a step where tensors repeat, once most bytes of one of the last steps have repeated.

    It starts at the first tensor that has not repeated twice by then.
    """
    weights = weight[tensor]
    least = _NEGLIGIBLE * weight.sum()
    starts, window = [0], 256
    usual: deque[float] = deque(maxlen=_LAST_STEPS)
    while True:
        first = starts[-1]
        here = slice(first, first + window)
        repeats = before[here] >= first
        once = repeats & (before[before[here]] < first)
        repeated, whole = np.cumsum(weights[here] * once), np.cumsum(weights[here] * ~repeats)
        # A step may have more tensors than usual, such as an average of the model.
        enough = repeated > np.maximum(np.minimum(whole, max(usual, default=np.inf)) / 2, least)
        if enough.any():
            until = int(np.argmax(enough)) + 1
            twice = tensor[here][:until][(repeats & ~once)[:until]]
            length = int(np.argmax(once[:until] & ~np.isin(tensor[here][:until], twice)))
            usual.append(float(whole[length - 1]))
            starts.append(first + length)
            window = 2 * length + 64
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
    single = (repeated <= _WITHIN * count) & (weight > 0)
    if weight[single & (count > 0)].sum() <= weight[count > 0].sum() / 2:
        return starts
    chosen = np.flatnonzero(single[tensor])
    moved: Ints = chosen[_greedy(_previous(tensor[chosen]))]
    return moved


def _several_sets(tensor: Ints, before: Ints, starts: Ints, weight: Floats) -> bool:
    """Whether tensors with many bytes repeat within steps, or every few steps only."""
    step, again = _step_of(starts, len(tensor)), before >= 0
    repeated, gap = tensor[again], step[again] - step[before[again]]
    if np.all(gap == 1):
        return False
    repeats, within, soon, next_step = (
        np.bincount(repeated[chosen], minlength=len(weight))
        for chosen in (gap >= 0, gap == 0, gap <= _EVERY_FEW, gap == 1)
    )
    often = within > repeats / _EVERY_FEW
    seldom = (repeats > 1) & (next_step < repeats / 2) & (soon > repeats / 2)
    if not (often | seldom).any():
        return False
    first = np.ones(len(tensor), bool)
    first[again] = gap > 0
    usual = float(np.median(np.bincount(step[first] + 1, weight[tensor[first]])[1:]))
    return bool(
        weight[often].sum() > _SUBSTANTIAL * usual
        or weight[seldom].sum() > _SUBSTANTIAL * usual
        or np.count_nonzero(seldom & (weight > 0)) > np.count_nonzero(weight) / 2
    )


# -- tensors without names ------------------------------------------------------------------------


def _unnamed(names: Sequence[str], count: Ints) -> Bools:
    """Mark tensors with a name that occurs once, or that tensors of other sizes share."""
    sizes = Counter(name for name, often in zip(names, count.tolist(), strict=True) if often)
    unnamed = [
        sizes[name] > 1 or (often == 1 and _UNNAMED.search(name) is not None)
        for name, often in zip(names, count.tolist(), strict=True)
    ]
    return np.array(unnamed, bool)


def _by_size(negotiations: Negotiations, unnamed: Bools, size: Floats) -> tuple[Ints, str]:
    """Start steps with the period at which the sizes of unnamed tensors repeat."""
    none = np.zeros(0, np.int64)
    chosen = np.flatnonzero(unnamed[negotiations.tensor])
    sizes = size[negotiations.tensor[chosen]]
    jobs = np.searchsorted(chosen, negotiations.jobs)
    period = _period(sizes, jobs)
    if period < 2:
        return none, UNNAMED
    job = np.searchsorted(jobs, np.arange(len(chosen)), "right") - 1
    first = chosen[(np.arange(len(chosen)) - jobs[job]) % period == 0]
    if _several_in_a_step(negotiations.idle_us[first[1:]]):
        return none, UNNAMED
    return first, ""


def _several_in_a_step(gaps: Ints) -> bool:
    """Whether the gaps before periods are longer at every second one, or every third one, and so on."""
    for several in range(2, max(2, len(gaps) // _FEWEST_GAPS) + 1):
        medians = sorted(
            float(np.median(gaps[at::several])) for at in range(min(several, len(gaps)))
        )
        if len(medians) > 1 and medians[-1] > _LONGER * max(medians[-2], 1):
            return True
    return False


def _period(sizes: Floats, jobs: Ints) -> int:
    """Return the smallest period of the sizes of all jobs; 0 if there is none.

    Tensors of unknown size, as at the end of a killed job, fit any size.
    """
    parts = np.split(sizes, jobs[1:])
    longest = max(parts, key=len)
    candidates = np.flatnonzero(longest == longest[:1])[1:]
    candidates = candidates[candidates <= len(longest) // _FEWEST_PERIODS][:_MOST_PERIODS]
    # Most candidates fail early; the others take the time of the whole timeline.
    early = [
        period
        for period in candidates.tolist()
        if _fit(longest[period:][:_EARLY], longest[:_EARLY])
    ]
    for period in early[:_MOST_WHOLE]:
        if all(_fit(part[period:], part) and _fit(part, longest[:period]) for part in parts):
            return int(period)
    return 0


def _fit(some: Floats, others: Floats) -> bool:
    """Whether sizes are the same as far as both are known, up to the end of the shorter ones."""
    shorter = min(len(some), len(others))
    first, second = some[:shorter], others[:shorter]
    return bool(np.all((first == second) | np.isnan(first) | np.isnan(second)))
