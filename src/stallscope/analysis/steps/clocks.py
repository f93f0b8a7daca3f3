"""Align the hosts' clocks on the completions of collectives.

Ranks of one host share its monotonic clock; hosts do not. An allreduce completes on all ranks nearly
together, so the offset of a host at a step is the median over its ranks of ``reduced`` minus the
same of the reference host, smoothed by a running median: a single fit over the whole run fails under
slewed and stepped clocks. Arrivals are never used: late arrivals are what the analysis looks for.

Completions are not simultaneous. Scatter from step to step averages out. A constant skew (a ring whose
last link is slow) goes into the offset; it shows among the ranks of one host, but not between hosts. The
uncertainty contains both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from stallscope.arrays.blocks import LATEST, NULL, Matrix, on_all_cores
from stallscope.arrays.stats import MAD_TO_SD, quantile, running_median
from stallscope.arrays.types import Bools, Floats, Ints

from .causality import UNBROKEN, Bounds, ClockCompletions

# Long enough to average over completion jitter, short enough to follow slewed clocks.
_WINDOW = 51
# The median of n normal values scatters √(π/2) more than their mean.
_MEDIAN_LOSS = np.sqrt(np.pi / 2)
# A clock that moves by this many SDs of the usual change between two steps, and stays there, was set.
# Drift is far smaller: a fast clock gains 0.1 ms in a second.
_JUMP_SDS = 10.0
_SMALLEST_JUMP = 500_000
_BEFORE_AND_AFTER = 12
# Timestamps are in microseconds, and both sides are rounded.
_ROUNDING = 5_000
# If causality is broken in more steps than this, offsets from completions are worse than none.
_BROKEN = 0.05


@dataclass(frozen=True)
class ClockJump:
    """A clock that was set in the middle of the run, between two steps or within one."""

    clock: str
    #: Position of the step after which, or in which, it happened.
    at: int
    ms: float


@dataclass(frozen=True)
class Clocks:
    """C clocks, and the offsets to subtract from their times to get the reference's, which is the first.

    ``method`` is ``one clock``, ``completions`` (a running median of the differences between the
    completions of collectives), ``wall clocks`` (where a slow link makes completions late), or ``every
    step`` (every rank's completion taken as the same moment, which needs no clock at all: the fallback
    where clocks are too unsteady).
    """

    method: str
    names: tuple[str, ...]
    #: Per rank, the index of its clock.
    of_rank: Ints
    #: S × C nanoseconds.
    offset: Ints
    #: Per clock, nanoseconds: the random error of the running median, and the completion skew, which
    #: does not shrink with more steps; infinite where a clock could not be compared.
    statistical: Floats
    systematic: Floats
    #: Whether skew is known: it shows only among ranks that share a clock.
    skew_seen: bool
    #: Per clock, nanoseconds: how long links between hosts may delay completions; None if unknown.
    link_delay: Floats | None = None
    #: Whether ranks complete at different times, as over a slow link, or in a model whose ranks wait for
    #: each other throughout: then a rank's work starts at its own completion.
    completes_late: bool = False
    #: The most by which any clock could be shifted before a rank would be reduced before the last one
    #: is ready (in 99 of 100 steps), nanoseconds: skew between hosts cannot be larger than that.
    bound: float | None = None
    jumps: tuple[ClockJump, ...] = ()
    #: Per step: whether a rank was reduced before the last rank was ready by more than the uncertainty.
    violated: Bools | None = None
    #: Where a timestamp came late, and its latest possible moment.
    causality: Bounds = UNBROKEN
    #: Per rank, the name of its host's clock, which jumps refer to.
    domains: tuple[str, ...] = ()

    @property
    def uncertainty(self) -> Floats:
        """Per rank, the uncertainty of its offset from the reference clock, nanoseconds."""
        return np.asarray((self.statistical + self.bias)[self.of_rank])

    @property
    def bias(self) -> Floats:
        """Per clock, nanoseconds: the error of its offset that more steps do not make smaller."""
        if self.link_delay is None:
            return self.systematic
        return np.maximum(self.systematic, self.link_delay)

    @property
    def blind(self) -> float:
        """The largest difference between hosts that clock errors explain, nanoseconds."""
        finite = self.bias[np.isfinite(self.bias)]
        return float(finite.max(initial=0.0)) if len(self.names) > 1 else 0.0

    @property
    def mean_offset(self) -> Floats:
        """Per rank, nanoseconds."""
        if not len(self.offset):
            return np.zeros(len(self.of_rank))
        # Sums of nanoseconds since boot exceed the digits of a float.
        first = self.offset[0]
        return np.asarray((first + (self.offset - first).mean(axis=0))[self.of_rank])

    @property
    def skew(self) -> float:
        """The completion skew seen among ranks that share a clock, nanoseconds."""
        finite = self.systematic[np.isfinite(self.systematic)]
        return float(finite.max(initial=0.0)) if self.skew_seen else 0.0

    @property
    def by_chance(self) -> float:
        """The random error of the running median of any clock, nanoseconds (one SD)."""
        finite = self.statistical[np.isfinite(self.statistical)]
        return float(finite.max(initial=0.0))

    def jumped(self, jump: ClockJump) -> Bools:
        """Mark the ranks on the clock that was set."""
        return np.array([domain == jump.clock for domain in self.domains])

    @property
    def violations(self) -> float:
        """The share of steps in which causality is broken."""
        return 0.0 if self.violated is None or not len(self.violated) else self.violated.mean()


@dataclass(frozen=True)
class ClockSummary:
    """How the hosts' clocks were aligned, and how well that worked."""

    method: str
    #: Completion skew among ranks that share a clock, which offsets between hosts may hide, ms; None if
    #: every host has a single rank, so that it is unknown.
    skew_ms: float | None
    #: Skew between hosts, which offsets hide, is no larger than this (causality); None on one clock.
    skew_bound_ms: float | None
    #: Clocks that were set in the middle of the run: the clock, the step, and by how many ms.
    jumps: tuple[tuple[str, int, float], ...]
    #: The share of steps in which a rank was reduced before the last one was ready.
    violations: float
    #: The share of steps in which a late timestamp was moved to the latest moment that causality
    #: allows, by how many milliseconds per step, and per rank the share of steps.
    late: float = 0.0
    late_ms: float = 0.0
    late_by_rank: tuple[float, ...] = ()


