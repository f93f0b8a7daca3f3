"""Gains of fixes with their intervals, and the verdict that rests on them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Literal

import numpy as np

from stallscope.arrays.stats import Mean
from stallscope.arrays.types import Floats, Ints
from stallscope.words import Cause, Fix, LostTime, Verdict

from ..ledger.ledger import Ledger
from ..steps.links import Link
from ..stragglers.replay import mean_saved

# Without a baseline, nine in ten real trainings on CPU cores were within this fraction of the predicted
# step, beyond both intervals. Measured on one half of the pairs of benchmarks/scorecard/pairs.py, with
# steps of 10 ms; predictions of longer steps are closer.
_MODEL_ERROR = 0.18
# No log is precise enough to know that a fix leaves less than this share of a step.
_LEAST_LEFT = 0.001
#: Smaller speed-ups round to nothing.
WORTH_MENTIONING = 1.005


@dataclass(frozen=True)
class WhatIf:
    """A fix, the time per step that it saves, and the resulting speed-up.

    ``bound`` marks an upper bound of the gain: it has no interval, and ``estimate`` is the speed-up that
    the run's steps show. ``extrapolated`` marks a gain that the run cannot show. ``mostly_ms`` is the
    least that nine in ten steps save. It is known even if there are too few independent steps for an
    interval. ``overlaps`` are other fixes that save some of the same time. ``measured`` marks a gain
    that an input probe has measured in the run, where others are predicted.
    """

    fix: Fix
    saved_ms: Mean
    speedup: float
    ci95: tuple[float, float] | None
    extrapolated: bool = False
    mostly_ms: float = 0.0
    bound: bool = False
    overlaps: tuple[Fix, ...] = ()
    estimate: float | None = None
    measured: bool = False

    @property
    def worth_mentioning(self) -> bool:
        """Whether the speed-up does not round to nothing."""
        return (self.estimate or self.speedup) >= WORTH_MENTIONING


def what_if(
    fix: Fix,
    ledger: Ledger,
    saved: Ints,
    fixed: Floats | None = None,
    uncertainty_ns: float = 0.0,
) -> WhatIf:
    """Return the gain of a fix that saves these nanoseconds, per step (see mean_saved)."""
    gain = what_if_saved(fix, ledger, mean_saved(saved, fixed, uncertainty_ns))
    mostly = float(np.quantile(saved, 0.1)) / 1e6 if len(saved) else 0.0
    return replace(gain, mostly_ms=mostly)


def with_model_error(gain: WhatIf, step_ms: float) -> WhatIf:
    """Extend a gain's interval by the model's own error; small gains change little."""
    after = step_ms - gain.saved_ms.value
    if gain.saved_ms.ci95 is None or after <= 0:
        return gain
    changed = float(np.clip(gain.saved_ms.value / after, 0.0, 1.0))
    half = _MODEL_ERROR * after * changed
    return saving(gain, gain.saved_ms.with_error(half), step_ms)


def as_bound(gain: WhatIf, step_ms: float, limit_ms: float, more_ms: float = 0.0) -> WhatIf:
    """Turn the estimate of a bounded gain into the most that it may be; return other gains as they are.

    Args:
        gain: the estimate of the gain.
        step_ms: the run's step.
        limit_ms: no fix saves more milliseconds per step.
        more_ms: milliseconds per step that the fix may save beyond the estimate's interval.
    """
    if not gain.bound:
        return gain
    most, measured = gain.saved_ms.value, gain.fix.kind == "allreduce"
    if gain.saved_ms.ci95 is not None:
        most = gain.saved_ms.ci95[1]
    elif not measured:
        # Too few independent steps for an interval, so the model's error is the least.
        most += _MODEL_ERROR * max(0.0, step_ms - most)
    # Allreduce never costs nothing, so there is no estimate of that.
    estimate = None if measured else gain.speedup
    most = max(gain.saved_ms.value, min(most + more_ms, limit_ms))
    return saving(replace(gain, estimate=estimate), Mean(most, None), step_ms)


def saving(gain: WhatIf, saved_ms: Mean, step_ms: float) -> WhatIf:
    """Replace the milliseconds that a gain saves per step.

    The speed-up has no interval if the interval of the milliseconds reaches the whole step.
    """

    def speedup(ms: float) -> float:
        return step_ms / max(step_ms - ms, _LEAST_LEFT * step_ms, 1e-6)

    ci95 = saved_ms.ci95
    bounded = ci95 is not None and ci95[1] < step_ms
    interval = (speedup(ci95[0]), speedup(ci95[1])) if ci95 is not None and bounded else None
    return replace(gain, saved_ms=saved_ms, speedup=speedup(saved_ms.value), ci95=interval)


def what_if_saved(fix: Fix, ledger: Ledger, saved: Mean) -> WhatIf:
    """Return the gain of a fix that saves this many nanoseconds per step on average."""
    step = float(ledger.total.mean())
    mostly = float(np.quantile(ledger.total, 0.1)) - (step - saved.value)
    gain = WhatIf(fix, Mean(0.0, None), 1.0, None, mostly_ms=mostly / 1e6)
    return saving(gain, saved.scaled(1e-6), step / 1e6)


# -- Define the verdict on a run: its bottleneck, the reasons for it, and what to do about it -----


#: How advice to replace hosts begins.
REPLACE = "Replace "


@dataclass(frozen=True)
class Advice:
    """A recommended change.

    ``line`` is a line of Python or shell to paste; names such as ``dataset``, ``model`` and
    ``optimizer`` stand for the user's own. Pages show the parts one by one; ``str`` joins them.
    """

    #: What to do, which stands out: the start of a sentence without its end.
    action: str
    line: str = ""
    #: The gain, and the exceptions and alternatives, as whole sentences.
    gain: str = ""
    unless: str = ""
    _: KW_ONLY
    #: Why, before the action: whole sentences, or a clause with its colon.
    reason: str = ""
    #: More on the action in the same sentence, with the punctuation before it.
    detail: str = ""
    #: Further remarks, as whole sentences.
    note: str = ""

    @property
    def replaces_hosts(self) -> bool:
        """Whether it is to replace hosts."""
        return self.action.startswith(f"{REPLACE}host")

    @property
    def sentence(self) -> str:
        """The reason, the action and its detail, without the sentence's end."""
        return f"{self.reason} {self.action}{self.detail}".lstrip()

    @property
    def emphasised(self) -> str:
        """The action, with the sentence's end if nothing follows."""
        return self.action if self.detail else f"{self.action}{self._end}"

    @property
    def rest(self) -> str:
        """The detail with the sentence's end; empty without detail."""
        return f"{self.detail}{self._end}" if self.detail else ""

    @property
    def caveat(self) -> str:
        """The sentences after the line."""
        return " ".join(part for part in (self.gain, self.unless, self.note) if part)

    @property
    def _end(self) -> str:
        return ":" if self.line else "."

    def __str__(self) -> str:
        line = f": `{self.line}`" if self.line else ""
        return f"{self.sentence}{line}. {self.caveat}".rstrip()


