"""What faster input gains, measured in the run: steps whose batches were fetched ahead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from stallscope.arrays.stats import Mean, mean_with_interval
from stallscope.formatting.numbers import amount
from stallscope.run import Run
from stallscope.words import CAUSES, Fix

from ..ledger.by_generation import Generations, at_loaders_pace
from ..ledger.ledger import Ledger
from ..stragglers.lateness import Straggler
from .attribution import Attribution
from .what_if import Bottleneck, WhatIf, saving

# Fewer probed steps measure no gain.
FEWEST_STEPS = 3
# A probe has few steps, and Student's t knows it.
_FEWEST_INDEPENDENT = 4


@dataclass(frozen=True)
class ProbedRank:
    """One rank's loader and steps, in milliseconds per step."""

    rank: int
    #: The loader alone, without training; None if too few batches were fetched at its own pace.
    loader_ms: Mean | None
    #: The rank's own input, compute and other: without waiting for input, and in steady steps.
    probed_ms: float
    real_ms: float


@dataclass(frozen=True)
class InputProbe:
    """What the input probes of a run measured, in milliseconds per step."""

    #: How many steps did not wait for input.
    steps: int
    #: The job's step without input stalls, and the steady step.
    probed_ms: Mean
    real_ms: Mean
    saved_ms: Mean
    #: The ledger by cause of the steps without input stalls.
    by_cause_ms: dict[str, float]
    #: Samples per step of the job; None if unknown.
    samples: float | None
    ranks: tuple[ProbedRank, ...]

    @property
    def slowest(self) -> ProbedRank | None:
        """Return the rank with the slowest loader; None if no loader's pace is known."""
        known = [rank for rank in self.ranks if rank.loader_ms is not None]
        return max(known, key=lambda rank: _pace_ms(rank), default=None)

    def pace_without(self, ranks: Sequence[int]) -> float | None:
        """Return the time of the slowest loader but those of some ranks; None if one is unknown."""
        others = [rank for rank in self.ranks if rank.rank not in ranks]
        if any(rank.loader_ms is None for rank in others):
            return None
        return max(map(_pace_ms, others), default=0.0)


def _pace_ms(rank: ProbedRank) -> float:
    return 0.0 if rank.loader_ms is None else rank.loader_ms.value


def input_probe(run: Run, generations: Generations) -> InputProbe | None:
    """Return what the probes of a run measured; None if they left too few steps."""
    probed, steady = generations.probed, generations.steady
    if probed is None or steady is None or len(probed) < FEWEST_STEPS:
        return None
    real_ms, probed_ms = (_step_ms(ledger) for ledger in (steady, probed))
    return InputProbe(
        len(probed),
        probed_ms,
        real_ms,
        real_ms.minus(probed_ms),
        {name: float(probed.by_cause(name).mean()) / 1e6 for name in CAUSES},
        _samples(steady),
        tuple(
            ProbedRank(
                rank,
                _loader_ms(run, generations, rank),
                _arrival_ms(probed, position),
                _arrival_ms(steady, position),
            )
            for position, rank in enumerate(steady.ranks)
        ),
    )


def _step_ms(ledger: Ledger) -> Mean:
    return mean_with_interval(ledger.total, _FEWEST_INDEPENDENT).scaled(1e-6)


def _samples(ledger: Ledger) -> float | None:
    per_step = ledger.samples
    known = (per_step >= 0).all(axis=1)
    return float(per_step[known].sum(axis=1).mean()) if known.any() else None


def _arrival_ms(ledger: Ledger, position: int) -> float:
    return float(np.mean(ledger.cells.columns("arrival", [position]))) / 1e6


def _loader_ms(run: Run, generations: Generations, rank: int) -> Mean | None:
    """Return the time that a rank's loader alone takes for a step's batches."""
    kept = {generations.aligned[index].generation for index in generations.kept}
    times: list[float] = []
    for log in run.logs:
        if log.rank != rank or log.generation not in kept:
            continue
        for probe in log.input_probes:
            # With gradient accumulation a step has several batches.
            batches = len(probe.fetched_us) / max(1, probe.end_step - probe.first_step)
            times += [us / 1e3 * round(max(batches, 1.0)) for us in at_loaders_pace(probe)]
    if len(times) < _FEWEST_INDEPENDENT:
        return None
    return mean_with_interval(times, _FEWEST_INDEPENDENT)