def align_clocks(
    timestamps: Matrix, domains: Sequence[str], corrected: Callable[[Clocks], Clocks] | None = None
) -> Clocks:
    """Align the clocks of a job's ranks.

    Args:
        timestamps: ``ready`` and ``reduced``, nanoseconds on each rank's own clock, ``NULL`` where not
            measured.
        domains: per rank, the name of its clock.
        corrected: improves the clocks from completions, if more is known; not called with one clock.
    """
    names = tuple(dict.fromkeys(domains))
    index = {name: at for at, name in enumerate(names)}
    of_rank = np.array([index[name] for name in domains])
    seen = ClockCompletions.of(timestamps, of_rank, len(names))
    skew = seen.skew(of_rank)
    if len(names) == 1:
        clocks = Clocks(
            "one clock",
            names,
            of_rank,
            np.zeros((timestamps.shape[0], 1), np.int64),
            np.zeros(1),
            np.zeros(1),
            bool(np.isfinite(skew).any()),
        )
    else:
        clocks = _from_completions(seen.completion, names, of_rank, skew)
        clocks = clocks if corrected is None else corrected(clocks)
    clocks = replace(_checked(clocks, seen.ready, seen.reduced), domains=tuple(domains))
    if clocks.method != "one clock" and clocks.violations > _BROKEN:
        # Every rank is a clock here, and all completions are needed at once.
        ready, reduced = (timestamps.whole(name) for name in ("ready", "reduced"))
        earliest = np.where(reduced == NULL, LATEST, reduced)
        return _checked(_every_step(clocks, reduced), ready, earliest)
    return clocks


