"""Analyse one step of all ranks: which rank was last, why, and what that cost the others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stallscope.arrays.lazy_scipy import ndimage
from stallscope.arrays.stats import robust_sd
from stallscope.arrays.types import Ints

from ..ledger.ledger import GAPS, STAGES, Ledger
from ..result import Analysis

_MS = 1e-6
# A step is unusual if its last rank is later than chance and its usual lateness explain.
_LATE_SDS = 6.0
_SMALLEST_SHARE = 0.05
_WINDOW = 51


@dataclass(frozen=True)
class RankInStep:
    """A rank's own stages in one step, milliseconds."""

    rank: int
    host: str
    other: float
    input: float
    compute: float
    wait: float
    #: From the step's start until its gradients were ready.
    arrival: float


@dataclass(frozen=True)
class OneStep:
    """An analysed step of a ledger; milliseconds unless named otherwise."""

    #: Position in the ledger.
    at: int
    step: int
    epoch: int
    warm_up: bool
    #: How often the step is in the ledger: a restarted job may have repeated it.
    times: int
    total: float
    allreduce: float
    #: Milliseconds by kind of GAPS; empty without any.
    gaps: tuple[tuple[str, float], ...]
    #: The measured ranks, the last one first.
    ranks: tuple[RankInStep, ...]
    unmeasured: tuple[int, ...]
    #: Ranks; both are the same if there is only one.
    last: int
    reference: int
    #: The stage that explains most of the last rank's delay against the reference rank, and its
    #: usual time on the last rank: the median over the steady steps, None without any.
    cause: str
    usually: float | None
    #: The time that all ranks waited for the last one, rank-seconds.
    waited_rank_s: float
    #: Whether the step is unusual: its last rank was later than usual and than chance explains.
    late: bool


@dataclass(frozen=True)
class Neighbours:
    """Numbers of the previous and next steps; None if there is none."""

    previous: int | None
    next: int | None
    previous_late: int | None
    next_late: int | None


def find_step(analysis: Analysis, step: int) -> OneStep | None:
    """Find a step by its number, the last time it ran; None if it is not in the ledger."""
    ledger = analysis.ledger
    if ledger is None:
        return None
    found = np.flatnonzero(ledger.steps == step)
    return _at(analysis, ledger, int(found[-1]), len(found)) if len(found) else None


def neighbours(analysis: Analysis, at: int) -> Neighbours:
    """Find the steps next to the one at a position of the ledger."""
    ledger = analysis.ledger
    if ledger is None:
        return Neighbours(None, None, None, None)
    late = late_steps(analysis)
    before, after = late[late < at], late[late > at]
    return Neighbours(
        int(ledger.steps[at - 1]) if at > 0 else None,
        int(ledger.steps[at + 1]) if at + 1 < len(ledger) else None,
        int(ledger.steps[before[-1]]) if len(before) else None,
        int(ledger.steps[after[0]]) if len(after) else None,
    )


def late_steps(analysis: Analysis) -> Ints:
    """Find unusual steps among the steady ones, as positions in the ledger."""
    ledger, steady = analysis.ledger, analysis.steady
    if ledger is None or steady is None:
        return np.zeros(0, np.int64)
    imbalance = steady.imbalance.astype(np.float64)
    # Compared with nearby steps: a rank that has become slow for good is not unusual in every later
    # step.
    over = imbalance - ndimage.median_filter(imbalance, size=_WINDOW, mode="nearest")
    smallest = _SMALLEST_SHARE * float(np.median(steady.total))
    late = over > max(_LATE_SDS * robust_sd(over), smallest)
    return np.asarray(np.flatnonzero(~analysis.warm_up)[late])


def _at(analysis: Analysis, ledger: Ledger, at: int, times: int) -> OneStep:
    own = ledger.take(np.arange(len(ledger)) == at)
    last, reference = int(own.critical[0]), int(own.reference[0])
    cause = STAGES[int(own.cause[0])]
    measured = own.measured[0]
    return OneStep(
        at=at,
        step=int(own.steps[0]),
        epoch=int(own.epochs[0]),
        warm_up=bool(analysis.warm_up[at]),
        times=times,
        total=float(own.total[0]) * _MS,
        allreduce=float(own.allreduce[0]) * _MS,
        gaps=tuple(
            (kind, float(own.gaps[0, index]) * _MS)
            for index, kind in enumerate(GAPS)
            if own.gaps[0, index] > 0
        ),
        ranks=_ranks(analysis, own),
        unmeasured=tuple(np.asarray(own.ranks)[~measured].tolist()),
        last=own.ranks[last],
        reference=own.ranks[reference],
        cause=cause,
        usually=_usual(analysis.steady, cause, last),
        waited_rank_s=float(own.wait[0][measured].sum()) / 1e9,
        late=at in late_steps(analysis),
    )


def _ranks(analysis: Analysis, own: Ledger) -> tuple[RankInStep, ...]:
    stages = {name: getattr(own, name)[0] * _MS for name in ("other", "input", "compute", "wait")}
    arrival = own.arrival[0]
    order = np.argsort(-arrival, kind="stable")
    return tuple(
        RankInStep(
            own.ranks[r],
            analysis.ranks[r].host,
            **{name: float(stage[r]) for name, stage in stages.items()},
            arrival=float(arrival[r]) * _MS,
        )
        for r in order
        if own.measured[0, r]
    )


def _usual(steady: Ledger | None, stage: str, rank: int) -> float | None:
    if steady is None or not steady.measured[:, rank].any():
        return None
    values = steady.of(stage, np.full(len(steady), rank))
    return float(np.median(values[steady.measured[:, rank]])) * _MS
