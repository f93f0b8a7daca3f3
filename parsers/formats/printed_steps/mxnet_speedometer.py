"""Read rates that MXNet's Speedometer logs.

    Epoch[0] Batch [0-20]  Speed: 1284.10 samples/sec  accuracy=0.4009
    2026-11-21 02:28:01,250 Node[3] Epoch[0] Batch [20]  Speed: 1284.10 samples/sec  accuracy=0.4009
    Epoch[0] Time cost=12.345

A rate is the mean over the batches since the last line; the number in ``Batch`` is the last of them.
Scripts may pass the batch size of one rank or of all.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from .parser import Meaning, PrintedStepsParser
from .printed_settings import PrintedSettings, printed_settings

_SPEED = "Speed: {rate} samples/sec"
_EPOCH = ("Epoch[{epoch}] Batch [{}-{step}]", "Epoch[{epoch}] Batch [{step}]")
# Without a metric.
_ITERATION = "Iter[{epoch}] Batch [{step}]"
_PLACES = ("{}Node[{rank}] ", "{}")
# All ranks log their settings before the first one logs rates.
_HEAD_BYTES = 4 << 20
_BEFORE_NODES_BYTES = 1 << 19
_NODE = re.compile(rb"Node\[(\d{1,6})\] ")


def _settings(data: bytes, ranks: int | None) -> PrintedSettings:
    """Read batch sizes, and the number of ranks if all ranks have logged something."""
    nodes = {int(number) for number in _NODE.findall(data[:_HEAD_BYTES])}
    if ranks is None and len(nodes) > 1 and max(nodes) == len(nodes) - 1:
        ranks = len(nodes)
    # Launchers of a thousand ranks print more than is searched for settings.
    at = max(data.find(b"Node[") - _BEFORE_NODES_BYTES, 0)
    return printed_settings(data[at : at + _HEAD_BYTES], ranks)


class MxnetSpeedometerParser(PrintedStepsParser):
    name: ClassVar[str] = "mxnet-speedometer"
    title: ClassVar[str] = "what MXNet's Speedometer logs"
    patterns: ClassVar[Sequence[str]] = tuple(
        f"{place}{batches} {_SPEED}" for place in _PLACES for batches in (*_EPOCH, _ITERATION)
    )
    epoch_patterns: ClassVar[Sequence[str]] = tuple(
        f"{place}Epoch[{{epoch}}] Time cost={{seconds}}" for place in _PLACES
    )
    meaning: ClassVar[Meaning] = Meaning(
        "what MXNet's Speedometer logged", "mean", settings=_settings
    )
