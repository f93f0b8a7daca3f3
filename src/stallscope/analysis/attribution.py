"""What the run's steps say: who makes the others wait, and what fixing each fault gains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from .ledger import Ledger, mean_over_ranks
from .loaders import pace_unseen, with_loaders_at_work
from .result import Straggler
from .stats import mean_with_interval
from .stragglers import Found, find_stragglers
from .variation import Variation, variation
from .what_if import (
    Replay,
    WhatIf,
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
    #: Imbalance that is input in truth, milliseconds per step: loaders were at work while ranks waited.
    loaders_at_work_ms: float = 0.0
    #: Whether the named ranks' loaders run ahead, and how fast the others' are does not show.
    pace_unseen: bool = False

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
    recorded, ledger = ledger, with_loaders_at_work(ledger)
    found = find_stragglers(recorded, ledger, hosts, blind_ns)
    healed = without_faulty(ledger, found.slow)
    varies = variation(ledger, baseline, found, healed)
    if varies is not None:
        found = _with(found, varies.straggler)
    compute = None
    if baseline is not None and len(baseline):
        compute = _stage_gain("compute", ledger, found, healed.last, baseline, varies)
    return Attribution(
        found.stragglers,
        tuple(_gains(ledger, found, healed, baseline, varies)),
        compute,
        found.too_few_steps,
        float((recorded.imbalance - ledger.imbalance).mean()) / 1e6,
        pace_unseen(ledger, _slow_in_input(ledger, found)),
    )


def _slow_in_input(ledger: Ledger, found: Found) -> list[int]:
    """Positions of the ranks that are slow all the time, by input."""
    named = {rank for one in found.stragglers if one.stage == "input" for rank in one.ranks}
    return [rank for rank in found.slow if ledger.ranks[rank] in named]


def _with(found: Found, varying: Straggler) -> Found:
    """The same with compute that varies on all ranks, of which single late cells are a part."""
    rest = [one for one in found.stragglers if (one.pattern, one.stage) != ("rotating", "compute")]
    stragglers = sorted([*rest, varying], key=lambda one: one.cost_ms.value, reverse=True)
    return replace(found, stragglers=tuple(stragglers), late=found.named_late)


def _gains(
    ledger: Ledger,
    found: Found,
    healed: Replay,
    baseline: Ledger | None,
    varies: Variation | None,
) -> list[WhatIf]:
    """What each fix gains; ``healed`` are the steps with the slow ranks healed."""
    saved = healed.saved(ledger)
    if found.late is not None:
        saved = saved + (ledger.last - without_lateness(ledger, found.late))
    unsure = 0.0
    if varies is not None:
        saved, unsure = saved + varies.saved, varies.unsure_ns
    gains = []
    if any(one.counts_as_imbalance for one in found.stragglers):
        gains.append(what_if("imbalance", ledger, saved, healed.fixed, unsure))
    # Behind others that are slower, healing one alone gains nothing.
    for one in (one for one in found.stragglers if one.cost_ms.value > 0):
        fixes = [f"host:{host}" for host in one.hosts] or [f"rank:{rank}" for rank in one.ranks]
        gains += [_gain_of(fix, ledger, one) for fix in fixes]
    for stage in ("input", "other"):
        gains.append(_stage_gain(stage, ledger, found, healed.last, baseline))
    if len(ledger.ranks) > 1:
        gains.append(what_if("allreduce", ledger, ledger.allreduce))
    return gains


def _stage_gain(
    stage: str,
    ledger: Ledger,
    found: Found,
    last: Ints,
    baseline: Ledger | None,
    varies: Variation | None = None,
) -> WhatIf:
    """What a stage as in the baseline gains, when ``last`` is what healing the named ones leaves.

    Where compute varies, a baseline's compute would not, either: that part is imbalance's gain.
    """
    replay = with_stage_of(ledger, stage, baseline, last, found.healthy)
    saved = last - replay.last
    if found.late is not None:
        saved = saved - (ledger.last - without_lateness(ledger, found.late.of_stage(stage)))
    if varies is not None:
        saved = saved - varies.saved
    return what_if(stage, ledger, saved, replay.fixed, _unsure(stage, ledger, baseline))


def _unsure(stage: str, ledger: Ledger, baseline: Ledger | None) -> float:
    """Half the interval of what a stage is held against, nanoseconds."""
    if baseline is None or not len(baseline):
        return 0.0
    mean = mean_with_interval(baseline.cells.per_step(mean_over_ranks, stage))
    mean = ledger.as_sure_as_clocks(stage, baseline.as_sure_as_clocks(stage, mean))
    return 0.0 if mean.ci95 is None else (mean.ci95[1] - mean.ci95[0]) / 2


def _gain_of(fix: str, ledger: Ledger, one: Straggler) -> WhatIf:
    step = float(ledger.total.mean()) / 1e6
    cost = one.cost_ms

    def speedup(ms: float) -> float:
        return step / max(step - ms, 1e-6)

    ci95 = None if cost.ci95 is None else (speedup(cost.ci95[0]), speedup(cost.ci95[1]))
    return WhatIf(fix, cost, speedup(cost.value), ci95)
