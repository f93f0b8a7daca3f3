"""Reach a verdict: the costliest fault, or the largest part of a healthy step that could shrink.

The verdict rests on what-if gains. Named ranks are fixed first, so slow input on one rank is that
rank's fault and not the loader's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from stallscope.arrays.stats import Mean, mean_with_interval
from stallscope.formatting.lists import capitalised, counted, joined, listed, ranks_in_words
from stallscope.formatting.numbers import amount, exact, faster, faster_in_short, percent
from stallscope.run import Run
from stallscope.words import CAUSES, OUTSIDE_STEPS, STAGES, Fix, FixKind, Stage, known

from ..ledger.ledger import Ledger
from ..setup import CpuLoad, Setup, crowded_cores
from ..stragglers.lap_test import too_few
from ..stragglers.lateness import Straggler
from ..stragglers.replay import ASSUMED_MS
from .attribution import Attribution
from .baseline_replay import longer_allreduce
from .gains import FAULTS, IMBALANCE
from .what_if import Bottleneck, WhatIf

#: A fault on all ranks that costs a smaller share of the step is not worth a verdict.
WORTHWHILE = 0.05
# A named rank is certainly slow, so a smaller gain is worth a verdict.
_WORTHWHILE_OF_NAMED = 0.01
#: Without a baseline, exposed allreduce is a fault only from this share of the step: every job has some.
TOO_MUCH_ALLREDUCE = 1 / 3
# A stage that takes this share of all steps' time is a fault in them, however uncertain further steps
# are, if so many steps, or stretches of steps, are mostly it: a single one may be due to anything.
_TOO_MUCH_OF_STAGE, _FEWEST_SLOW, _FEWEST_STRETCHES = 1 / 3, 10, 3
# On cores that are not shared, compute grows by less than this from one rank to many.
_COMPUTE_GROWTH = 1.1
#: Fewer steps do not suffice for a verdict, however similar they are.
FEWEST_STEPS = 20
# Profilers trace a few steps. A fault in nearly all of them is not due to chance.
_FEWEST_TRACED = 5
_NEARLY_ALWAYS = 0.995

# Faults that have another name in sentences.
_NAMES: dict[FixKind, str] = {"imbalance": "slow ranks", "other": "work between steps"}
_PARTS: dict[FixKind, str] = {
    "allreduce": "exposed allreduce",
    "variation": "waiting caused by variation among ranks",
}

_POLLING = (
    " Waiting ranks keep their cores busy, because Horovod polls while it waits under PyTorch."
)


@dataclass(frozen=True)
class ComparableRuns:
    """Steady steps of the same job on synthetic data: on as many ranks, and on one rank."""

    baseline: Ledger | None = None
    single: Ledger | None = None


def decide(
    ledger: Ledger, attribution: Attribution, run: Run, compared: ComparableRuns
) -> Bottleneck:
    """Return the verdict over a run's steady steps, without advice."""
    step_ms = float(ledger.total.mean()) / 1e6
    faults = _faults(ledger, attribution, compared.baseline)
    if attribution.too_few_steps and len(ledger.ranks) > 1:
        # No rank can be named, but a fault of all ranks may still be clear.
        faults = [
            gain
            for gain in faults
            if _certainly_worthwhile(gain, step_ms) or _takes_too_much(gain, ledger)
        ]
        traced = run.fact("known_from") is not None
        if len(ledger) < (_FEWEST_TRACED if traced else FEWEST_STEPS) or not faults:
            return insufficient(
                f"{too_few(ledger)} to distinguish a fault from chance; a few hundred are enough in "
                "most runs"
            )
    crowded = _crowded(run, ledger, compared)
    # A baseline on as many ranks shares the cores in the same way, so faults beyond it come first.
    if crowded is not None and not (faults and compared.baseline is not None):
        # The most that compute would save if every thread had a core.
        from_cores = float(ledger.by_cause("compute").mean()) / 1e6 * (1 - 1 / crowded.over)
        if from_cores > max([WORTHWHILE * step_ms, *(gain.saved_ms.value for gain in faults)]):
            return _on_crowded_cores(crowded, ledger, run, compared)
    if not faults:
        rare = _rare(ledger, attribution)
        return rare or _healthy(ledger, attribution, run, compared)
    best, rest = faults[0], faults[1:]
    if best.fix.kind in FAULTS:
        # Reports print the gain of this fix alone, as their tables do.
        best = attribution.gain(best.fix) or best
    if best.fix.kind == "allreduce" and run.unknown_ranks:
        return _allreduce_unknown(run)
    mean = mean_with_interval(ledger.total).scaled(1e-6)
    step = exact(mean.value, "ms", mean.ci95)
    runner_up = next((gain for gain in rest if _indistinguishable(faults[0], gain)), None)
    if runner_up is not None:
        return Bottleneck(
            "balanced",
            None,
            f"Fixing {_title(best)} and fixing {_title(runner_up)} each save "
            f"{'' if best.bound else 'about '}{_saved(best, step)} per step. The steps do not show "
            "which saves more.",
            fault=True,
        )
    if best.fix == IMBALANCE:
        return _imbalance(best, attribution, step, run)
    return _on_all_ranks(best, ledger, attribution, step, compared.baseline is not None)


