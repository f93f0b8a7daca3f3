"""What a loader measured alone shows: in a verdict, in advice, and as a finding."""

from __future__ import annotations

from collections.abc import Iterator

from stallscope.formatting.lists import clipped
from stallscope.run import InputStage

from ..advice import InputTimes, for_late_input, in_words
from ..gains.bottleneck import Bottleneck
from ..gains.input_times import InputRates
from ..settings.setup import Setup
from .finding import Finding

_ADVISED = ("read", "decode", "augment", "batch")


def input_too_slow_alone(
    rates: InputRates | None, setup: Setup, verdict: Bottleneck
) -> Iterator[Finding]:
    """Return nothing if input is the verdict, which then contains it."""
    if rates is None or rates.enough is not False or verdict.kind == "input":
        return
    yield Finding(
        "input_too_slow_alone",
        "warning",
        "The loader is slower than training",
        in_a_sentence(rates),
        in_words(*for_late_input(setup, stage_times(rates))),
    )


def stage_times(rates: InputRates | None) -> InputTimes | None:
    """What advice is given by; None where the longest stage is none that advice knows."""
    if rates is None or rates.longest is None:
        return None
    times: dict[str, float] = {}
    for stage in rates.slowest.stages:
        kind = _advised(stage)
        times[kind] = times.get(kind, 0.0) + stage.ms
    if max(times, key=times.__getitem__) not in _ADVISED:
        return None
    return InputTimes(**{kind: ms for kind, ms in times.items() if kind in _ADVISED})


def in_a_sentence(rates: InputRates) -> str:
    """How fast the loader is alone, whether that is enough, and what takes most; empty if not known."""
    alone = rates.alone
    if alone is None:
        return ""
    sure = "" if alone.ci95 is None else f" (95 %: {alone.ci95[0]:,.0f}–{alone.ci95[1]:,.0f})"
    whose = f"the loader of rank {rates.slowest.rank}"
    gives = f"Run alone, {whose} gives {alone.value:,.0f} samples/s{sure}"
    return f"{gives}{_against(rates)}{_most(rates)}.{_not_at_once(rates)}"


def _advised(stage: InputStage) -> str:
    # A function that does not tell what it does is made faster as decoding is.
    return "decode" if stage.kind == "other" and "Map(" in stage.name else stage.kind


def _against(rates: InputRates) -> str:
    if rates.needed is None:
        return ""
    needed = f"{rates.needed:,.0f} that a rank "
    needed += "trains on synthetic data" if rates.synthetic is not None else "needs"
    if rates.enough is None:
        return f", which cannot be distinguished from the {needed}"
    if rates.enough:
        return (
            f", more than the {needed}: it is late only during training, which takes cores, "
            "disk or memory from it"
        )
    return f", less than the {needed}"


def _most(rates: InputRates) -> str:
    longest, batch_ms = rates.longest, rates.slowest.ms
    if longest is None or batch_ms is None:
        return ""
    return (
        f"; of its stages {longest.kind} takes most: {clipped(longest.name)}, "
        f"{longest.ms:.3g} ms of a batch's {batch_ms:.3g} ms"
    )


def _not_at_once(rates: InputRates) -> str:
    if rates.at_once:
        return ""
    return " Not all ranks measured at the same time: beside each other loaders may be slower."
