"""The verdict and the gains where lines about epochs or steps are all that is known."""

from __future__ import annotations

from dataclasses import replace

from stallscope.arrays.stats import Mean
from stallscope.formatting.numbers import amount, percent

from ..ledger.epochs import EpochTimes
from ..ledger.printed_steps import PrintedSteps
from .bottleneck import Bottleneck
from .verdict import WORTHWHILE, insufficient
from .what_if import WhatIf, saving

_ADVICE = (
    'Train with StepLogger on every rank: model.fit(data, callbacks=[StepLogger("logs/run-42")]), or '
    "stallscope.torch's. A few hundred steps separate input, compute, slow ranks and allreduce.",
)


def without_steps(times: EpochTimes, printed: PrintedSteps | None) -> Bottleneck:
    """Return the verdict on logs without recorded steps: what they tell, and how to record more.

    The wait for data is a fault where the low end of its interval is worth it.
    """
    share = None if printed is None else printed.input_share
    if printed is not None and printed.input_ms is not None and share is not None:
        if (share.ci95 or (share.value,))[0] >= WORTHWHILE:
            return _input(times, printed.input_ms, share)
        wait = percent(share.value)
        what = f"that steps wait for data {wait} of their time, and nothing of other stages"
    elif printed is not None:
        what = "how long steps took, but not their stages"
    elif times.epochs:
        what = "how long epochs took, but not the stages of a step"
    elif times.step_ms is not None:
        what = "how long a step took on average, but not its stages"
    else:
        what = "how often a metric was logged, but not the stages of a step"
    known = f"these logs record {what}: they are {times.known_from} ({times.precision})"
    return replace(insufficient(known), advice=_ADVICE)


def gains_of_lines(bottleneck: Bottleneck, printed: PrintedSteps) -> tuple[WhatIf, ...]:
    """Return the gain of input that is never late, at most; nothing where the wait is not known.

    Other ranks may be what a rank without its wait waits for next.
    """
    if bottleneck.kind != "input" or printed.input_ms is None:
        return ()
    gain = WhatIf("input", Mean(0.0, None), 1.0, None, bound=True)
    return (saving(gain, printed.input_ms, printed.step.mean),)


def _input(times: EpochTimes, wait: Mean, share: Mean) -> Bottleneck:
    interval = share.ci95
    sure = f" (95% interval: {percent(interval[0])} to {percent(interval[1])})" if interval else ""
    step = "" if times.step_ms is None else f" of {amount(times.step_ms, 'ms')}"
    return Bottleneck(
        "input",
        None,
        f"Steps wait {amount(wait.value, 'ms', wait.ci95)}{step} for their data, {percent(share.value)}"
        f"{sure}, by {times.known_from}. These logs do not record what the rest of a step is.",
        advice=_ADVICE,
        fault=True,
    )
