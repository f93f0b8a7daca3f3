"""Write potential gains, the largest first: the condition, the gain and its interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stallscope.analysis import Analysis
from stallscope.analysis.gains.input_probe import InputProbe
from stallscope.analysis.gains.what_if import WORTH_MENTIONING, Loss, WhatIf
from stallscope.formatting.lists import capitalised, counted, joined, listed
from stallscope.formatting.numbers import (
    amount,
    between,
    exact,
    faster,
    faster_between,
    faster_in_short,
    percent,
    said_as_share,
    share_saved,
    significant,
)
from stallscope.words import LOST_TIME, Fix, FixKind, LostTime, Verdict

from .vocabulary import FIX_NAMES, FIX_TITLES

#: For fixes that make steps no faster.
NO_GAIN = "no gain"
_NO_RANK_LATE = "no rank late at times"
# By the source of the prediction.
_GAINS_FROM = {
    "baseline": "Predicted from the baseline's steps.",
    "run": "Predicted by replaying the run's own steps without the fault.",
}
# Time outside of steps that no job needs; half of evaluations and checkpoints may do.
_AVOIDABLE: tuple[LostTime, ...] = ("unnamed", "repeated")
# These are answers to the user's questions.
_WHAT_IF = ("bandwidth", "ranks")


def fix_title(fix: Fix, slow: Sequence[Fix], in_turn: bool = False) -> str:
    """Describe the condition of a gain: ``With rank 3 as fast as the others``.

    Args:
        fix: the fix.
        slow: fixes of single ranks and hosts, which the fix ``imbalance`` combines.
        in_turn: whether that fix also ends lateness that varies from step to step.
    """
    if fix.kind in FIX_TITLES:
        return FIX_TITLES[fix.kind]
    if fix.kind == "bandwidth":
        return f"With {fix.value}× the bandwidth"
    if fix.kind == "ranks":
        return f"On {counted(int(fix.value), 'rank')}"
    if fix.kind != "imbalance":
        return f"With {_named(fix)} as fast as the others"
    if not slow:
        return f"With {_NO_RANK_LATE}"
    fixed = joined([_named(fix) for fix in slow])
    return f"With {fixed} as fast as the others" + (f", and {_NO_RANK_LATE}" if in_turn else "")


def _named(fix: Fix) -> str:
    """Name the rank or the host of a fix."""
    return listed(fix.kind, [fix.value])


def is_throughput(gain: WhatIf) -> bool:
    """Whether the gain is a ratio of throughputs: on more ranks, each with the same work."""
    return gain.fix.kind == "ranks"


def at_most(gain: WhatIf) -> str:
    """Return ``at most `` for a gain that is a bound; otherwise empty."""
    return "at most " if gain.bound else ""


def speedup(gain: WhatIf) -> str:
    """Write a speed-up: 1.25×, at most 1.25× for a bound, 98.5% shorter for a large one, or no gain."""
    if is_throughput(gain):
        return f"{significant(gain.speedup)}× throughput"
    if gain.saved_ms.value <= 0:
        return NO_GAIN
    return f"{at_most(gain)}{faster_in_short(gain.speedup, gain.ci95)}"


def as_fast(gain: WhatIf) -> tuple[str, str]:
    """Write a speed-up of steps and what it is of: at most 1.25×, as fast; 98.5%, shorter."""
    figure, of = faster(gain.speedup, gain.ci95)
    return f"{at_most(gain)}{figure}", of


def estimated(gain: WhatIf) -> str:
    """Write the estimate beside a bound in the bound's form."""
    assert gain.estimate is not None
    if said_as_share(gain.speedup, gain.ci95):
        return f"estimate {percent(share_saved(gain.estimate))} shorter"
    return f"estimate {significant(gain.estimate)}×"


def speedup_interval(gain: WhatIf) -> str:
    """Write the interval of a speed-up: 1.24–1.26×, or why there is none; of a bound, the estimate."""
    if gain.bound:
        same = gain.estimate is None or significant(gain.estimate) == significant(gain.speedup)
        return "an upper bound" if same else estimated(gain)
    if gain.ci95 is None:
        few = "runs or steps" if is_throughput(gain) else "independent steps"
        return f"no interval: too few {few}"
    if is_throughput(gain):
        return f"{between(*sorted(gain.ci95))}×"
    return faster_between(gain.speedup, gain.ci95)