def _from_completions(
    completion: Ints, names: tuple[str, ...], of_rank: Ints, skew: Floats
) -> Clocks:
    steps = len(completion)
    offset = np.zeros((len(names), steps), np.int64).T
    statistical = np.zeros(len(names))

    def follow(c: int) -> list[ClockJump]:
        known = np.flatnonzero((completion[:, 0] != NULL) & (completion[:, c] != NULL))
        if not len(known):
            statistical[c] = np.inf
            return []
        everywhere = len(known) == steps
        difference = completion[:, c] - completion[:, 0]
        difference = difference if everywhere else difference[known]
        set_at = _jumps(difference)
        smooth = _running_median(difference, set_at)
        if not everywhere:
            nearest = np.clip(np.searchsorted(known, np.arange(steps)), 0, len(known) - 1)
        offset[:, c] = smooth if everywhere else smooth[nearest]
        scatter = MAD_TO_SD * float(np.median(np.abs(difference - smooth)))
        statistical[c] = scatter * _MEDIAN_LOSS / np.sqrt(min(_WINDOW, len(difference)))
        return [
            ClockJump(names[c], int(known[at]), float(difference[at] - difference[at - 1]) / 1e6)
            for at in set_at
        ]

    jumps = [
        jump for clock_jumps in on_all_cores(follow, range(1, len(names))) for jump in clock_jumps
    ]
    jumps = list(_attributed(jumps, completion, names))
    for jump in jumps:
        # Times on the reference clock go on as if it had not been set.
        if jump.clock == names[0]:
            offset[jump.at :] += round(jump.ms * 1e6)
    # A clock with one rank shows no skew: use the largest skew of any host.
    widest = float(skew[np.isfinite(skew)].max(initial=0.0))
    systematic = np.where(np.isfinite(skew), np.maximum(skew, skew[0]), widest)
    systematic = np.where(np.isfinite(systematic), systematic, widest)
    systematic[0] = 0.0
    return Clocks(
        "completions",
        names,
        of_rank,
        offset,
        statistical,
        systematic,
        bool(np.isfinite(skew).any()),
        jumps=tuple(jumps),
    )


def _jumps(difference: Ints) -> list[int]:
    """Find the positions at which one of the two clocks was set."""
    change = np.diff(difference)
    if len(change) < 2 * _BEFORE_AND_AFTER:
        return []
    usual = np.median(change)
    spread = MAD_TO_SD * float(np.median(np.abs(change - usual)))
    limit = max(_JUMP_SDS * spread, _SMALLEST_JUMP)
    positions: list[int] = []
    for at in np.flatnonzero(np.abs(change - usual) > limit) + 1:
        low = positions[-1] if positions else 0
        before = difference[max(low, at - _BEFORE_AND_AFTER) : at]
        after = difference[at : at + _BEFORE_AND_AFTER]
        moved = np.median(after) - np.median(before)
        # One late completion reverts at once; a clock that was set stays there.
        if abs(moved) > 0.5 * abs(change[at - 1]) and np.sign(moved) == np.sign(change[at - 1]):
            positions.append(int(at))
    return positions


