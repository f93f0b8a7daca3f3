"""Split a run's steps into generations without their warm-up, and build their ledgers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.arrays.blocks import LATEST
from stallscope.arrays.pivot import by_parts
from stallscope.arrays.stats import robust_sd
from stallscope.arrays.types import Bools
from stallscope.run import Log, Run
from stallscope.run.log import FetchedAhead

from ..steps.alignment import AlignedSteps, align
from ..steps.links import Link, links
from .build import build_ledger
from .ledger import Ledger, concatenated

# Steps are warm-up while they are slower than nearly all steps of the second half.
_SLOW_SDS = 6.0
_SLOW_RATIO = 1.5
# This many settled steps in a row end the warm-up.
_SETTLED = 5
# If a run is slow for longer, that is no warm-up but a finding.
_LONGEST = 100
_LONGEST_SHARE = 0.2


@dataclass(frozen=True)
class Generations:
    """All generations of a run and their ledger; every restart starts another generation."""

    aligned: Sequence[AlignedSteps]
    #: Per generation, its ledger, and per step of the ledger whether it is warm-up.
    ledgers: Sequence[Ledger]
    warm: Sequence[Bools]
    #: Per generation, per step of the ledger whether it is warm-up or changed by an input probe.
    unsteady: Sequence[Bools]
    #: Per generation, the steps that did not wait for input, because their batches were fetched ahead.
    fetched_ahead: Sequence[Bools]
    #: Per generation, the first step that a later generation trained again.
    again_from: Sequence[int]
    #: Per generation, nanoseconds to add to its aligned times to get wall time.
    to_wall: Sequence[int]
    #: The indices of the generations with the same ranks on the same hosts as the last one.
    kept: Sequence[int]
    #: The steps of these, and which of them are not steady; None if there are none.
    ledger: Ledger | None
    warm_up: Bools
    #: The ledger of steady steps; None where nothing is left.
    steady: Ledger | None
    #: The steps of these that did not wait for input; None without an input probe.
    probed: Ledger | None
    #: The links between hosts that carry gradients.
    links: tuple[Link, ...]

    @classmethod
    def of(cls, run: Run) -> Generations:
        """Align a run's ranks and build the ledgers of its generations."""
        # A log without steps is not a generation.
        numbers = sorted(set().union(*by_parts(run.steps, ("generation",), _generations)))
        aligned = [align(run, number) for number in numbers]
        ledgers = [build_ledger(generation) for generation in aligned]
        warm = [warm_up_steps(ledger) for ledger in ledgers]
        probes = [
            _of_probes(run, generation, ledger)
            for generation, ledger in zip(aligned, ledgers, strict=True)
        ]
        unsteady = [of | slow for (of, _), slow in zip(probes, warm, strict=True)]
        fetched_ahead = [probed & ~slow for (_, probed), slow in zip(probes, warm, strict=True)]
        to_wall = [run.wall_offset(first_log(run, generation)) for generation in aligned]
        kept = _same_ranks_as_last(aligned, ledgers)
        ledger = concatenated([ledgers[index] for index in kept])
        warm_up, probed = (
            np.concatenate([np.zeros(0, bool), *(marks[index] for index in kept)])
            for marks in (unsteady, fetched_ahead)
        )
        steady = steady_of(ledger, warm_up)
        again = _again_from(aligned)
        return cls(
            aligned,
            ledgers,
            warm,
            unsteady,
            fetched_ahead,
            again,
            to_wall,
            kept,
            ledger,
            warm_up,
            steady,
            steady_of(ledger, ~probed),
            links(run),
        )

    @property
    def last_aligned(self) -> AlignedSteps | None:
        """Return the generation of the reported ranks: the last with a ledger, or the last of all."""
        pairs = zip(self.aligned, self.ledgers, strict=True)
        with_ledger = [generation for generation, ledger in pairs if len(ledger)]
        return next(reversed(with_ledger or self.aligned), None)

    def repeated(self, index: int) -> Bools:
        """Mark the steps of a generation's ledger that a later generation trained again."""
        return self.ledgers[index].steps >= self.again_from[index]

    @property
    def filled(self) -> list[int]:
        """Return the indices of the generations with steps in the ledger."""
        return _filled(self.ledgers)

    def repeats_unknown(self, index: int) -> bool:
        """Whether a generation after this one counts its steps from 0 again.

        Then it is unknown which steps it trained again: its optimizer may not count steps, or training
        may have started over.
        """
        return any(int(generation.steps[0]) == 0 for generation in self.aligned[index + 1 :])


def _same_ranks_as_last(aligned: Sequence[AlignedSteps], ledgers: Sequence[Ledger]) -> list[int]:
    """Return the indices of the generations with the same ranks on the same hosts as the last one.

    Figures per rank are only comparable between these.
    """
    filled = _filled(ledgers)
    places = [(generation.ranks, generation.hosts) for generation in aligned]
    return [index for index in filled if places[index] == places[filled[-1]]]


def _filled(ledgers: Sequence[Ledger]) -> list[int]:
    return [index for index, ledger in enumerate(ledgers) if len(ledger)]


def _generations(part: pa.Table) -> set[int]:
    return set(pc.unique(part["generation"]).to_pylist())


