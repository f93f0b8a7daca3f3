"""What a fix gains: the time per step that it saves, the speed-up, and their intervals."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from stallscope.arrays.stats import Mean
from stallscope.arrays.types import Floats, Ints

from ..ledger.ledger import Ledger
from ..stragglers.replay import mean_saved

#: Without a baseline, nine in ten real trainings on CPU cores came out within this fraction of the
#: predicted step, beyond what both intervals explain: one half of the pairs of
#: benchmarks/scorecard/pairs.py, with steps of 10 ms. Longer steps come out closer.
MODEL_ERROR = 0.18


@dataclass(frozen=True)
class WhatIf:
    """A fix, the time per step that it saves, and the speed-up that follows.

    ``fix`` is ``input``, ``compute``, ``other``, ``allreduce``, ``imbalance``, ``rank:3``,
    ``host:NAME``, ``variation`` (half of it), ``all`` (every fault at once), ``bandwidth:2`` or
    ``ranks:64``. ``bound`` marks an upper bound. ``extrapolated`` where the run itself cannot show it.
    ``mostly_ms`` is what nine in ten of the steps save at least, which is known even where steps
    are too much alike for an interval.
    """

    fix: str
    saved_ms: Mean
    speedup: float
    ci95: tuple[float, float] | None
    extrapolated: bool = False
    mostly_ms: float = 0.0
    bound: bool = False


def what_if(
    fix: str,
    ledger: Ledger,
    saved: Ints,
    fixed: Floats | None = None,
    unsure_ns: float = 0.0,
) -> WhatIf:
    """The gain of a fix that saves so many nanoseconds in every step (see mean_saved)."""
    gain = what_if_saved(fix, ledger, mean_saved(saved, fixed, unsure_ns))
    mostly = float(np.quantile(saved, 0.1)) / 1e6 if len(saved) else 0.0
    return replace(gain, mostly_ms=mostly)


def with_model_error(gain: WhatIf, step_ms: float) -> WhatIf:
    """The gain with an interval that contains the model's own error; small gains change little."""
    after = step_ms - gain.saved_ms.value
    if gain.saved_ms.ci95 is None or after <= 0:
        return gain
    changed = float(np.clip(gain.saved_ms.value / after, 0.0, 1.0))
    half = MODEL_ERROR * after * changed
    return saving(gain, gain.saved_ms.minus(Mean(0.0, (-half, half))), step_ms)


def saving(gain: WhatIf, saved_ms: Mean, step_ms: float) -> WhatIf:
    """The same gain with other milliseconds saved per step, of so many.

    The speed-up has no interval where that of the milliseconds leaves open whether any step is left.
    """

    def speedup(ms: float) -> float:
        return step_ms / max(step_ms - ms, 1e-6)

    ci95 = saved_ms.ci95
    known = ci95 is not None and ci95[1] < step_ms
    sure = (speedup(ci95[0]), speedup(ci95[1])) if ci95 is not None and known else None
    return replace(gain, saved_ms=saved_ms, speedup=speedup(saved_ms.value), ci95=sure)


def what_if_saved(fix: str, ledger: Ledger, saved: Mean) -> WhatIf:
    """The gain of a fix that saves so many nanoseconds per step on average."""
    step = float(ledger.total.mean())
    mostly = float(np.quantile(ledger.total, 0.1)) - (step - saved.value)
    gain = WhatIf(fix, Mean(0.0, None), 1.0, None, mostly_ms=mostly / 1e6)
    return saving(gain, saved.scaled(1e-6), step / 1e6)