def _running_median(difference: Ints, jumps: Sequence[int]) -> Ints:
    """Smooth the difference between two clocks, separately between jumps."""
    smooth = np.empty_like(difference)
    edges = [0, *jumps, len(difference)]
    for begin, end in zip(edges, edges[1:], strict=False):
        part = difference[begin:end]
        # Relative to the middle value, so that the filter's float type keeps every digit.
        middle = part[len(part) // 2]
        size = min(_WINDOW, len(part))
        smooth[begin:end] = middle + running_median(part - middle, size)
    return smooth


def _attributed(
    jumps: list[ClockJump], completion: Ints, names: tuple[str, ...]
) -> tuple[ClockJump, ...]:
    """Attribute jumps to the reference clock where its own time moved."""
    unique_jumps: dict[tuple[str, int], ClockJump] = {}
    for jump in jumps:
        if jump.at == 0:
            continue
        change = _own_change(completion[:, names.index(jump.clock)], jump.at)
        reference = _own_change(completion[:, 0], jump.at)
        if reference is not None and change is not None and abs(reference) > abs(change):
            jump = replace(jump, clock=names[0], ms=-jump.ms)
        unique_jumps.setdefault((jump.clock, jump.at), jump)
    return tuple(sorted(unique_jumps.values(), key=lambda jump: (jump.at, jump.clock)))


def _own_change(completion: Ints, at: int) -> float | None:
    """Return by how much a step was longer on a clock than the steps around it."""
    near = completion[max(0, at - _BEFORE_AND_AFTER) : at + _BEFORE_AND_AFTER]
    if (near == NULL).any() or completion[at - 1] == NULL or completion[at] == NULL:
        return None
    return float(completion[at] - completion[at - 1] - np.median(np.diff(near)))


def _every_step(clocks: Clocks, reduced: Ints) -> Clocks:
    """Give every rank its own clock, set again by every completion."""
    ranks = reduced.shape[1]
    base = reduced[:, 0]
    known = (reduced != NULL) & (base != NULL)[:, None]
    offset = np.where(known, reduced - base[:, None], 0)
    for rank in range(ranks):
        at = np.flatnonzero(known[:, rank])
        if len(at):
            nearest = np.clip(np.searchsorted(at, np.arange(len(reduced))), 0, len(at) - 1)
            offset[:, rank] = offset[at[nearest], rank]
    scatter = np.array([_step_scatter(offset[:, rank]) for rank in range(ranks)])
    return replace(
        clocks,
        method="every step",
        names=tuple(f"rank {rank} on {clocks.names[c]}" for rank, c in enumerate(clocks.of_rank)),
        of_rank=np.arange(ranks),
        offset=offset,
        statistical=scatter,
        systematic=clocks.systematic[clocks.of_rank],
        link_delay=None if clocks.link_delay is None else clocks.link_delay[clocks.of_rank],
    )


def _step_scatter(offset: Ints) -> float:
    change = np.diff(offset)
    return MAD_TO_SD * float(np.median(np.abs(change))) if len(change) else 0.0


def _checked(clocks: Clocks, ready: Ints, reduced: Ints) -> Clocks:
    """Check the clocks against causality: no rank is reduced before the last one is ready.

    Args:
        clocks: the clocks.
        ready: S × C, the latest of each clock's ranks, ``NULL`` where none was.
        reduced: S × C, the earliest of each clock's ranks, ``LATEST`` where none was.
    """
    last = np.where(ready == NULL, NULL, ready - clocks.offset)
    first = np.where(reduced == LATEST, LATEST, reduced - clocks.offset)
    latest, earliest = last.max(axis=1, initial=NULL), first.min(axis=1, initial=LATEST)
    known = (latest != NULL) & (earliest != LATEST)
    uncertainty = 2 * clocks.statistical + clocks.bias
    widest = uncertainty[np.isfinite(uncertainty)].max(initial=0.0)
    violated = known & (earliest < latest - int(_ROUNDING + widest))
    several = len(clocks.names) > 1 and known.any()
    bound = _bound(first, last, latest, earliest) if several else None
    causality = Bounds.of(last, first, uncertainty, [jump.at for jump in clocks.jumps])
    return replace(clocks, violated=violated, bound=bound, causality=causality)


def _bound(first: Ints, last: Ints, latest: Ints, earliest: Ints) -> float:
    """Return the largest shift of any clock that causality allows, nanoseconds."""
    most = 0.0
    for c in range(first.shape[1]):
        known = (first[:, c] != LATEST) & (last[:, c] != NULL) & (latest != NULL)
        if known.any():
            later = quantile((earliest - last[:, c])[known], 0.01)
            sooner = quantile((first[:, c] - latest)[known], 0.01)
            most = max(most, float(later), float(sooner))
    return most
