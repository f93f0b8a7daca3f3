"""Dicts that NVIDIA's BERT prints.

    {'training_steps': 20, 'seq/s': 214.0, 'skipped_steps': 1, 'timestamp': 1790000000.1198528}

With gradient accumulation, a training step is one micro-batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from .parser import Meaning, PrintedStepsParser


class NvidiaBertParser(PrintedStepsParser):
    name: ClassVar[str] = "nvidia-bert"
    title: ClassVar[str] = "what NVIDIA's BERT prints"
    patterns: ClassVar[Sequence[str]] = ("{}'training_steps': {step}, {}'timestamp': {time}",)
    meaning: ClassVar[Meaning] = Meaning("what NVIDIA's BERT printed", "mean")