def in_words(pieces: Iterable[Advice]) -> str:
    """Join the texts of advice."""
    return " ".join(map(str, pieces))


@dataclass(frozen=True)
class Reason:
    """A reason why a rank or a stage is slow: a count unlike the peers', or a loader's figure."""

    #: ``throttled``, ``other_processes``, ``stolen_cores``, ``memory``, ``disk``, ``more_cpu_time``, ….
    code: str
    #: A sentence.
    text: str
    ranks: tuple[int, ...]
    #: Set if whole hosts were counted.
    hosts: tuple[str, ...]
    #: The counted quantity, and its unit.
    quantity: str
    unit: str
    #: The name of its series over time.
    series: str
    #: Means over the steady steps: of these ranks or hosts, and of the median peer; None if all ranks
    #: have too large a value. For ranks that are late at times: while they are late, and at other times.
    value: float
    peers: float | None
    #: The 95 % interval of the difference, or of the value without peers. For ranks that are late at
    #: times: of the change of their difference from their peers. None for figures of a loader.
    ci95: tuple[float, float] | None
    while_late: bool = False


@dataclass(frozen=True)
class Loss:
    """The time that a printed log loses to one cause, by sums."""

    cause: LostTime
    seconds: float
    #: Its share of the ``job``'s time or, of slow steps, of the ``steps``' time.
    of: Literal["job", "steps"]
    share: float
    #: Whether it contains the start of the job, and the share that a fix saves: half of evaluations and
    #: checkpoints, without the start.
    with_start: bool
    saved_share: float

    @property
    def saved_s(self) -> float:
        """Return the seconds that a fix saves."""
        return self.seconds * self.saved_share / self.share if self.share else 0.0


@dataclass(frozen=True)
class Bottleneck:
    """A verdict. ``ranks`` and ``hosts`` are set only if a test names them as slow.

    ``fault`` is False for a healthy run; ``kind`` is then the largest part that could shrink.
    """

    kind: Verdict
    cause: Cause | None
    evidence: str
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    advice: tuple[Advice, ...] = ()
    fault: bool = False
    #: Slow links between hosts, if these make communication slow.
    links: tuple[Link, ...] = ()
    #: Counts on the slow ranks, or on all of them, that explain it.
    why: tuple[Reason, ...] = ()
    #: What a printed log loses to the cause; None for other logs and causes.
    loss: Loss | None = None
    #: The step since which steps are slower, if verdict, slow ranks and gains are those of the steps
    #: from there on; None if they are those of all steady steps.
    since_step: int | None = None

    @property
    def healthy(self) -> bool:
        """Whether the logs suffice for a verdict, and show no fault."""
        return not self.fault and self.kind != "insufficient_data"