def _faults(ledger: Ledger, attribution: Attribution, baseline: Ledger | None) -> list[WhatIf]:
    """Select the fixes of faults that are worth a verdict, the best first."""
    step_ms = float(ledger.total.mean()) / 1e6
    gains = [gain for gain in attribution.gains_in_turn if gain.fix.kind in FAULTS]
    gains += _allreduce_faults(ledger, attribution, baseline)
    least: dict[FixKind, float] = dict.fromkeys((*FAULTS, "allreduce"), WORTHWHILE * step_ms)
    if attribution.named:
        least["imbalance"] = _WORTHWHILE_OF_NAMED * step_ms
    worth = [
        gain
        for gain in gains
        if _certain_saving_ms(gain) >= least[gain.fix.kind] or _takes_too_much(gain, ledger)
    ]
    return sorted(worth, key=lambda gain: gain.saved_ms.value, reverse=True)


def _certain_saving_ms(gain: WhatIf) -> float:
    """Return the milliseconds that a fix saves: for a stage on all ranks, the interval's low end.

    Without an interval, it is what nearly all steps save.
    """
    if gain.fix.kind not in STAGES:
        return gain.saved_ms.value
    return gain.mostly_ms if gain.saved_ms.ci95 is None else gain.saved_ms.ci95[0]


def _takes_too_much(gain: WhatIf, ledger: Ledger) -> bool:
    """Whether a stage takes much of all steps' time, and not in one moment."""
    stage = _large_stage(gain, ledger)
    if stage is None:
        return False
    slow = int((2 * ledger.by_cause(stage) > ledger.total).sum())
    return slow >= _FEWEST_SLOW or _stretches_of(stage, ledger) >= _FEWEST_STRETCHES


def _large_stage(gain: WhatIf, ledger: Ledger) -> Stage | None:
    """Return the stage of a fix that saves much of all steps' time; None for other fixes."""
    least_ms = _TOO_MUCH_OF_STAGE * float(ledger.total.mean()) / 1e6
    return known(gain.fix.kind, STAGES) if gain.saved_ms.value >= least_ms else None


def _rare(ledger: Ledger, attribution: Attribution) -> Bottleneck | None:
    """Return a verdict on a stage that takes much of the time in too few stretches of steps."""
    for gain in attribution.gains_in_turn:
        stage = _large_stage(gain, ledger)
        if stage is not None:
            return insufficient(
                f"{stage} takes {_share_of(stage, ledger)} of the time of the steady steps, but in "
                f"{counted(_stretches_of(stage, ledger), 'stretch', 'stretches')} of steps only, which "
                "may have happened once: a longer run tells"
            )
    return None


def _share_of(stage: Stage, ledger: Ledger) -> str:
    return percent(float(ledger.by_cause(stage).mean() / ledger.total.mean()))


def _stretches_of(stage: Stage, ledger: Ledger) -> int:
    """Count the stretches of steps that are mostly this stage."""
    is_most = 2 * ledger.by_cause(stage) > ledger.total
    return int(np.count_nonzero(np.diff(is_most, prepend=False) & is_most))