def how_sure(gain: WhatIf) -> str:
    """Write the interval with its name: 95% interval: 1.24–1.26×; or why there is none."""
    measured = "measured in this run, " if gain.measured else ""
    interval = speedup_interval(gain)
    if gain.ci95 is None or gain.bound:
        return f"{measured}{interval}"
    return f"{measured}95% interval: {interval}"


def saved(gain: WhatIf) -> str | None:
    """Write the time saved: 10.9 ± 0.1 ms; None for a ratio of throughputs, which saves none."""
    if is_throughput(gain):
        return None
    return f"{at_most(gain)}{amount(gain.saved_ms.value, 'ms', gain.saved_ms.ci95)}"


def saving(gain: WhatIf, analysis: Analysis) -> str:
    """Write the time saved of the step: 10.9 ± 0.1 ms of the step's 54.1 ms."""
    time = saved(gain) or ""
    step = analysis.step
    return time if step is None else f"{time} of the step's {exact(step.mean, 'ms', step.ci95)}"


@dataclass(frozen=True)
class Gain:
    """The gain of a fix, with its title for people."""

    title: str
    what_if: WhatIf


def gains(analysis: Analysis) -> list[Gain]:
    """Return the gains; none if the logs are insufficient.

    The fix of the bottleneck comes first, then those of other faults, the largest first.
    """
    if analysis.bottleneck.kind == "insufficient_data":
        return []
    fixes = [gain for gain in analysis.what_if if gain.fix.kind not in _WHAT_IF]
    # Fixing the slow ranks fixes those as well that cost nothing while another one is slower.
    slow = [fix for straggler in analysis.stragglers for fix in straggler.fixes]
    in_turn = any(
        straggler.counts_as_imbalance and not straggler.ranks for straggler in analysis.stragglers
    )
    # With a single slow rank, fixing it and fixing all slow ranks are the same.
    alone = len(slow) == 1 and not in_turn
    shown = [gain for gain in fixes if not alone or gain.fix not in slow]
    best = max((gain.speedup for gain in shown if _order(gain)[0] == 0), default=1.0)
    shown = [
        gain for gain in shown if gain.fix.kind != "all" or gain.speedup > best * WORTH_MENTIONING
    ]
    main = _main_fix(analysis)
    shown.sort(key=lambda gain: (gain.fix.kind != main, *_order(gain)))
    return [Gain(fix_title(gain.fix, slow, in_turn), gain) for gain in shown]


def _order(gain: WhatIf) -> tuple[int, float]:
    """Sort fixes of faults first, then all of them together, then parts that every run has."""
    group = {"all": 1, "allreduce": 2, "variation": 2}.get(gain.fix.kind, 0)
    return group, -gain.speedup


def gains_worth_mentioning(analysis: Analysis) -> list[Gain]:
    """Return the gains that do not round to nothing, in the order of ``gains``."""
    return [gain for gain in gains(analysis) if gain.what_if.worth_mentioning]


def gains_note(analysis: Analysis) -> str:
    """Describe how the gains are predicted, which of them overlap, and which fixes gain nothing."""
    if analysis.printed is not None:
        of_timers = any(gain.fix.kind == "allreduce" for gain in analysis.what_if)
        source = "timers" if of_timers else "the wait for data"
        return f"From {source} in the lines; without it, a step may wait for other ranks."
    sentences = [_GAINS_FROM[analysis.predicted_from], "Each gain is of its fix alone."]
    probe = probe_sentence(analysis)
    if probe:
        sentences.insert(0, probe)
    overlap = overlap_sentence(analysis)
    if overlap:
        sentences.append(overlap)
    predicted = [gain.what_if for gain in gains(analysis)]
    nothing = [_short(gain, analysis) for gain in predicted if not gain.worth_mentioning]
    if nothing:
        sentences.append(f"Nothing to gain from {joined(nothing)}.")
    return " ".join(sentences)


