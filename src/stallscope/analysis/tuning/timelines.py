"""Derive Horovod settings from a Timeline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stallscope.arrays.types import Floats
from stallscope.formatting.lists import counted

from ..advice.piece import Advice
from ..network.tensors import Tensors

# With a cache, few tensors would be negotiated in full after this many negotiations of each.
_FEWEST_ROUNDS = 5
_MOSTLY = 0.5
# Smaller reductions cost mainly latency.
_SMALL_BYTES = 1e5
_DEFAULT_CAPACITY = 1024


@dataclass(frozen=True)
class TimelineAdvice:
    """Figures of a Timeline, and recommendations; None if it does not show them."""

    #: Allreduces, where fused tensors count once, and the mean number of tensors in each.
    reductions: int
    tensors_each: float | None
    #: The number of steps; None if unknown, with the reason.
    steps: int | None
    no_steps: str
    #: The share of reductions below 100 kB, among those with known bytes.
    small_share: float | None
    #: Milliseconds per cycle; None if cycles were not marked.
    cycle_ms: float | None
    #: The share of negotiations that rank 0 handled in full, without the cache.
    in_full: float | None
    #: Milliseconds per step in which any gradient is negotiated, waits for data, is copied, and is
    #: transferred: medians over steps. None without steps or allreduces.
    negotiation_ms: float | None
    wait_ms: float | None
    copy_ms: float | None
    transfer_ms: float | None
    #: Why it does not show late ranks, and how to record them; empty if it shows them.
    cannot_name: str
    advice: tuple[Advice, ...]


def advise_on_timeline(tensors: Tensors) -> TimelineAdvice:
    """Evaluate fusion, cycles and the response cache of a Timeline."""
    steps = len(tensors.steps) or None
    fused = tensors.fusion.tensors
    sizes = tensors.fusion.bytes[tensors.fusion.bytes > 0]
    in_full = tensors.ticked / tensors.negotiations if tensors.negotiations else None
    small = float(np.mean(sizes < _SMALL_BYTES)) if len(sizes) else None
    return TimelineAdvice(
        reductions=len(fused),
        tensors_each=float(fused.mean()) if len(fused) else None,
        steps=steps,
        no_steps=tensors.no_steps,
        small_share=small,
        cycle_ms=None if tensors.cycles is None else tensors.cycles.median_ms,
        in_full=in_full,
        negotiation_ms=_median(tensors, tensors.steps.negotiation_ms),
        wait_ms=_median(tensors, tensors.steps.wait_ms),
        copy_ms=_median(tensors, tensors.steps.copy_ms),
        transfer_ms=_median(tensors, tensors.steps.transfer_ms),
        cannot_name=tensors.cannot_name,
        advice=tuple(_advice(tensors, steps, len(fused), small)),
    )


def _median(tensors: Tensors, values: Floats) -> float | None:
    # Steps without allreduces have no such times.
    return float(np.median(values)) if len(values) and len(tensors.fusion.tensors) else None


def _advice(
    tensors: Tensors, steps: int | None, reductions: int, small: float | None
) -> Iterator[Advice]:
    if steps is None or steps < _FEWEST_ROUNDS:
        return
    in_full = tensors.ticked >= _MOSTLY * tensors.negotiations
    if in_full and tensors.negotiations < _FEWEST_ROUNDS * len(tensors.tensors):
        yield Advice(
            f"Name the tensors that are reduced: most of their {len(tensors.tensors):,} names occur "
            "once, so the response cache cannot answer them",
            "hvd.allreduce(gradient, name='layer1')",
        )
    elif in_full:
        capacity = max(_DEFAULT_CAPACITY, 1 << (2 * len(tensors.tensors) - 1).bit_length())
        yield Advice(
            f"Let Horovod cache its {counted(len(tensors.tensors), 'tensor')}: {tensors.ticked:,} of "
            f"{tensors.negotiations:,} negotiations went through rank 0 in full",
            f"HOROVOD_CACHE_CAPACITY={capacity}",
            unless="Not if it was off for this Timeline only, to see which rank was late.",
        )
    if small is not None and small >= _MOSTLY and reductions >= 2 * steps:
        yield Advice(
            f"Let the autotuner look for a longer cycle: {reductions / steps:.1f} reductions in every "
            f"step, {small:.0%} of them below 100 kB, each with its own latency",
            "HOROVOD_AUTOTUNE=1 HOROVOD_AUTOTUNE_LOG=autotune.csv",
            unless="Not if backward hides them: the step logs show what is exposed.",
        )
