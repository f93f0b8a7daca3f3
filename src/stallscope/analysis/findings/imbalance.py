"""Find imbalance and late input with a known reason: extra work of rank 0, rates of loaders."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from stallscope.formatting.lists import clipped
from stallscope.formatting.numbers import between, percent, rate, significant

from ..advice.input_advice import for_late_input
from ..gains.baseline import InputRates
from ..gains.what_if import Advice, Bottleneck
from ..ledger.ledger import Ledger
from ..setup import Setup
from ..stragglers.lateness import Straggler
from .finding import Finding

# A smaller share of the step needs no explanation.
_WORTH = 0.05


def ranks_starve_in_turn(from_input_ms: float, ledger: Ledger) -> Iterator[Finding]:
    """Find imbalance during which the waiting ranks' loaders worked.

    Args:
        from_input_ms: this imbalance, milliseconds per step.
        ledger: steady steps.
    """
    if from_input_ms < _WORTH * float(ledger.total.mean()) / 1e6:
        return
    imbalance = float(ledger.imbalance.mean()) / 1e6
    yield Finding(
        "ranks_starve_in_turn",
        "info",
        "Waiting caused by slow input",
        f"In {from_input_ms:.1f} of the {imbalance:.1f} ms that ranks wait per step, they wait for "
        "another rank's batch while their own loaders work. Which rank's batch arrives first is random.",
        (
            Advice(
                "Consider input and waiting together",
                detail=": faster loaders on all ranks fix both, and another machine for the last rank "
                "fixes neither",
            ),
        ),
    )


def rank_0_extra_work(stragglers: Sequence[Straggler]) -> Iterator[Finding]:
    """Find extra work of rank 0 between steps, which is rarely a hardware fault."""
    for straggler in stragglers:
        if straggler.ranks == (0,) and straggler.stage == "other":
            yield Finding(
                "rank_0_extra_work",
                "warning",
                "Rank 0 does extra work between steps",
                f"It takes {straggler.excess_ms.value:.1f} ms longer than its peers between steps, in "
                f"{percent(straggler.late_share)} of them; all ranks wait "
                f"{straggler.cost_ms.value:.1f} ms per step for it.",
                (
                    Advice(
                        "do less in them, less often, or on a thread",
                        reason="Callbacks that run on rank 0 only (logging, summaries, progress, "
                        "checkpoints) make all other ranks wait:",
                    ),
                ),
            )


# -- Report the rate of a loader run alone: in a verdict, in advice, and as a finding -------------


def input_too_slow_alone(
    rates: InputRates | None, setup: Setup, verdict: Bottleneck
) -> Iterator[Finding]:
    """Find a loader that is too slow even when run alone, unless the verdict reports it already."""
    if rates is None or rates.enough is not False or verdict.kind == "input":
        return
    yield Finding(
        "input_too_slow_alone",
        "warning",
        "The loader is slower than training",
        loader_rate_sentence(rates),
        for_late_input(setup, longest_stage(rates), rates.proposed),
    )


def longest_stage(rates: InputRates | None) -> str | None:
    """Return the kind of stages that takes longest; None if unknown."""
    if rates is None or rates.longest is None:
        return None
    times: dict[str, float] = defaultdict(float)
    for stage in rates.slowest.stages:
        # An unknown function is sped up in the same way as decoding.
        unknown = stage.kind == "other" and "Map(" in stage.name
        times["decode" if unknown else stage.kind] += stage.ms
    return max(times, key=times.__getitem__)


def loader_rate_sentence(rates: InputRates) -> str:
    """Describe the loader's rate, whether it is enough, and its longest stage; empty if unknown."""
    alone, longest, batch_ms = rates.alone, rates.longest, rates.slowest.ms
    if alone is None:
        return ""
    interval = "" if alone.ci95 is None else f" (95 %: {between(*alone.ci95)})"
    stage = ""
    if longest is not None and batch_ms is not None:
        stage = (
            f"; its longest stage is {longest.kind}: {clipped(longest.name)}, {longest.ms:.3g} ms of a "
            f"batch's {batch_ms:.3g} ms"
        )
    together = " Not all ranks measured at the same time: together, loaders may be slower."
    return (
        f"Run alone, the loader of rank {rates.slowest.rank} gives {rate(alone.value)}"
        f"{interval}{_comparison(rates)}{stage}.{'' if rates.at_once else together}"
    )


def _comparison(rates: InputRates) -> str:
    if rates.needed is None:
        return ""
    needed = f"{significant(rates.needed)} that a rank "
    needed += "trains on synthetic data" if rates.synthetic is not None else "needs"
    if rates.enough is None:
        return f", which cannot be distinguished from the {needed}"
    if rates.enough:
        return (
            f", more than the {needed}: it is late only during training, which competes with it for "
            "cores, disk or memory"
        )
    return f", less than the {needed}"
