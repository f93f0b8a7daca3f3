"""What faster input gains, measured in the run: steps whose batches were fetched ahead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from stallscope.arrays.distributions import student_quantile
from stallscope.arrays.stats import Mean, mean_with_interval
from stallscope.formatting.numbers import amount
from stallscope.run import Run
from stallscope.run.log import FetchedAhead
from stallscope.words import CAUSES, Fix

from ..ledger.by_generation import Generations, at_loaders_pace, loader_pace_us
from ..ledger.ledger import Ledger
from ..stragglers.lateness import Straggler
from .attribution import Attribution
from .what_if import Bottleneck, WhatIf, saving

# Fewer probed steps measure no gain.
FEWEST_STEPS = 3
# A probe has few steps, and Student's t knows it.
_FEWEST_INDEPENDENT = 4
# So many probes show by how much they differ.
_FEWEST_PROBES = 3
# Taking a batch that is ready took 0.2 to 2.4 ms of a step on two ranks that share two cores, least from
# loaders without workers. Where a probe does not show it, a repaired loader may take that much.
_MOST_READY_MS = 2.4
# A gain that may be none, and may be more than this share of the step, is as good as unknown.
_UNSURE = 0.1


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
    #: The job's step without input stalls, in which batches are ready, and the steady step.
    probed_ms: Mean
    real_ms: Mean
    saved_ms: Mean
    #: The ledger by cause of the steps without input stalls.
    by_cause_ms: dict[str, float]
    #: Samples per step of the job; None if unknown.
    samples: float | None
    ranks: tuple[ProbedRank, ...]

    @property
    def is_unsure(self) -> bool:
        """Whether faster input may gain nothing, and may gain much."""
        ci95 = self.saved_ms.ci95
        return ci95 is not None and ci95[0] <= 0.0 and ci95[1] > _UNSURE * self.real_ms.value

    @property
    def slowest(self) -> ProbedRank | None:
        """Return the rank with the slowest loader; None if no loader's pace is known."""
        known = [rank for rank in self.ranks if rank.loader_ms is not None]
        return max(known, key=lambda rank: _pace_ms(rank), default=None)

    @property
    def late_loaders(self) -> tuple[int, ...]:
        """Return the ranks whose loaders are slower than steps without input stalls.

        Empty if all loaders are, or if a loader's pace is unknown.
        """
        late = tuple(rank.rank for rank in self.ranks if _pace_ms(rank) > self.probed_ms.value)
        unknown = any(rank.loader_ms is None for rank in self.ranks)
        return () if unknown or len(late) == len(self.ranks) else late

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
    probes = _probes_by_rank(run, generations)
    seen_ms = [_ready_ms(probes.get(rank, []), rank) for rank in steady.ranks]
    input_ms = [_input_ms(steady, position) for position in range(len(steady.ranks))]
    # A ready batch takes no longer than others do.
    ready_ms = [min(seen or 0.0, usual) for seen, usual in zip(seen_ms, input_ms, strict=True)]
    # Ranks take their batches at the same time. A repaired loader may do so for less, or for more.
    passing_ms = max(ready_ms)
    by_cause_ms: dict[str, float] = {
        name: float(probed.by_cause(name).mean()) / 1e6 for name in CAUSES
    }
    by_cause_ms["input"] += passing_ms
    probed_ms, real_ms = _probed_step_ms(probed), _step_ms(steady)
    probed_ms = probed_ms.minus(Mean(-passing_ms, (-2 * passing_ms, 0.0)))
    saved_ms = real_ms.minus(probed_ms)
    if None in seen_ms:
        most_ms = min(_MOST_READY_MS, max(input_ms)) - passing_ms
        probed_ms, saved_ms = _up_to(probed_ms, most_ms), _up_to(saved_ms, -most_ms)
    return InputProbe(
        len(probed),
        probed_ms,
        real_ms,
        saved_ms,
        by_cause_ms,
        _samples(steady),
        tuple(
            ProbedRank(
                rank,
                _loader_ms([probe for _, probe in probes.get(rank, [])]),
                _arrival_ms(probed, position) + ready_ms[position],
                _arrival_ms(steady, position),
            )
            for position, rank in enumerate(steady.ranks)
        ),
    )


