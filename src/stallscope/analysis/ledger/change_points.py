"""Find the steps at which step time changed for good, growth within epochs, and a rise during training.

Moving sums (Eichinger and Kirch 2018) find changes that follow one another: the means of equally many
steps before and after a change differ by more than the means of neighbouring steps usually do. Between
these, binary segmentation finds changes that only long parts show. It takes the step that splits a part
into the two most different ones. That step is a change point if the two differ by more than
autocorrelated noise explains, and by enough to matter. Then each of the two is split in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from stallscope.arrays.distributions import student_quantile
from stallscope.arrays.stats import autocorrelation_time, robust_sd, running_median
from stallscope.arrays.types import Floats, Ints
from stallscope.words import ENTRIES, LedgerPart

from .ledger import Ledger

# Shorter parts are bursts.
_SHORTEST = 25
# The largest of many correlated t values: beyond 5.5 in less than 1 of 100 clean runs.
_SIGNIFICANT = 5.5
# Smaller changes are not reported.
_WORTH = 0.05
#: The most changes that are told.
MOST = 10
# A verdict on the steps since a change needs so many of them.
_FEWEST_SINCE = 100
# Steps usually take what the first share of those before takes at most, if these are the second share.
_USUAL_SHARE, _FEW_SHARE = 0.2, 0.05
# Steps of a moving sum, in the shortest part; longer ones show smaller changes.
_WIDTHS = (1, 2, 4)
# The quartile of absolute normal values: most of the differences have nothing to do with changes.
_QUARTILE, _QUARTILE_OF_NORMAL = 0.25, 0.3186
_FAR_SDS = 4.0
# Twice the logarithm of the likelihood ratio that 95 % of changes stay below, also with heavy tails.
_LIKELIHOOD_95 = 9.0
# Logarithms need more than 0.
_LEAST = 1e-9

# Growth within epochs needs this many of them, each with thirds of this many values.
_FEWEST_EPOCHS, _FEWEST_IN_THIRD = 4, 3
# The share of healthy series that grow by chance.
_CHANCE = 1e-3

#: The rise that is found within 30 steps where steps vary by 5 %.
RISE = 0.10
#: The number of first steady steps that show how long a step usually is.
REFERENCE_STEPS = 200
# A rise that lasts for this many steps is no burst.
_LASTING_STEPS = 20
# The average number of steps between two false alarms (Siegmund's approximation).
_STEPS_BETWEEN_FALSE_ALARMS = 1e7
# Steps vary by at least this much: clocks have a resolution.
_LEAST_SD = 1e-3
# The usual time may be too low by two standard errors of the median of the first steps, in SDs.
_REFERENCE_ERROR = 0.18
# A single slow step counts at most this many standard deviations above the rise.
_MOST_ABOVE = 3.0


@dataclass(frozen=True)
class ChangePoint:
    """A step at which step time changed for good, and the entry that changed most."""

    step: int
    before_ms: float
    after_ms: float
    #: The entry of the ledger that changed most, and by how much. Without stages: None, and the change
    #: of the whole step.
    entry: LedgerPart | None
    by_ms: float
    #: The rank that is critical in the slower part, if imbalance changed most; None otherwise.
    rank: int | None
    #: The first and the last step at which it may have happened (95 %).
    between: tuple[int, int]


def change_points(ledger: Ledger) -> tuple[ChangePoint, ...]:
    """Find the largest change points of steady steps, in order."""
    total = ledger.total.astype(np.float64)
    return tuple(_described(ledger, split) for split in splits_of(total, _SHORTEST))


def since_last_rise(ledger: Ledger, changes: Sequence[ChangePoint]) -> Ledger | None:
    """Return the steps since the last change, if it made them slower for a while; None otherwise.

    What began at one moment of a run looks like chance in means over the whole of it.
    """
    last = changes[-1] if changes else None
    if last is None or last.after_ms <= last.before_ms:
        return None
    part = ledger.steps >= last.step
    return ledger.take(part) if np.count_nonzero(part) >= _FEWEST_SINCE else None


class Level(NamedTuple):
    """The steps after a change of the step time, until the next one."""

    change: ChangePoint
    steps: int
    #: How much longer they take than steps usually did before the change, milliseconds; None if few
    #: steps were before, as a training's first steps are not all alike.
    longer_ms: float | None


def levels_after(changes: Iterable[ChangePoint], step: Ints, steps: Ints) -> list[Level]:
    """Return the levels of the step time after each change within a training.

    Args:
        changes: changes of this training and of others.
        step: the first step of each of its windows.
        steps: their numbers of steps.
    """
    inside = [change for change in changes if step[0] < change.step <= step[-1]]
    edges = np.searchsorted(step, [step[0], *(change.step for change in inside)])
    counts = np.add.reduceat(steps, edges)
    ms = [change.before_ms for change in inside[:1]] + [change.after_ms for change in inside]
    return [
        Level(change, int(counts[at]), _longer(ms, counts, at))
        for at, change in enumerate(inside, 1)
    ]


def _longer(ms: Sequence[float], steps: Ints, at: int) -> float | None:
    """Return how much longer a level is than steps usually were before; a fast spell is not usual."""
    if steps[:at].sum() < _FEW_SHARE * steps.sum():
        return None
    order = np.argsort(ms[:at])
    shares = np.cumsum(steps[order]) / steps[:at].sum()
    return max(ms[at] - ms[int(order[np.searchsorted(shares, _USUAL_SHARE)])], 0.0)


class Split(NamedTuple):
    """A place at which a series of times changes for good."""

    #: The first places of the part before and of the part after, and the place after its last one.
    begin: int
    at: int
    end: int
    #: The first and the last place at which it may have happened (95 %).
    first: int
    last: int


def splits_of(times: Floats, shortest: int, most: int = MOST) -> list[Split]:
    """Return where a series of times changes for good, in order.

    Args:
        times: positive numbers.
        shortest: the least number of times on either side; shorter parts are bursts.
        most: the most places.
    """
    places = _split_points(times, shortest)
    edges = [0, *places, len(times)]
    near = {at: (begin, end) for begin, at, end in zip(edges, edges[1:], edges[2:], strict=False)}
    levels = [0, *_large(times, places, most), len(times)]
    return [
        Split(begin, at, end, *_possible_places(times, near[at][0], at, near[at][1]))
        for begin, at, end in zip(levels, levels[1:], levels[2:], strict=False)
    ]


def _split_points(times: Floats, shortest: int) -> list[int]:
    """Return where a series of times changes, also by little."""
    series = _without_outliers(np.log(np.maximum(times, _LEAST)), shortest)
    places: list[int] = []
    for width in _WIDTHS:
        steps = shortest * width
        places = sorted([*places, *_apart(_jumps(series, steps), places, steps)])
    edges = [0, *places, len(series)]
    for begin, end in pairwise(edges):
        inside: list[int] = []
        _split(series, begin, end, inside, shortest)
        places += inside
    return sorted(places)


def _large(times: Floats, places: Sequence[int], most: int) -> list[int]:
    """Return places between parts whose means differ by enough, with the parts of others joined.

    A change that is left out would leave the level before it to last until the next one.
    """
    kept = [*places]
    while kept:
        means = np.add.reduceat(times, [0, *kept]) / np.diff([0, *kept, len(times)])
        sizes = np.abs(np.diff(np.log(np.maximum(means, _LEAST))))
        smallest = int(sizes.argmin())
        if sizes[smallest] >= np.log1p(_WORTH) and len(kept) <= most:
            break
        del kept[smallest]
    return kept


def _apart(places: list[int], known: list[int], steps: int) -> list[int]:
    """Return the places that are more than this many steps from all known ones, which ascend."""
    at = np.array(places, np.int64)
    around = np.array([-(steps + 1), *known, (places[-1] if places else 0) + steps + 1])
    after = np.searchsorted(around, at)
    far = (around[np.minimum(after, len(around) - 1)] - at > steps) & (
        at - around[after - 1] > steps
    )
    return [int(place) for place in at[far]]


def _jumps(series: Floats, steps: int) -> list[int]:
    """Return where the means of this many values before and after differ unusually much."""
    at = np.arange(steps, len(series) - steps + 1)
    if len(at) < 2:
        return []
    centred = series - series.mean()
    means, squares = (_moving_means(values, steps) for values in (centred, centred**2))
    variance = np.maximum(squares - means**2, 0.0)
    difference = np.abs(means[at] - means[at - steps])
    noise = np.sqrt((variance[at] + variance[at - steps]) / (steps - 1))
    usual = float(np.quantile(difference, _QUARTILE)) / _QUARTILE_OF_NORMAL
    large = difference > np.maximum(_SIGNIFICANT * np.maximum(noise, usual), np.log1p(_WORTH))
    # Around a change, only the largest difference counts.
    return [
        int(at[index])
        for index in np.flatnonzero(large).tolist()
        if difference[index] >= difference[max(index - steps, 0) : index + steps + 1].max()
    ]


def _moving_means(values: Floats, steps: int) -> Floats:
    sums = np.append(0.0, np.cumsum(values))
    return np.asarray((sums[steps:] - sums[:-steps]) / steps)


def _without_outliers(series: Floats, shortest: int) -> Floats:
    """Limit single slow steps, which are not change points."""
    if len(series) < 2 * shortest:
        return series
    middle = running_median(series, 2 * shortest + 1)
    limit = _FAR_SDS * robust_sd(series - middle)
    return np.asarray(np.clip(series, middle - limit, middle + limit))


def _split(series: Floats, begin: int, end: int, places: list[int], shortest: int) -> None:
    part = series[begin:end]
    n = len(part)
    if n < 2 * shortest or len(places) >= MOST:
        return
    left = np.arange(shortest, n - shortest + 1)
    sums = np.cumsum(part)
    difference = (sums[-1] - sums[left - 1]) / (n - left) - sums[left - 1] / left
    weight = np.sqrt(left * (n - left) / n)
    best = int(np.argmax(np.abs(difference) * weight))
    at = int(left[best])
    # Noise is measured around the mean of each part.
    rest = np.concatenate([part[:at] - part[:at].mean(), part[at:] - part[at:].mean()])
    scatter = rest.std() * np.sqrt(autocorrelation_time(rest))
    significant = abs(difference[best]) * weight[best] > _SIGNIFICANT * max(float(scatter), 1e-12)
    if not significant or abs(difference[best]) < np.log1p(_WORTH):
        return
    places.append(begin + at)
    _split(series, begin, begin + at, places, shortest)
    _split(series, begin + at, end, places, shortest)


def _possible_places(times: Floats, begin: int, at: int, end: int) -> tuple[int, int]:
    """Return the first and the last place at which a change may have happened, with 95 % confidence.

    At these places the change explains the times nearly as well (likelihood ratio; Yao 1987).

    Args:
        times: the series.
        begin: where the part before the change begins.
        at: the place of the change.
        end: where the part after it ends.
    """
    series = np.log(np.maximum(times[begin:end], _LEAST))
    cut, n = at - begin, end - begin
    rest = np.concatenate([series[:cut] - series[:cut].mean(), series[cut:] - series[cut:].mean()])
    spread = max(robust_sd(rest), 1e-12) ** 2 * autocorrelation_time(rest)
    left = np.arange(1, n)
    sums = np.cumsum(series)
    difference = (sums[-1] - sums[:-1]) / (n - left) - sums[:-1] / left
    explained = difference**2 * left * (n - left) / n
    near = explained[cut - 1] - explained <= _LIKELIHOOD_95 * spread
    # Stop at the first gap: outliers far away explain nothing.
    before, after = np.flatnonzero(~near[:cut]), np.flatnonzero(~near[cut:])
    first = int(before[-1]) + 2 if len(before) else 1
    last = cut + int(after[0]) if len(after) else n - 1
    return begin + first, begin + last


def _described(ledger: Ledger, split: Split) -> ChangePoint:
    before, after = slice(split.begin, split.at), slice(split.at, split.end)
    changed = {}
    for name in ENTRIES:
        entry = ledger.entry(name)
        changed[name] = float(entry[after].mean() - entry[before].mean()) / 1e6
    most = max(changed, key=lambda name: abs(changed[name]))
    rank = None
    if most == "imbalance":
        slower = after if changed[most] > 0 else before
        times = np.bincount(ledger.critical[slower], minlength=len(ledger.ranks))
        # Only a rank that is critical in most steps is named.
        if times.max() * 2 > times.sum():
            rank = ledger.ranks[int(times.argmax())]
    return ChangePoint(
        int(ledger.steps[split.at]),
        float(ledger.total[before].mean()) / 1e6,
        float(ledger.total[after].mean()) / 1e6,
        most,
        changed[most],
        rank,
        (int(ledger.steps[split.first]), int(ledger.steps[split.last])),
    )


# -- Find growth within each epoch ----------------------------------------------------------------
#
# The ends of epochs are compared with their starts, and with those of the epochs after them: a rise
# during the whole job does not fall back.


@dataclass(frozen=True)
class Growth:
    """A rise or a fall of times within each epoch."""

    epochs: int
    #: The ratio of the last third of an epoch to its first, minus 1.
    longer_share: float


def growth_in(values: Floats, segment: Ints) -> Growth | None:
    """Return how values grow or shrink within each epoch; None if chance may explain it.

    The first value of each epoch does not count.
    """
    edges = [*np.flatnonzero(np.diff(segment, prepend=segment[:1] - 1)).tolist(), len(values)]
    thirds = []
    for begin, end in zip(edges, edges[1:], strict=False):
        third = (end - begin - 1) // 3
        if third >= _FEWEST_IN_THIRD:
            logs = np.log(np.maximum(values[begin + 1 : end], _LEAST))
            thirds.append((np.median(logs[:third]), np.median(logs[-third:])))
    if len(thirds) < _FEWEST_EPOCHS:
        return None
    first, last = np.array(thirds).T
    rises, falls = last - first, last[:-1] - first[1:]
    by = float(np.median(rises))
    is_certain = all(_differs_from_zero(np.sign(by) * each) for each in (rises, falls))
    return Growth(len(thirds), float(np.expm1(by))) if is_certain and abs(by) > _WORTH else None


def _differs_from_zero(values: Floats) -> bool:
    n = len(values)
    error = values.std(ddof=1) / np.sqrt(n)
    return bool(values.mean() > float(student_quantile(1 - _CHANCE / 2, n - 1)) * error)


# -- Detect during training that steps have become longer for good --------------------------------
#
# ``change_points`` looks back on a whole run. This is a cumulative sum (Page 1954): steps are
# compared with the first ones, and their excess over half of the rise adds up. It is an alarm if
# the sum is larger than chance makes it in ten million steps, and if the steps since the sum began
# to grow, and the last ones, are longer by at least half of the rise: a burst also adds up, but
# passes.


class Rise(NamedTuple):
    """A lasting rise of the step time."""

    #: The position of the step with which it began, and of the one with which it was detected.
    began: int
    detected: int
    #: The relative rise of the median since it began over the usual one: 0.1 is 10 %.
    by: float


def find_rise(times: Floats) -> Rise | None:
    """Return the rise that lasts until the end of a series; None without one, or with too few steps.

    Args:
        times: of steady steps, in their order.
    """
    if len(times) < REFERENCE_STEPS + _LASTING_STEPS:
        return None
    series = np.log(np.maximum(times, _LEAST))
    reference = series[:REFERENCE_STEPS]
    usual = float(np.median(reference))
    # Steps after a slow one are slow, too, so noise adds up faster.
    sd = max(robust_sd(reference) * np.sqrt(autocorrelation_time(reference)), _LEAST_SD)
    half = np.log1p(RISE) / 2 / sd
    above = np.minimum((series[REFERENCE_STEPS:] - usual) / sd, 2 * half + _MOST_ABOVE) - half
    summed = np.cumsum(above)
    lowest = np.minimum.accumulate(np.minimum(summed, 0.0))
    grown = summed - lowest
    # The steps since the sum was last 0.
    positions = np.arange(len(grown))
    began = np.maximum.accumulate(np.where(grown <= 0, positions + 1, 0))
    lasting = (grown > _limit(half)) & (positions - began + 1 >= _LASTING_STEPS)
    if not lasting[-1]:
        return None
    start = int(began[-1])
    since = series[REFERENCE_STEPS + start :]
    least = min(np.median(since), np.median(since[-_LASTING_STEPS // 2 :])) - usual
    if least < np.log1p(RISE) / 2:
        return None
    detected = start + int(np.argmax(lasting[start:]))
    by = float(np.expm1(np.median(since) - usual))
    return Rise(REFERENCE_STEPS + start, REFERENCE_STEPS + detected, by)


def _limit(half: float) -> float:
    """Return the sum that chance exceeds once between two false alarms, in standard deviations.

    Siegmund (1985): exp(2kb) / 2k² steps for a drift of k against the sum, with b 1.166 above the limit.
    """
    drift = max(half - _REFERENCE_ERROR, half / 3)
    return float(np.log(_STEPS_BETWEEN_FALSE_ALARMS * 2 * drift**2 + 1) / (2 * drift)) - 1.166
