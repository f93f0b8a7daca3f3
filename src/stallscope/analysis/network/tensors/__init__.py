"""Tensors in a Horovod Timeline: negotiation, fusion, bandwidth, steps, and late ranks.

Tensors that are fused go through the same operation, and the timeline repeats it for each of them: times
of several tensors are unions of intervals, never sums. Fused are those whose operations begin one after
the other before the first of them does anything.

A timeline does not mark steps: a step of it begins where a gradient is negotiated that was negotiated in
the step before.

Who was late is known only where ranks were ticked: with the response cache, that is the first
negotiation of each tensor. Ticks are taken where the coordinator reads what the ranks have sent, once in
a cycle and in the order of ranks: what is closer together than a cycle came together.
"""

from .figures import (
    SIZES,
    AllreduceSteps,
    Cycles,
    Fusion,
    Lateness,
    LateRank,
    SizeClass,
    Tensors,
    TensorTimes,
    by_size,
)
from .tally import tensors

__all__ = [
    "SIZES",
    "AllreduceSteps",
    "Cycles",
    "Fusion",
    "LateRank",
    "Lateness",
    "SizeClass",
    "TensorTimes",
    "Tensors",
    "by_size",
    "tensors",
]