def _allreduce_faults(
    ledger: Ledger, attribution: Attribution, baseline: Ledger | None
) -> list[WhatIf]:
    """Return exposed allreduce if it is a fault: longer than the baseline's, or much of the step."""
    gain = attribution.gain(Fix("allreduce"))
    if gain is None:
        return []
    if baseline is None:
        step_ms = float(ledger.total.mean()) / 1e6
        return [gain] if gain.saved_ms.value >= TOO_MUCH_ALLREDUCE * step_ms else []
    longer = longer_allreduce(ledger, baseline).scaled(1e-6)
    return [replace(gain, saved_ms=longer, mostly_ms=0.0, bound=False)]


def _crowded(run: Run, ledger: Ledger, compared: ComparableRuns) -> CpuLoad | None:
    """Find a machine with more compute threads than cores, unless compute is as fast as on one rank."""
    load, single = crowded_cores(run), compared.single
    if run.times_host_work:
        return None  # how long ranks compute on their devices is not known
    if load is None or single is None or not len(single):
        return load
    grown = ledger.by_cause("compute").mean() / single.by_cause("compute").mean()
    return load if grown > _COMPUTE_GROWTH else None


def _on_crowded_cores(
    load: CpuLoad, ledger: Ledger, run: Run, compared: ComparableRuns
) -> Bottleneck:
    step = mean_with_interval(ledger.total).scaled(1e-6)
    single = ""
    if compared.single is not None and len(compared.single):
        single = f", against {_compute(compared.single)} on one rank"
    return Bottleneck(
        "compute",
        "cores",
        f"{len(load.ranks)} ranks with {counted(load.threads, 'compute thread')} together share the "
        f"{load.cores} CPU cores of {listed('host', load.hosts)}. "
        f"Compute takes {_compute(ledger)} of the "
        f"{_in_words(step)} step{single}."
        f"{_POLLING if Setup.of(run).polls else ''}",
        fault=True,
    )


def _in_mesh(ranks: Sequence[int], run: Run) -> str:
    """Say where in the job's mesh these ranks are: one rank, or all of a place; empty otherwise."""
    places = {rank: log.place for rank, log in run.last_logs.items()}
    known_places = [places[rank] for rank in ranks if places.get(rank)]
    if not known_places or len(known_places) < len(ranks):
        return ""
    if len(ranks) == 1:
        where = [f"{name} {place}" for name, place in known_places[0].items()]
        return f" In the mesh it is {joined(where)}."
    for name, place in known_places[0].items():
        if {rank for rank, of in places.items() if of.get(name) == place} == set(ranks):
            return f" In the mesh they are {name} {place}."
    return ""


def _imbalance(best: WhatIf, attribution: Attribution, step: str, run: Run) -> Bottleneck:
    """Return the verdict on slow ranks."""
    worst, *others = [
        straggler for straggler in attribution.stragglers if straggler.counts_as_imbalance
    ]
    rest = len(others)
    where = "" if worst.place else _in_mesh(attribution.named, run)
    if run.times_host_work and worst.stage == "compute":
        where += " That is host code, from the batch's arrival to the dispatch of the step."
    more = f" The table lists {rest} more." if rest else ""
    peers = ""
    if attribution.peer_limit_unknown:
        peers = "The other ranks' loaders keep up, so their limit is unknown. "
    return Bottleneck(
        "imbalance",
        worst.stage,
        f"{sentence(worst)}{where}{more} {peers}Fixing {_whom(attribution)} saves "
        f"{_saved(best, step)} per step{_how(best)}.",
        ranks=attribution.named,
        hosts=attribution.hosts,
        fault=True,
    )


def _whom(attribution: Attribution) -> str:
    """Name the ranks that the fix of the imbalance fixes, also those that hide behind slower ones."""
    if len(attribution.hosts) == 1 and len(attribution.stragglers) == 1:
        return listed("host", attribution.hosts[:1])
    if len(attribution.stragglers) == 1 and attribution.stragglers[0].place:
        return attribution.stragglers[0].place
    ranks = {rank for straggler in attribution.stragglers for rank in straggler.ranks}
    if len(ranks) == 1:
        return f"rank {min(ranks)}"
    return "these ranks" if ranks else "this"


