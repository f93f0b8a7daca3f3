"""Reach a verdict, and predict gains, from logs that only have epochs or lines about steps."""

from __future__ import annotations

from dataclasses import replace

from stallscope.arrays.stats import Mean
from stallscope.formatting.lists import counted
from stallscope.formatting.numbers import amount, percent, percent_ends

from ..ledger.epochs import EpochTimes
from ..ledger.printed_steps import PrintedSteps
from .bottleneck import Bottleneck
from .verdict import FEWEST_STEPS, WORTHWHILE, insufficient
from .what_if import WhatIf, saving

# A smaller share of the step does not count as waiting.
_HARDLY = 0.01
_ADVICE = (
    'Train with StepLogger on every rank: model.fit(data, callbacks=[StepLogger("logs/run-42")]), or '
    "stallscope.torch's. A few hundred steps separate input, compute, slow ranks and allreduce.",
)


def without_stages(printed: PrintedSteps, known_from: str, precision: str) -> Bottleneck:
    """Return the verdict on a series of step times: whether steps wait for data, and how to record more.

    The wait is a fault if the low end of its interval is worthwhile. With several ranks, the shortest
    wait counts: another rank's work may hide a longer one.

    Args:
        printed: the series.
        known_from: its source, in words.
        precision: its precision, in words.
    """
    share, what = printed.input_share, "how long steps took, but not their stages"
    if printed.input_ms is not None and share is not None:
        sure = printed.least_input_ms or printed.input_ms
        certain = share if sure is printed.input_ms else sure.scaled(1 / printed.step.mean)
        low = (certain.ci95 or (certain.value,))[0]
        if low >= WORTHWHILE and printed.steps >= FEWEST_STEPS:
            return _input(printed, sure, certain, known_from)
        wait = percent(share.value)
        what = f"that steps wait for data {wait} of their time, and nothing of other stages"
        if printed.steps < FEWEST_STEPS:
            what = f"{counted(printed.steps, 'step')}, too few for a verdict; {wait} is waiting for data"
    return _insufficient(what, known_from, precision)


def without_steps(times: EpochTimes) -> Bottleneck:
    """Return the verdict on logs of epochs, or of a mean: what they show, and how to record more."""
    if times.epochs:
        what = "how long epochs took, but not the stages of a step"
    elif times.step_ms is not None:
        what = "how long a step took on average, but not its stages"
    else:
        what = "how often a metric was logged, but not the stages of a step"
    return _insufficient(what, times.known_from, times.precision)


def _insufficient(what: str, known_from: str, precision: str) -> Bottleneck:
    known = f"these logs record {what}: they are {known_from} ({precision})"
    return replace(insufficient(known), advice=_ADVICE)


def gains_of_lines(bottleneck: Bottleneck, printed: PrintedSteps) -> tuple[WhatIf, ...]:
    """Return the most that input without delays gains; nothing if the wait is unknown.

    It is an upper bound, because a rank may wait for other ranks instead.
    """
    if bottleneck.kind != "input" or printed.input_ms is None:
        return ()
    gain = WhatIf("input", Mean(0.0, None), 1.0, None, bound=True)
    return (saving(gain, printed.most_input_ms or printed.input_ms, printed.step.mean),)


def _input(printed: PrintedSteps, wait: Mean, share: Mean, known_from: str) -> Bottleneck:
    interval = share.ci95
    sure = f" (95% interval: {percent_ends(interval)})" if interval else ""
    step = amount(printed.step.mean, "ms")
    return Bottleneck(
        "input",
        None,
        f"{_who_waits(printed)} {amount(wait.value, 'ms', wait.ci95)} of {step} for their data, "
        f"{percent(share.value)}{sure}, by {known_from}. These logs do not show the other stages of "
        "a step.",
        advice=_ADVICE,
        fault=True,
    )


def _who_waits(printed: PrintedSteps) -> str:
    if printed.least_input_ms is None or len(printed.ranks) == 1:
        return "Steps wait"
    return "All ranks wait at least"


def waits_of_ranks(printed: PrintedSteps) -> str:
    """Describe how long the ranks wait for data, if only that is known; empty otherwise.

    This blames no rank: the others may compute for as long meanwhile.
    """
    means = [(windows.mean_input_ms, windows.rank) for windows in printed.steady_ranks]
    waits = [(ms, rank) for ms, rank in means if ms is not None]
    if not waits or len(waits) < len(printed.ranks):
        return ""
    (least, first), (most, last) = min(waits), max(waits)
    step = f"of {amount(printed.step.mean, 'ms')} per step"
    if most < _HARDLY * printed.step.mean:
        known = f"no rank more than {amount(most, 'ms')} {step}"
    elif first == last:
        known = f"{amount(most, 'ms')} {step}"
    else:
        known = f"rank {first} {amount(least, 'ms')} and rank {last} {amount(most, 'ms')} {step}"
        if len(waits) > 2:
            known += ", others between these"
    return f"Waiting for data takes {known}. The rest is not measured apart."
