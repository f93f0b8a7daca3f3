"""Read times that maskrcnn-benchmark logs.

    eta: 13:44:46  iter: 20  loss: 1.7 (1.9)  time: 0.3236 (0.3593)  data: 0.0020 (0.0413)  lr: 0.007

The first number is the median of the last 20 steps, the second one the mean over all steps so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from .parser import Meaning, PrintedStepsParser


class MaskrcnnBenchmarkParser(PrintedStepsParser):
    name: ClassVar[str] = "maskrcnn-benchmark"
    title: ClassVar[str] = "what maskrcnn-benchmark logs"
    patterns: ClassVar[Sequence[str]] = (
        "{}eta: {}iter: {step} {} time: {seconds} ({mean_seconds}) data: {data} ({mean_data})",
    )
    meaning: ClassVar[Meaning] = Meaning("what maskrcnn-benchmark logged", "median")