def sentence(straggler: Straggler) -> str:
    """Describe a straggler in a sentence, with the evidence."""
    who = ranks_in_words(straggler.ranks)
    if straggler.hosts:
        who = f"{listed('host', straggler.hosts)} ({who})"
    if straggler.place:
        who = f"all of {straggler.place} ({who})"
    by = _in_words(straggler.excess_ms)
    share = f"{percent(straggler.late_share)} of steps"
    if straggler.pattern == "rotating" and straggler.late_share > _NEARLY_ALWAYS:
        return (
            f"Another rank is last in every step: its {straggler.stage} takes {by} longer than the "
            "typical rank's. No rank is last more often than chance explains."
        )
    if straggler.pattern == "rotating":
        return (
            f"In {share} some rank is late by {by} of {straggler.stage}. No rank is late more often "
            "than chance explains."
        )
    if straggler.pattern == "bursts":
        return f"{capitalised(who)} is late in {share}, by {by} of {straggler.stage}."
    grows = ", and more as the run goes on" if straggler.pattern == "ramp" else ""
    work = (
        f" It processes {straggler.work:.2f} times the samples of its peers: the work is uneven, the "
        "hardware is not slow."
        if straggler.work is not None
        else ""
    )
    what = _NAMES.get(straggler.stage, straggler.stage)
    return (
        f"{capitalised(who)} is last in {share}, with {by} more {what} than its peers{grows}.{work}"
    )


def _on_all_ranks(
    best: WhatIf, ledger: Ledger, attribution: Attribution, step: str, has_baseline: bool
) -> Bottleneck:
    where = "" if attribution.too_few_steps or len(ledger.ranks) == 1 else " on all ranks"
    saved = _saved(best, step)
    late = f" on {ranks_in_words(attribution.late_loaders)}" if attribution.late_loaders else where
    beyond = " more than in the baseline" if has_baseline else ""
    part, cause = known(best.fix.kind, CAUSES), known(best.fix.kind, STAGES)
    assert part is not None  # faults of ranks have another verdict
    evidence = {
        "input": f"Batches arrive late{late}. Fixing input saves {saved} per step{_how(best)}",
        "compute": f"Compute is slower{where} than in the baseline. Fixing it saves {saved} per step",
        "other": f"Work between steps is slow{where}. Fixing it saves {saved} per step",
        "allreduce": f"Exposed allreduce takes {_measured(best, step)} per step{beyond}",
    }[part]
    if cause is not None and not has_baseline and not best.measured:
        needs = f"{ASSUMED_MS:g} ± {ASSUMED_MS:g} ms"
        evidence += f", if it needs {needs}. A synthetic baseline would show what it needs"
    if cause is not None and not best.bound and _certain_saving_ms(best) <= 0:
        stretches = counted(_stretches_of(cause, ledger), "stretch", "stretches")
        evidence += f". That is uncertain: it comes in {stretches} of steps only"
    if attribution.too_few_steps and len(ledger.ranks) > 1:
        evidence += ". Too few independent steps to tell whether one rank is slower"
    return Bottleneck(part, cause, f"{evidence}.", fault=True)


def _title(gain: WhatIf) -> str:
    return _NAMES.get(gain.fix.kind, gain.fix.kind)


def _healthy(
    ledger: Ledger, attribution: Attribution, run: Run, compared: ComparableRuns
) -> Bottleneck:
    """Return the verdict on a healthy run: the largest part of the step that could shrink."""
    step_ms = float(ledger.total.mean()) / 1e6
    parts = [gain for gain in attribution.gains if gain.fix.kind in _PARTS]
    most = max(parts, key=lambda gain: gain.saved_ms.value, default=None)
    if most is None or most.saved_ms.value < WORTHWHILE * step_ms:
        if compared.baseline is not None:
            return Bottleneck("compute", "compute", "The step takes as long as the baseline's.")
        if run.times_host_work:
            return _devices_unseen(ledger, attribution.hidden_hosts)
        unknown = "A synthetic baseline would show whether compute is as fast as it can be."
        return Bottleneck("balanced", None, unknown)
    if most.fix.kind == "allreduce" and run.unknown_ranks:
        return _allreduce_unknown(run)
    gain = f"at most {faster_in_short(most.speedup, most.ci95)}"
    varying = max(STAGES, key=lambda stage: float(ledger.excess(stage).mean()))
    varies = most.fix.kind == "variation"
    if varies:
        faster_by = " ".join(faster(most.speedup, most.ci95))
        gain = f"with half the variation, steps would be {faster_by}"
    return Bottleneck(
        "imbalance" if varies else "allreduce",
        varying if varies else None,
        f"The largest part that could shrink is {_PARTS[most.fix.kind]}: {gain}.",
    )


