"""What the run's steps say: who makes the others wait, and what fixing each fault gains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..ledger.ledger import Ledger
from ..settings.cores import CoreUse
from ..stragglers.loaders import pace_unseen, with_loaders_at_work
from ..stragglers.replay import without_faulty
from ..stragglers.straggler import Straggler
from ..stragglers.stragglers import Found, find_stragglers
from ..stragglers.variation import variation
from .gains import Faults, gains_alone, gains_with_baseline
from .what_if import WhatIf


@dataclass(frozen=True)
class Attribution:
    """What the run's steps say, when tested and replayed without each fault."""

    stragglers: tuple[Straggler, ...]
    gains: tuple[WhatIf, ...]
    #: Whether no rank can be named because there are too few independent steps.
    too_few_steps: bool
    #: Imbalance that slow input causes, milliseconds per step: loaders were at work while ranks waited.
    loaders_at_work_ms: float = 0.0
    #: Whether the named ranks' loaders run ahead, and how fast the others' are does not show.
    pace_unseen: bool = False

    def gain(self, fix: str) -> WhatIf | None:
        return next((gain for gain in self.gains if gain.fix == fix), None)

    @property
    def named(self) -> tuple[int, ...]:
        """All ranks that are named, ascending."""
        return tuple(sorted({rank for one in self.stragglers for rank in one.ranks}))

    @property
    def hosts(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(host for one in self.stragglers for host in one.hosts))


def attribute(
    ledger: Ledger,
    hosts: Sequence[str],
    baseline: Ledger | None,
    blind_ns: float = 0.0,
    cores: CoreUse | None = None,
) -> Attribution:
    """Test for stragglers of every kind, and predict what each fix gains.

    Args:
        ledger: steady steps.
        hosts: per rank, its host.
        baseline: steady steps of a baseline of the same job on as many ranks.
        blind_ns: no rank is named for less: the completion skew, where clocks were aligned by it.
        cores: how the ranks use CPU cores, where that is known.
    """
    cores = cores or CoreUse()
    recorded, ledger = ledger, with_loaders_at_work(ledger)
    found = find_stragglers(recorded, ledger, hosts, blind_ns)
    fixed = without_faulty(ledger, found.slow)
    varies = variation(ledger, baseline, found, fixed)
    if varies is not None:
        found = _with(found, varies.straggler)
    unseen = pace_unseen(ledger, _slow_in_input(ledger, found))
    faults = Faults(ledger, found, fixed, varies, unseen)
    if baseline is None:
        gains = gains_alone(faults, cores)
    else:
        gains = gains_with_baseline(faults, baseline, cores)
    return Attribution(
        _costliest_first(gains, found.stragglers),
        tuple(gains),
        found.too_few_steps,
        float((recorded.imbalance - ledger.imbalance).mean()) / 1e6,
        unseen,
    )


def _costliest_first(
    gains: Sequence[WhatIf], stragglers: Sequence[Straggler]
) -> tuple[Straggler, ...]:
    """Give each straggler the cost that fixing it saves, and sort by cost.

    Lateness that varies from step to step is left out where it costs nothing.
    """
    saved = {gain.fix: gain.saved_ms for gain in gains}
    only_one = sum(one.counts_as_imbalance for one in stragglers) == 1
    costly = []
    for one in stragglers:
        fixes = one.fixes
        if not fixes and one.counts_as_imbalance and only_one:
            # It names no rank, but then it is all that the imbalance consists of.
            fixes = ("imbalance",)
        cost = next((saved[fix] for fix in fixes if fix in saved), one.cost_ms)
        if one.ranks or cost.value > 0:
            costly.append(replace(one, cost_ms=cost))
    return tuple(sorted(costly, key=lambda one: one.cost_ms.value, reverse=True))


def _slow_in_input(ledger: Ledger, found: Found) -> list[int]:
    """Positions of the ranks that are slow all the time, by input."""
    named = {rank for one in found.stragglers if one.stage == "input" for rank in one.ranks}
    return [rank for rank in found.slow if ledger.ranks[rank] in named]


def _with(found: Found, varying: Straggler) -> Found:
    """The same with compute that varies on all ranks, of which single late cells are a part."""
    rest = [one for one in found.stragglers if (one.pattern, one.stage) != ("rotating", "compute")]
    stragglers = sorted([*rest, varying], key=lambda one: one.cost_ms.value, reverse=True)
    return replace(found, stragglers=tuple(stragglers), late=found.named_late)
