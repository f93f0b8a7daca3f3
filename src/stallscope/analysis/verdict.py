"""The verdict: what holds the run back most, of what could be won back.

The ledger describes; the verdict rests on what-if gains. Faults of named ranks are healed first, so
that a slow input on one rank is that rank's fault and not the loader's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .attribution import Attribution
from .epochs import EpochTimes
from .ledger import STAGES, Ledger
from .result import Bottleneck, Straggler
from .what_if import ASSUMED_MS, WhatIf

#: What cannot win back this share of the step is not worth a verdict.
WORTHWHILE = 0.05
# Fewer are an impression and no measurement, however alike they are.
_FEWEST_STEPS = 20
_AS_GOOD_AS_ALWAYS = 0.995
_DECIDING = ("imbalance", "input", "other", "allreduce")

_ADVICE_WITHOUT_STEPS = (
    'Train with StepLogger on every rank: model.fit(data, callbacks=[StepLogger("logs/run-42")]), or '
    "stallscope.torch's. A few hundred steps tell input, compute, slow ranks and allreduce apart.",
)


def decide(
    ledger: Ledger, found: Attribution, missing_ranks: Sequence[int], has_baseline: bool
) -> Bottleneck:
    """The verdict over a run's steady steps; what to do about it is advice's."""
    step_ms = float(ledger.total.mean()) / 1e6
    candidates = [gain for gain in found.gains if gain.fix in _DECIDING]
    if found.compute is not None:
        candidates.append(found.compute)
    candidates.sort(key=lambda gain: gain.saved_ms.value, reverse=True)
    if found.too_few_steps and len(ledger.ranks) > 1:
        # Nobody can be named, but what costs time on whichever rank may be plain all the same.
        candidates = [gain for gain in candidates if _surely_worthwhile(gain, step_ms)]
        if not candidates or len(ledger) < _FEWEST_STEPS:
            return _insufficient(
                f"{len(ledger)} steady steps, each much like the one before, are too few to tell a "
                "fault from chance; a few hundred are enough in most runs"
            )
    if not candidates or candidates[0].saved_ms.value < WORTHWHILE * step_ms:
        return _nothing_to_gain(candidates, step_ms, has_baseline)
    best = candidates[0]
    if best.fix == "allreduce" and missing_ranks:
        return _insufficient(
            f"logs of {_ranks(missing_ranks)} are missing: what looks like allreduce may be waiting "
            "for them"
        )
    rival = next((gain for gain in candidates[1:] if _overlap(best, gain)), None)
    if rival is not None:
        return Bottleneck(
            "balanced",
            None,
            f"{_title(best.fix)} and {rival.fix} could each win back about "
            f"{best.saved_ms.value:.1f} ms of a {step_ms:.1f} ms step; the steps there are cannot "
            "tell which is more.",
        )
    if best.fix == "imbalance":
        return _imbalance(best, found, step_ms)
    return _on_all_ranks(best, ledger, found, step_ms, has_baseline)


def _imbalance(best: WhatIf, found: Attribution, step_ms: float) -> Bottleneck:
    counted = [one for one in found.stragglers if one.counts_as_imbalance]
    worst = counted[0]
    gain = f"{best.saved_ms.value:.1f} of {step_ms:.1f} ms per step"
    rest = len(counted) - 1
    more = f" {rest} more {'is' if rest == 1 else 'are'} in the table." if rest else ""
    return Bottleneck(
        "imbalance",
        worst.stage,
        f"{sentence(worst)}{more} {_saves(found)} {gain}.",
        ranks=found.named,
        hosts=found.hosts,
    )


def _saves(found: Attribution) -> str:
    if not found.pace_unseen:
        return "Healing that saves"
    return (
        "The others' queues are full, so how much faster their loaders are does not show: healing that "
        "saves at most"
    )


def sentence(one: Straggler) -> str:
    """What a straggler does to the others, with the evidence."""
    who = f"host {', '.join(one.hosts)} ({_ranks(one.ranks)})" if one.hosts else _ranks(one.ranks)
    by = f"{one.excess_ms.value:.1f} ms"
    share = f"{one.late_share:.0%} of steps"
    if one.pattern == "rotating" and one.late_share > _AS_GOOD_AS_ALWAYS:
        return (
            f"Which rank is last changes from step to step: its {one.stage} takes {by} longer than the "
            "typical rank's, and no rank has more of that than chance gives."
        )
    if one.pattern == "rotating":
        return (
            f"In {share} some rank or other is late by {by} of {one.stage}; it moves around, and no "
            "rank has more of it than chance gives."
        )
    if one.pattern == "bursts":
        return f"{_title(who)}: late in {share}, then by {by} of {one.stage}."
    grows = ", more and more of it as the run goes on" if one.pattern == "ramp" else ""
    work = (
        f" It works through {one.work:.2f} times the others' samples: uneven work, not slow hardware."
        if one.work is not None
        else ""
    )
    return (
        f"The others wait for {who}: last to be ready in {share}, with {by} more {one.stage} than "
        f"the others{grows}.{work}"
    )


def _on_all_ranks(
    best: WhatIf, ledger: Ledger, found: Attribution, step_ms: float, has_baseline: bool
) -> Bottleneck:
    gain = f"{best.saved_ms.value:.1f} of {step_ms:.1f} ms per step"
    where = "" if found.too_few_steps or len(ledger.ranks) == 1 else " on all ranks"
    evidence = {
        "input": f"Batches come late{where}: input costs {gain}",
        "compute": f"Compute takes longer{where}: that costs {gain}",
        "other": f"Work between steps costs {gain}{where}",
        "allreduce": f"Exposed allreduce takes {gain}; if it cost nothing, that is what it would save",
    }[best.fix]
    if best.fix != "allreduce":
        evidence += (
            " beyond the baseline's."
            if has_baseline
            else f", if {ASSUMED_MS:g} ms is what it needs; a synthetic baseline would tell."
        )
    else:
        evidence += "."
    if found.too_few_steps and len(ledger.ranks) > 1:
        evidence += (
            " Whether a rank is slower than the others, so few independent steps cannot tell."
        )
    return Bottleneck(best.fix, best.fix if best.fix in STAGES else None, evidence)


def _nothing_to_gain(
    candidates: Sequence[WhatIf], step_ms: float, has_baseline: bool
) -> Bottleneck:
    most = candidates[0] if candidates else None
    rest = (
        f"the most that could be won back is {max(most.saved_ms.value, 0.0):.1f} of {step_ms:.1f} ms "
        f"({most.fix})"
        if most
        else "nothing could be won back"
    )
    if has_baseline:
        return Bottleneck("compute", "compute", f"The step is compute, as in the baseline: {rest}.")
    return Bottleneck(
        "balanced",
        None,
        f"No fault found: {rest}. Whether compute is all it could be, a synthetic baseline would tell.",
    )


def without_steps(known: EpochTimes) -> Bottleneck:
    """That logs without steps cannot tell: what they know, and what would tell."""
    what = "how long epochs took" if known.epochs else "how long a step took on average"
    if not known.epochs and known.step_ms is None:
        what = "how often a metric was logged"
    reason = _insufficient(
        f"these logs know {what}, not where the time of a step went: they are {known.known_from} "
        f"({known.precision})"
    )
    return replace(reason, advice=_ADVICE_WITHOUT_STEPS)


def _insufficient(reason: str) -> Bottleneck:
    return Bottleneck("insufficient_data", None, reason[0].upper() + reason[1:] + ".")


def _surely_worthwhile(gain: WhatIf, step_ms: float) -> bool:
    """Whether even the low end of the gain's interval is worth a verdict, or what most steps gain."""
    ci95 = gain.saved_ms.ci95
    least = gain.mostly_ms if ci95 is None else max(ci95[0], gain.mostly_ms)
    return least >= WORTHWHILE * step_ms


def _overlap(best: WhatIf, rival: WhatIf) -> bool:
    """Whether each gain lies within the other's interval."""
    mine, theirs = best.saved_ms.ci95, rival.saved_ms.ci95
    if mine is None or theirs is None:
        return False
    return (
        mine[0] <= rival.saved_ms.value <= mine[1] and theirs[0] <= best.saved_ms.value <= theirs[1]
    )


def _ranks(ranks: Sequence[int]) -> str:
    numbers = [str(rank) for rank in ranks[:8]] + (["…"] if len(ranks) > 8 else [])
    return f"rank {numbers[0]}" if len(ranks) == 1 else f"ranks {', '.join(numbers)}"


def _title(word: str) -> str:
    return word[0].upper() + word[1:]