def _up_to(mean: Mean, change: float) -> Mean:
    """Return a mean that may be larger by up to a change, or smaller by a negative one."""
    if mean.ci95 is None:
        return mean
    return Mean(mean.value, (mean.ci95[0] + min(change, 0.0), mean.ci95[1] + max(change, 0.0)))


def _probes_by_rank(
    run: Run, generations: Generations
) -> dict[int, list[tuple[Ledger, FetchedAhead]]]:
    """Return the probes of each rank, with the ledgers of their generations."""
    ledgers = {
        generations.aligned[index].generation: generations.ledgers[index]
        for index in generations.kept
    }
    probes: dict[int, list[tuple[Ledger, FetchedAhead]]] = {}
    for log in run.logs:
        if log.generation in ledgers:
            of_log = [(ledgers[log.generation], probe) for probe in log.input_probes]
            probes.setdefault(log.rank, []).extend(of_log)
    return probes


def _ready_ms(probes: Sequence[tuple[Ledger, FetchedAhead]], rank: int) -> float | None:
    """Return how long a rank takes batches of a step that its workers have ready; None if unknown.

    A probe's batches come from memory, but workers pass their batches on, however fast they are made.
    The first steps after a probe show that: meanwhile the workers have filled their queue.
    """
    times = []
    for ledger, probe in probes:
        pace_us, queued = loader_pace_us(probe), probe.ready or 0
        trained = (ledger.steps >= probe.first_step) & (ledger.steps < probe.end_step)
        if (
            not trained.any()
            or pace_us is None
            or pace_us * queued > ledger.total[trained][1:].sum() / 1e3
        ):
            continue
        until = probe.end_step + queued // _batches_per_step(probe)
        after = (ledger.steps >= probe.end_step) & (ledger.steps < until)
        # Workers start again in each epoch.
        after &= ledger.epochs == ledger.epochs[trained][-1]
        if after.any():
            inputs = ledger.cells.columns("input", [ledger.ranks.index(rank)])
            times.append(np.asarray(inputs).reshape(-1)[after])
    return float(np.median(np.concatenate(times))) / 1e6 if times else None


def _batches_per_step(probe: FetchedAhead) -> int:
    """Return how many batches a step takes: several with gradient accumulation."""
    return max(1, round(len(probe.fetched_us) / max(1, probe.end_step - probe.first_step)))


def _step_ms(ledger: Ledger) -> Mean:
    return mean_with_interval(ledger.total, _FEWEST_INDEPENDENT).scaled(1e-6)


def _probed_step_ms(ledger: Ledger) -> Mean:
    """Return the mean step of probes, with the wider of two intervals: of their steps, and of probes.

    The steps of a probe have in common what the machine does at that moment.
    """
    of_steps = _step_ms(ledger)
    probes = np.split(ledger.total, np.flatnonzero(np.diff(ledger.steps) != 1) + 1)
    if of_steps.ci95 is None or len(probes) < _FEWEST_PROBES:
        return of_steps
    means = np.array([probe.mean() for probe in probes]) / 1e6
    error = float(means.std(ddof=1) / np.sqrt(len(means)))
    half = float(student_quantile(0.975, len(means) - 1)) * error
    half = max(half, (of_steps.ci95[1] - of_steps.ci95[0]) / 2)
    return Mean(of_steps.value, (of_steps.value - half, of_steps.value + half))


def _samples(ledger: Ledger) -> float | None:
    per_step = ledger.samples
    known = (per_step >= 0).all(axis=1)
    return float(per_step[known].sum(axis=1).mean()) if known.any() else None


def _input_ms(ledger: Ledger, position: int) -> float:
    return float(np.mean(ledger.cells.columns("input", [position]))) / 1e6


