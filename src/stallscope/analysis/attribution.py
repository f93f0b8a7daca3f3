"""What the run's steps say: who makes the others wait, and what fixing each fault gains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .ledger import Ledger
from .result import Straggler
from .stats import mean_with_interval
from .stragglers import Found, find_stragglers
from .what_if import (
    WhatIf,
    unsure_of_peers,
    what_if,
    with_stage_of,
    without_faulty,
    without_lateness,
)

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Attribution:
    """What the run's steps say, when tested and replayed without each fault."""

    stragglers: tuple[Straggler, ...]
    gains: tuple[WhatIf, ...]
    #: What compute as in the baseline would gain; None without one.
    compute: WhatIf | None
    #: Whether nobody can be named because there are too few independent steps.
    too_few_steps: bool

    @property
    def named(self) -> tuple[int, ...]:
        """All ranks that are named, ascending."""
        return tuple(sorted({rank for one in self.stragglers for rank in one.ranks}))

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(host for one in self.stragglers for host in one.hosts))


def attribute(
    ledger: Ledger, hosts: Sequence[str], baseline: Ledger | None, blind_ns: float = 0.0
) -> Attribution:
    """Test for stragglers of every kind, and compute what each fix gains.

    Args:
        ledger: steady steps.
        hosts: per rank, its host.
        baseline: steady steps of the baseline.
        blind_ns: nobody is named for less: the completion skew, where clocks were aligned by it.
    """
    found = find_stragglers(ledger, hosts, blind_ns)
    last = without_faulty(ledger, found.slow)
    compute = None
    if baseline is not None and len(baseline):
        compute = _stage_gain("compute", ledger, found, last, baseline)
    return Attribution(
        found.stragglers,
        tuple(_gains(ledger, found, last, baseline)),
        compute,
        found.too_few_steps,
    )


def _gains(ledger: Ledger, found: Found, last: Ints, baseline: Ledger | None) -> list[WhatIf]:
    """What each fix gains; ``last`` is when the last rank is ready with the slow ones healed."""
    saved = ledger.last - last
    if found.late is not None:
        saved = saved + (ledger.last - without_lateness(ledger, found.late))
    gains = []
    if any(one.counts_as_imbalance for one in found.stragglers):
        gains.append(what_if("imbalance", ledger, saved, unsure_of_peers(ledger, found.slow)))
    # Behind others that are slower, healing one alone gains nothing.
    for one in (one for one in found.stragglers if one.cost_ms.value > 0):
        fixes = [f"host:{host}" for host in one.hosts] or [f"rank:{rank}" for rank in one.ranks]
        gains += [_gain_of(fix, ledger, one) for fix in fixes]
    for stage in ("input", "other"):
        gains.append(_stage_gain(stage, ledger, found, last, baseline))
    if len(ledger.ranks) > 1:
        gains.append(what_if("allreduce", ledger, ledger.allreduce))
    return gains


def _stage_gain(
    stage: str, ledger: Ledger, found: Found, last: Ints, baseline: Ledger | None
) -> WhatIf:
    """What a stage as in the baseline gains, besides what healing the named ones gains."""
    saved = last - with_stage_of(ledger, stage, baseline, last, found.healthy)
    if found.late is not None:
        saved = saved - (ledger.last - without_lateness(ledger, found.late.of_stage(stage)))
    unsure = 0.0
    if baseline is not None and len(baseline):
        base = mean_with_interval(getattr(baseline, stage).mean(axis=1))
        unsure = 0.0 if base.ci95 is None else (base.ci95[1] - base.ci95[0]) / 2
    return what_if(stage, ledger, saved, unsure)


def _gain_of(fix: str, ledger: Ledger, one: Straggler) -> WhatIf:
    step = float(ledger.total.mean()) / 1e6
    cost = one.cost_ms

    def speedup(ms: float) -> float:
        return step / max(step - ms, 1e-6)

    ci95 = None if cost.ci95 is None else (speedup(cost.ci95[0]), speedup(cost.ci95[1]))
    return WhatIf(fix, cost, speedup(cost.value), ci95)