def first_log(run: Run, aligned: AlignedSteps) -> Log:
    """Return a log on the clock of the aligned times."""
    return run.last_logs_of(aligned.generation)[aligned.ranks[0]]


def _again_from(aligned: Sequence[AlignedSteps]) -> list[int]:
    """Return per generation the first step of any later one that does not count from 0 again."""
    first_steps: list[int] = []
    again = LATEST
    for generation in reversed(aligned):
        first_steps.append(again)
        if generation.steps[0] > 0:
            again = min(again, int(generation.steps[0]))
    return first_steps[::-1]


def steady_of(ledger: Ledger | None, warm_up: Bools) -> Ledger | None:
    """Return a ledger without the marked steps; None if nothing is left."""
    steady = None if ledger is None else ledger.take(~warm_up)
    return steady if steady is not None and len(steady) else None


# -- Find the warm-up: the first steps of a session, which trace, allocate and connect ------------


def warm_up_steps(ledger: Ledger) -> npt.NDArray[np.bool_]:
    """Mark the steps that belong to the warm-up of their session.

    The first step of a session always does, because it traces. The first steps of later epochs do not:
    their delays occur in every epoch.
    """
    warm = np.zeros(len(ledger), bool)
    edges = [*np.flatnonzero(ledger.session_start), len(ledger)]
    for begin, end in pairwise(edges):
        warm[begin : begin + _settling_length(ledger.total[begin:end])] = True
    return warm


def _settling_length(total: npt.NDArray[Any]) -> int:
    """Return how many of the first times of a series are warm-up."""
    n = len(total)
    if n < 2:
        return n
    settled_half = total[n // 2 :]
    median = float(np.median(settled_half))
    slow = total > max(median + _SLOW_SDS * robust_sd(settled_half), _SLOW_RATIO * median)
    longest = _longest(n)
    for length in range(1, longest):
        if not slow[length : length + _SETTLED].any():
            return length
    return longest


def settling_length_within(total: npt.NDArray[Any]) -> int:
    """Return how many of the first times of a series are warm-up, even if it stays slow for long.

    If the first times stay slow for longer than a warm-up, look for the warm-up among them only.
    """
    length = _settling_length(total)
    longest = _longest(len(total))
    if length < longest or longest <= 2 * _SETTLED:
        return length
    return settling_length_within(total[:longest])


def _longest(count: int) -> int:
    return max(1, min(_LONGEST, int(count * _LONGEST_SHARE)))


# -- Find the steps of input probes, whose batches were fetched ahead -----------------------------

# The ranks wait for the slowest fetch in a probe's first step; the second one still shows that.
_AFTER_FETCHING = 2
# A loader's workers fill their queue during a probe, and afterwards steps wait less until it is drained:
# at most so many steps per batch in it, and so many where the loader's pace is unknown.
_LONGEST_DRAIN = 10
_USUAL_DRAIN = 2


def _of_probes(run: Run, aligned: AlignedSteps, ledger: Ledger) -> tuple[Bools, Bools]:
    """Mark the steps of a ledger that input probes changed, and those that did not wait for input.

    A step waits for input unless all ranks have fetched its batch ahead.
    """
    changed, probed = np.zeros((2, len(ledger)), bool)
    probes: dict[int, dict[int, FetchedAhead]] = {}
    for log in run.logs:
        if log.generation == aligned.generation:
            for probe in log.input_probes:
                probes.setdefault(probe.first_step, {})[log.rank] = probe
    for first, of_ranks in probes.items():
        end = min(probe.end_step for probe in of_ranks.values())
        inside = (ledger.steps >= first + _AFTER_FETCHING) & (ledger.steps < end)
        if set(of_ranks) >= set(ledger.ranks):
            probed |= inside
        step_us = float(np.median(ledger.total[inside])) / 1e3 if inside.any() else None
        until = max(probe.end_step + _drain_steps(probe, step_us) for probe in of_ranks.values())
        changed |= (ledger.steps >= first) & (ledger.steps < until)
    return changed, probed


def _drain_steps(probe: FetchedAhead, step_us: float | None) -> int:
    """Return after how many steps a loader's queue is as empty as before a probe.

    Args:
        probe: a rank's probe.
        step_us: a step that does not wait for input; None if unknown.
    """
    queued = min(probe.ready or 0, len(probe.fetched_us))
    pace_us = loader_pace_us(probe)
    if pace_us is None or step_us is None:
        return 1 + _USUAL_DRAIN * queued
    if pace_us <= step_us:
        return 1
    return 1 + min(_LONGEST_DRAIN * queued, int(np.ceil(queued / (1 - step_us / pace_us))))


# Fewer batches show no pace.
_FEWEST_BATCHES = 4


def loader_pace_us(probe: FetchedAhead) -> float | None:
    """Return a loader's own mean time per batch, microseconds; None if too few batches show it.

    Batches that workers may have had ready come first, and do not count. If their number is unknown,
    the later half counts.
    """
    times = at_loaders_pace(probe)
    return float(np.mean(times)) if len(times) >= _FEWEST_BATCHES else None


def at_loaders_pace(probe: FetchedAhead) -> tuple[int, ...]:
    """Return the times of the fetches that waited for the loader, microseconds."""
    times = probe.fetched_us
    return times[len(times) // 2 if probe.ready is None else probe.ready :]
