"""Report the rate of a loader run alone: in a verdict, in advice, and as a finding."""

from __future__ import annotations

from collections.abc import Iterator

from stallscope.formatting.lists import clipped
from stallscope.run import InputStage

from ..advice.input import InputTimes, for_late_input
from ..advice.piece import in_words
from ..gains.bottleneck import Bottleneck
from ..gains.input_times import InputRates
from ..settings.setup import Setup
from .finding import Finding

_ADVISED = ("read", "decode", "augment", "batch")


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
        in_words(for_late_input(setup, stage_times(rates))),
    )


def stage_times(rates: InputRates | None) -> InputTimes | None:
    """Return the stages' times by kind; None if there is no advice for the longest one."""
    if rates is None or rates.longest is None:
        return None
    times: dict[str, float] = {}
    for stage in rates.slowest.stages:
        kind = _advised(stage)
        times[kind] = times.get(kind, 0.0) + stage.ms
    if max(times, key=times.__getitem__) not in _ADVISED:
        return None
    return InputTimes(**{kind: ms for kind, ms in times.items() if kind in _ADVISED})


def loader_rate_sentence(rates: InputRates) -> str:
    """Describe the loader's rate, whether it is enough, and its longest stage; empty if unknown."""
    alone = rates.alone
    if alone is None:
        return ""
    interval = "" if alone.ci95 is None else f" (95 %: {alone.ci95[0]:,.0f}–{alone.ci95[1]:,.0f})"
    loader = f"the loader of rank {rates.slowest.rank}"
    gives = f"Run alone, {loader} gives {alone.value:,.0f} samples/s{interval}"
    return f"{gives}{_comparison(rates)}{_longest_stage(rates)}.{_not_at_once(rates)}"


def _advised(stage: InputStage) -> str:
    # An unknown function is sped up in the same way as decoding.
    return "decode" if stage.kind == "other" and "Map(" in stage.name else stage.kind


def _comparison(rates: InputRates) -> str:
    if rates.needed is None:
        return ""
    needed = f"{rates.needed:,.0f} that a rank "
    needed += "trains on synthetic data" if rates.synthetic is not None else "needs"
    if rates.enough is None:
        return f", which cannot be distinguished from the {needed}"
    if rates.enough:
        return (
            f", more than the {needed}: it is late only during training, which competes with it for "
            "cores, disk or memory"
        )
    return f", less than the {needed}"


def _longest_stage(rates: InputRates) -> str:
    longest, batch_ms = rates.longest, rates.slowest.ms
    if longest is None or batch_ms is None:
        return ""
    return (
        f"; its longest stage is {longest.kind}: {clipped(longest.name)}, "
        f"{longest.ms:.3g} ms of a batch's {batch_ms:.3g} ms"
    )


def _not_at_once(rates: InputRates) -> str:
    if rates.at_once:
        return ""
    return " Not all ranks measured at the same time: together, loaders may be slower."
