"""Read dicts that NVIDIA's BERT prints.

    {'training_steps': 20, 'seq/s': 214.0, 'skipped_steps': 1, 'timestamp': 1790000000.1198528}

With gradient accumulation, a training step is one micro-batch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from .parser import Meaning, PrintedStepsParser
from .printed_settings import PrintedSettings

_HEAD_BYTES = 1 << 20
_MICRO_BATCH = re.compile(rb"\btrain_batch_size=(\d{1,8})\b")


def _settings(data: bytes, ranks: int | None) -> PrintedSettings:
    """Read the micro-batch of a rank; global batch sizes in such logs are those of updates."""
    match = _MICRO_BATCH.search(data[:_HEAD_BYTES])
    batch = None if match is None else int(match[1]) or None
    return PrintedSettings(batch, None if batch is None or ranks is None else batch * ranks, ranks)


class NvidiaBertParser(PrintedStepsParser):
    name: ClassVar[str] = "nvidia-bert"
    title: ClassVar[str] = "what NVIDIA's BERT prints"
    patterns: ClassVar[Sequence[str]] = ("{}'training_steps': {step}, {}'timestamp': {time}",)
    meaning: ClassVar[Meaning] = Meaning("what NVIDIA's BERT printed", "mean", settings=_settings)
