"""Analyse the tensors in a Horovod Timeline: negotiation, fusion, bandwidth, steps, and late ranks.

Fused tensors share one operation, and the timeline repeats it for each of them. So times of several
tensors are unions of intervals, never sums. Tensors are fused if their operations start one
after the other before the first of them does anything.

A timeline does not mark steps. A step starts when gradients are negotiated that were negotiated in the
previous step: those with most of its bytes. ``Tensors.no_steps`` says why steps are unknown.

Late ranks are known only if the timeline has ticks of ranks; with the response cache, only the first
negotiation of each tensor has them. The coordinator records ticks when it reads the ranks' requests,
once per cycle and in the order of ranks. So ticks within one cycle count as simultaneous.
"""

from .tally import tensors
from .tensor_figures import (
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