# -- Put the measured gains in the place of predicted ones ----------------------------------------


def with_measured_gains(attribution: Attribution, probe: InputProbe) -> Attribution:
    """Replace the gain of faster input by the measured one.

    If the slow ranks are slow in input only, their fix is measured as well: without them, steps go at
    the pace of the slowest other loader, or of steps without input stalls.
    """
    step_ms = probe.real_ms.value
    measured: dict[Fix, Mean] = {Fix("input"): probe.saved_ms}
    waited_for = [
        straggler for straggler in attribution.stragglers if straggler.counts_as_imbalance
    ]
    if waited_for and all(_is_slow_input(straggler) for straggler in waited_for):
        ranks = {rank for straggler in waited_for for rank in straggler.ranks}
        saved_ms = _saved_without(sorted(ranks), probe)
        if saved_ms is not None:
            measured[Fix("imbalance")] = saved_ms
            if len(waited_for) == 1:
                measured |= dict.fromkeys(waited_for[0].fixes, saved_ms)
    gains = [_measured(gain, measured, step_ms) for gain in attribution.gains]
    in_turn = attribution.gains_in_turn
    if Fix("imbalance") in measured:
        # What is left for other loaders, once the slow ranks are fixed.
        left_ms = probe.saved_ms.minus(Mean(measured[Fix("imbalance")].value, (0.0, 0.0)))
        measured[Fix("input")] = Mean(max(0.0, left_ms.value), None)
    elif waited_for:
        # Fixing the slow ranks first may leave less to input.
        del measured[Fix("input")]
    return replace(
        attribution,
        gains=tuple(gains),
        gains_in_turn=tuple(_measured(gain, measured, step_ms) for gain in in_turn),
        peer_limit_unknown=attribution.peer_limit_unknown and Fix("imbalance") not in measured,
    )


def with_measured_advice(
    verdict: Bottleneck, attribution: Attribution, step_ms: Mean
) -> Bottleneck:
    """Say beside the first line to copy what input in time saves, if a probe has measured it.

    Args:
        verdict: the run's.
        attribution: its gains, of which some are measured.
        step_ms: the mean step.
    """
    fix = Fix("imbalance" if verdict.ranks else "input")
    gain = next((gain for gain in attribution.gains if gain.fix == fix and gain.measured), None)
    if gain is None or "input" not in (verdict.kind, verdict.cause) or not verdict.advice:
        return verdict
    saved = amount(gain.saved_ms.value, "ms", gain.saved_ms.ci95)
    whole = amount(step_ms.value, "ms")
    text = f"Input in time saves {saved} of {whole} per step, as measured in this run."
    advice = list(verdict.advice)
    at = next((at for at, piece in enumerate(advice) if piece.line), 0)
    advice[at] = replace(advice[at], gain=f"{text} {advice[at].gain}".rstrip())
    return replace(verdict, advice=tuple(advice))


def _is_slow_input(straggler: Straggler) -> bool:
    return straggler.stage == "input" and bool(straggler.ranks)


def _saved_without(ranks: Sequence[int], probe: InputProbe) -> Mean | None:
    """Return the time saved if the loaders of these ranks no longer delay steps; None if unknown."""
    pace_ms = probe.pace_without(ranks)
    if pace_ms is None:
        return None
    slower = max(0.0, pace_ms - probe.probed_ms.value)
    return probe.saved_ms.minus(Mean(slower, (0.0, 0.0)))


def _measured(gain: WhatIf, measured: dict[Fix, Mean], step_ms: float) -> WhatIf:
    saved_ms = measured.get(gain.fix)
    if saved_ms is None:
        return gain
    known = replace(gain, bound=False, estimate=None, extrapolated=False, measured=True)
    return saving(known, saved_ms, step_ms)