def _devices_unseen(ledger: Ledger, hidden: Sequence[int]) -> Bottleneck:
    """Return the verdict where no rank's host holds up the others, and its devices may."""
    late = f". Steps do not end later if {ranks_in_words(hidden)} is late" if hidden else ""
    return insufficient(
        f"no rank's input or host code makes others wait{late}. Whose devices compute longest is not "
        f"known: the compiled step, most of the {_compute(ledger)} of compute, shows no times inside"
    )


def _allreduce_unknown(run: Run) -> Bottleneck:
    return insufficient(
        f"logs of {ranks_in_words(run.unknown_ranks)} are {run.why_unknown}: allreduce may contain "
        "waiting for them"
    )


def fault_as_baseline(
    bottleneck: Bottleneck, stragglers: Sequence[Straggler], step_ms: Mean | None, synthetic: bool
) -> str | None:
    """Describe the fault that makes a run unfit as a baseline; None if it is fit.

    A slow rank makes every run unfit. Late input, or slow work between steps, is a fault of runs on real
    data: on synthetic data it is what the other run needs as well. Long allreduce and crowded cores are
    faults of the job, which its baseline has as well. Time outside of steps is in none of them.

    Args:
        bottleneck: its verdict.
        stragglers: its stragglers.
        step_ms: its mean step time.
        synthetic: whether to judge it as a run on synthetic data. Of several on synthetic data, one that
            would be fit on real data, too, is the better baseline.
    """
    least_ms = 0.0 if step_ms is None else WORTHWHILE * step_ms.value
    for straggler in stragglers:
        if straggler.ranks and straggler.cost_ms.value >= least_ms:
            return sentence(straggler)
    in_steps = bottleneck.kind in ("input", "other", "balanced")
    in_steps &= bottleneck.cause not in OUTSIDE_STEPS
    if not synthetic and bottleneck.fault and in_steps:
        return bottleneck.evidence
    return None


def insufficient(reason: str) -> Bottleneck:
    """Return the verdict on logs that do not suffice, with the reason."""
    return Bottleneck("insufficient_data", None, capitalised(reason) + ".")


def _certainly_worthwhile(gain: WhatIf, step_ms: float) -> bool:
    """Whether the low end of the gain's interval, or the gain of most steps, is worth a verdict."""
    low, _ = gain.saved_ms.ci95 or (gain.mostly_ms, 0.0)
    return max(low, gain.mostly_ms) >= WORTHWHILE * step_ms


def _indistinguishable(best: WhatIf, runner_up: WhatIf) -> bool:
    """Whether each gain lies within the other's interval."""
    pairs = (best.saved_ms, runner_up.saved_ms), (runner_up.saved_ms, best.saved_ms)
    return all(
        first.ci95 and first.ci95[0] <= second.value <= first.ci95[1] for first, second in pairs
    )


def _saved(gain: WhatIf, step: str) -> str:
    return f"{'at most ' if gain.bound else ''}{_measured(gain, step)}"


def _how(gain: WhatIf) -> str:
    return ", as measured in this run" if gain.measured else ""


def _measured(gain: WhatIf, step: str) -> str:
    return f"{_in_words(gain.saved_ms)} of {step}"


def _compute(ledger: Ledger) -> str:
    return _in_words(ledger.mean_ms("compute", by_cause=True))


def _in_words(ms: Mean) -> str:
    return amount(ms.value, "ms", ms.ci95)