def _arrival_ms(ledger: Ledger, position: int) -> float:
    return float(np.mean(ledger.cells.columns("arrival", [position]))) / 1e6


def _loader_ms(probes: Sequence[FetchedAhead]) -> Mean | None:
    """Return the time that a rank's loader alone takes for a step's batches."""
    times = [
        us / 1e3 * _batches_per_step(probe) for probe in probes for us in at_loaders_pace(probe)
    ]
    if len(times) < _FEWEST_INDEPENDENT:
        return None
    return mean_with_interval(times, _FEWEST_INDEPENDENT)


# -- Put the measured gains in the place of predicted ones ----------------------------------------


def with_measured_gains(attribution: Attribution, probe: InputProbe) -> Attribution:
    """Replace the gain of faster input by the measured one.

    If the slow ranks are slow in input only, their fix is measured as well: without them, steps go at
    the pace of the slowest other loader, or of steps without input stalls. Predictions stay where the
    probe cannot tell a gain.
    """
    step_ms = probe.real_ms.value
    if probe.is_unsure:
        return attribution
    measured: dict[Fix, Mean] = {Fix("input"): probe.saved_ms}
    waited_for = [
        straggler for straggler in attribution.stragglers if straggler.counts_as_imbalance
    ]
    named = [straggler for straggler in waited_for if straggler.fixes]
    if named and all(_is_slow_input(straggler) for straggler in named):
        ranks = {rank for straggler in named for rank in straggler.ranks}
        saved_ms = _saved_without(sorted(ranks), probe)
        if saved_ms is not None:
            # Other ranks that are late at times are so in a probe's steps, too.
            varying_ms = sum(
                straggler.cost_ms.value for straggler in waited_for if not straggler.fixes
            )
            if varying_ms:
                saved_ms = saved_ms.with_error(varying_ms)
            measured[Fix("imbalance")] = saved_ms
            if len(named) == 1:
                measured |= dict.fromkeys(named[0].fixes, saved_ms)
    gains = [_measured(gain, measured, step_ms) for gain in attribution.gains]
    in_turn = attribution.gains_in_turn
    if Fix("imbalance") in measured:
        # What is left for other loaders, once the slow ranks are fixed.
        left_ms = probe.saved_ms.minus(Mean(measured[Fix("imbalance")].value, (0.0, 0.0)))
        measured[Fix("input")] = Mean(max(0.0, left_ms.value), None)
    elif waited_for and all(
        gain.saved_ms.value <= probe.saved_ms.value for gain in in_turn if gain.fix == Fix("input")
    ):
        # Fixing the slow ranks first may leave less to input, but no more.
        del measured[Fix("input")]
    return replace(
        attribution,
        gains=tuple(gains),
        gains_in_turn=tuple(_measured(gain, measured, step_ms) for gain in in_turn),
        peer_limit_unknown=attribution.peer_limit_unknown and Fix("imbalance") not in measured,
        late_loaders=probe.late_loaders,
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
    if any(reason.code == "loader_busy_cores" for reason in verdict.why):
        # The probe's batches were made before the steps that were measured, and not beside them.
        most = amount(gain.saved_ms.ci95[1] if gain.saved_ms.ci95 else gain.saved_ms.value, "ms")
        text = (
            f"Input in time saves at most {most} of {whole} per step, and less if loading takes cores "
            "from training."
        )
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
    value, ci95 = probe.saved_ms.value - slower, probe.saved_ms.ci95
    return Mean(value, None if ci95 is None else (ci95[0] - slower, ci95[1] - slower))


def _measured(gain: WhatIf, measured: dict[Fix, Mean], step_ms: float) -> WhatIf:
    saved_ms = measured.get(gain.fix)
    if saved_ms is None:
        return gain
    known = replace(gain, bound=False, estimate=None, extrapolated=False, measured=True)
    return saving(known, saved_ms, step_ms)
