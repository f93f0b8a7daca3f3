"""Read rates that tf_cnn_benchmarks prints.

    Batch size:  512 global
                 64 per device
    Devices:     ['horovod/gpu:0', 'horovod/gpu:1']
    Step  Img/sec  total_loss
    10  images/sec: 40.4 +/- 0.0 (jitter = 0.0)  7.972

A rate is that of one process: its batch divided by the mean time of its steps so far, without warm-up.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from .parser import Meaning, PrintedStepsParser
from .printed_settings import PER_DEVICE, PrintedSettings, printed_settings

# It prints its settings before the first step, after warnings of TensorFlow.
_HEAD_BYTES = 1 << 20
_DEVICES = re.compile(rb"\bDevices:\s{1,40}\[([^\]\n]{1,65536})\]")
# Each process of Horovod has one of the devices that it lists.
_HOROVOD = b"horovod/"


def _settings(data: bytes, ranks: int | None) -> PrintedSettings:
    """Read the batch size of a process: that of a device times the process's devices."""
    settings = printed_settings(data, ranks)
    per_device, devices = (form.search(data[:_HEAD_BYTES]) for form in (PER_DEVICE, _DEVICES))
    if per_device is None or devices is None:
        return replace(settings, rank_batch=None)
    count = 1 if _HOROVOD in devices[1] else devices[1].count(b",") + 1
    return replace(settings, rank_batch=int(per_device[1]) * count or None)


class TfCnnBenchmarksParser(PrintedStepsParser):
    name: ClassVar[str] = "tf-cnn-benchmarks"
    title: ClassVar[str] = "rates that tf_cnn_benchmarks prints"
    patterns: ClassVar[Sequence[str]] = ("{}{step} images/sec: {mean_rate} +/- ",)
    meaning: ClassVar[Meaning] = Meaning(
        "what tf_cnn_benchmarks printed", "mean", rate_of="one rank", settings=_settings
    )
