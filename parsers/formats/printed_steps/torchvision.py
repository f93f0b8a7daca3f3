"""Read times that torchvision's training scripts log, and programs with the same logger.

    Epoch: [0]  [  60/5005]  eta: 0:28:11  lr: 0.1  loss: 6.9 (7.0)  time: 0.3361  data: 0.0021

Both are means over the last 20 steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from .parser import Meaning, PrintedStepsParser


class TorchvisionParser(PrintedStepsParser):
    name: ClassVar[str] = "torchvision"
    title: ClassVar[str] = "what torchvision's training scripts log"
    patterns: ClassVar[Sequence[str]] = (
        "{}Epoch: [{epoch}] [{step}/{steps}] eta: {} time: {seconds} data: {data}",
    )
    meaning: ClassVar[Meaning] = Meaning("what torchvision's scripts logged", "mean")