def probe_sentence(analysis: Analysis) -> str:
    """Describe the measured step without input stalls, beside a baseline's; empty without a probe."""
    probe = analysis.input_probe
    if probe is None:
        return ""
    probed = amount(probe.probed_ms.value, "ms", probe.probed_ms.ci95)
    real = exact(probe.real_ms.value, "ms", probe.real_ms.ci95)
    measured = f"Measured in this run: {probed} per step without input stalls, {real} with them"
    gain = next((gain for gain in analysis.what_if if gain.fix == Fix("input")), None)
    if analysis.predicted_from == "run" or gain is None:
        return f"{measured}."
    predicted = amount(probe.real_ms.value - gain.saved_ms.value, "ms")
    return f"{measured}; the baseline predicts {_at_least(gain)}{predicted}."


def pace_sentence(probe: InputProbe) -> str:
    """Say whether the loader's own pace limits the steps, as an input probe shows it."""
    slowest = probe.slowest
    if slowest is None or slowest.loader_ms is None:
        return "Too few batches came at the loader's own pace to measure it."
    loader_ms, probed_ms = slowest.loader_ms.value, probe.probed_ms.value
    if loader_ms > probed_ms:
        return (
            f"Alone, the loader of rank {slowest.rank} takes longer than a step without input stalls: "
            "it limits the training."
        )
    if probe.saved_ms.ci95 is not None and probe.saved_ms.ci95[0] > 0:
        return (
            "Alone, the loader is fast enough: loading and training take turns, or take cores, disk or "
            "memory from each other."
        )
    return "The loader keeps up with the training."


def _at_least(gain: WhatIf) -> str:
    """Return ``at least `` for the step that a bounded gain leaves; otherwise empty."""
    return "at least " if gain.bound else ""


def overlap_sentence(analysis: Analysis) -> str:
    """Name the gains that save some of the same time; empty if there are none."""
    shown = [gain.what_if for gain in gains_worth_mentioning(analysis)]
    fixes = {gain.fix for gain in shown}
    overlapping = [_short(gain, analysis) for gain in shown if fixes & set(gain.overlaps)]
    if not overlapping:
        return ""
    return f"{capitalised(joined(overlapping))} overlap, so do not add their gains."


def _short(gain: WhatIf, analysis: Analysis) -> str:
    """Name what a fix is about in a few words."""
    slow = [fix for straggler in analysis.stragglers for fix in straggler.fixes]
    fix = slow[0] if gain.fix.kind == "imbalance" and len(slow) == 1 else gain.fix
    return FIX_NAMES.get(fix.kind) or _named(fix)


def answers(analysis: Analysis) -> list[Gain]:
    """Return the answers to the user's questions: another bandwidth or number of ranks."""
    asked = [answer for answer in analysis.what_if if answer.fix.kind in _WHAT_IF]
    return [
        Gain(fix_title(answer.fix, ()) + (" (extrapolated)" if answer.extrapolated else ""), answer)
        for answer in asked
    ]


def main_gain(analysis: Analysis) -> Gain | None:
    """Return the gain of fixing the bottleneck; None if the verdict names nothing to fix."""
    fix = _main_fix(analysis)
    main = next((gain for gain in gains(analysis) if gain.what_if.fix.kind == fix), None)
    return None if main is None or main.what_if.saved_ms.value <= 0 else main


def loss_title(loss: Loss) -> str:
    """Describe the condition of what a printed log gains: ``With half as many evaluations``."""
    halved = loss.of == "job" and loss.cause not in _AVOIDABLE
    return f"{'With half as many' if halved else 'Without'} {LOST_TIME[loss.cause]}"


def loss_gain(analysis: Analysis) -> str:
    """Write how much shorter a job or its steps become without what a printed log loses; or empty."""
    loss = analysis.bottleneck.loss
    if loss is None:
        return ""
    shorter = percent(loss.saved_share)
    if loss.of == "steps":
        return f"Without the delay, steps would be {shorter} shorter on average."
    if loss.cause in _AVOIDABLE:
        return f"Without them, this job would be {shorter} shorter."
    return f"Half as many would make this job {shorter} shorter."


def _main_fix(analysis: Analysis) -> FixKind | Verdict | None:
    bottleneck = analysis.bottleneck
    if bottleneck.cause in ("cores", "padding"):
        return None
    varies = bottleneck.kind == "imbalance" and not bottleneck.fault
    return "variation" if varies else bottleneck.kind


def other_gains(analysis: Analysis) -> list[Gain]:
    """Return the other gains that are worth mentioning, the largest first."""
    main = main_gain(analysis)
    return [gain for gain in gains_worth_mentioning(analysis) if gain != main]
