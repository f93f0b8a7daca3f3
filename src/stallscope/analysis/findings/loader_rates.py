"""Report the rate of a loader run alone: in a verdict, in advice, and as a finding."""

from __future__ import annotations

from collections.abc import Iterator

from stallscope.formatting.lists import clipped

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
        # An unknown function is sped up in the same way as decoding.
        unknown = stage.kind == "other" and "Map(" in stage.name
        kind = "decode" if unknown else stage.kind
        times[kind] = times.get(kind, 0.0) + stage.ms
    if max(times, key=times.__getitem__) not in _ADVISED:
        return None
    return InputTimes(**{kind: ms for kind, ms in times.items() if kind in _ADVISED})


def loader_rate_sentence(rates: InputRates) -> str:
    """Describe the loader's rate, whether it is enough, and its longest stage; empty if unknown."""
    alone, longest, batch_ms = rates.alone, rates.longest, rates.slowest.ms
    if alone is None:
        return ""
    interval = "" if alone.ci95 is None else f" (95 %: {alone.ci95[0]:,.0f}–{alone.ci95[1]:,.0f})"
    stage = ""
    if longest is not None and batch_ms is not None:
        stage = (
            f"; its longest stage is {longest.kind}: {clipped(longest.name)}, {longest.ms:.3g} ms of a "
            f"batch's {batch_ms:.3g} ms"
        )
    together = " Not all ranks measured at the same time: together, loaders may be slower."
    return (
        f"Run alone, the loader of rank {rates.slowest.rank} gives {alone.value:,.0f} samples/s"
        f"{interval}{_comparison(rates)}{stage}.{'' if rates.at_once else together}"
    )


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
