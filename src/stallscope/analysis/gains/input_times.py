"""The three rates of a run's input: its loader alone, training on synthetic data, and on real data.

They are those of one rank. Alone and slower than a rank needs, the loader itself is too slow; alone and
fast enough, it is slow beside training only: both want the same CPU cores, disk or memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stallscope.arrays.stats import Mean
from stallscope.run import InputStage, MeasuredInput, Run

from .what_if import WhatIf


@dataclass(frozen=True)
class InputRates:
    """Samples per second of one rank; None is what is not known."""

    #: Per rank that measured its loader, the last measurement, by rank.
    ranks: tuple[MeasuredInput, ...]
    #: The one of them whose loader is slowest: what all others have to wait for.
    slowest: MeasuredInput
    #: The slowest rank's loader alone.
    alone: Mean | None
    #: What a rank trains on synthetic data, and what it trains in this run.
    synthetic: float | None
    real: float | None
    #: What a rank would train if input cost nothing.
    needed: float | None
    #: Whether the loader alone gives that; None where its interval does not tell.
    enough: bool | None
    #: Whether all ranks measured, and at the same time, so that their loaders shared what they share.
    at_once: bool

    @property
    def longest(self) -> InputStage | None:
        """The slowest rank's stage that takes most."""
        return max(self.slowest.stages, key=lambda stage: stage.ms, default=None)


def input_rates(
    run: Run,
    samples_per_second: float | None,
    synthetic: float | None,
    gains: Sequence[WhatIf],
) -> InputRates | None:
    """The rates of a run; None where no loader was measured, or too little of it.

    Args:
        run: the run.
        samples_per_second: of all ranks together.
        synthetic: the same of a baseline on as many ranks; None without one.
        gains: what fixes of this run would gain, of which the input's gives what is needed without a
            baseline.
    """
    last = {one.rank: one for one in sorted(run.input_times, key=lambda one: one.began) if one.ms}
    if not last:
        return None
    ranks = tuple(last[rank] for rank in sorted(last))
    slowest = min(ranks, key=_batches_per_second)
    real, base = (
        None if rate is None else rate / run.size for rate in (samples_per_second, synthetic)
    )
    alone, needed = alone_of(slowest), base
    faster = next((gain.speedup for gain in gains if gain.fix == "input"), None)
    if needed is None and real is not None and faster is not None:
        needed = real * faster
    return InputRates(
        ranks, slowest, alone, base, real, needed, _enough(alone, needed), _at_once(run, ranks)
    )


def alone_of(measured: MeasuredInput) -> Mean | None:
    """Samples per second of a loader alone; None where batches do not tell their samples."""
    if not measured.ms or not measured.samples_per_batch:
        return None
    samples = measured.samples_per_batch * 1e3
    ci95 = measured.ci95_ms
    if ci95 is None or ci95[0] <= 0:
        return Mean(samples / measured.ms, None)
    return Mean(samples / measured.ms, (samples / ci95[1], samples / ci95[0]))


def _batches_per_second(measured: MeasuredInput) -> float:
    return 1e3 / measured.ms if measured.ms else 0.0


def _enough(alone: Mean | None, needed: float | None) -> bool | None:
    if alone is None or alone.ci95 is None or needed is None:
        return None
    if alone.ci95[0] <= needed <= alone.ci95[1]:
        return None
    return alone.value > needed


def _at_once(run: Run, ranks: Sequence[MeasuredInput]) -> bool:
    return len(ranks) == run.size and max(one.began for one in ranks) < min(
        one.ended for one in ranks
    )
