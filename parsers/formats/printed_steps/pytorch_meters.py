"""Read times that the meters of PyTorch's ImageNet example print, and programs with the same meters.

    Epoch: [0][  10/5005]  Time  0.353 ( 0.623)  Data  0.001 ( 0.213)  Loss 6.9 (7.0)
    Epoch: [0][10/5005]  Time 0.353 (0.623)  Speed 2175.6 (1232.7)  Loss 6.9 (7.0)
    0: TRAIN [0][420/1938]  Time 0.120 (0.153)  Data 1.76e-04 (1.20e-03)  Tok/s 86447 (92506)
    Train: 0 [  50/1251 (  4%)]  Time: 0.353s, 725.21/s  (0.623s, 410.91/s)  Data: 0.001 (0.213)

The first number is that of the last batch, the second one the mean over the epoch so far. ``Data`` is
the wait for the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from .parser import Meaning, PrintedStepsParser

_TIME = "Time {seconds} ({mean_seconds})"
_TIME_S = "Time {seconds}s ({mean_seconds}s)"
_DATA, _DATA_S = "{}Data {data} ({mean_data})", "{}Data {data}s ({mean_data}s)"
_IMAGENET = "{}Epoch: [{epoch}][{step}/{steps}] "
_GNMT = "TRAIN [{epoch}][{step}/{steps}] "
_TIMM = (
    "{}Train: {epoch} [{step}/{steps} {}Time: {seconds}s, {}({mean_seconds}s, "
    "{}Data: {data} ({mean_data})"
)


class PytorchMetersParser(PrintedStepsParser):
    name: ClassVar[str] = "pytorch-meters"
    title: ClassVar[str] = "meters of PyTorch's examples"
    patterns: ClassVar[Sequence[str]] = (
        f"{_IMAGENET}{_TIME}{_DATA}",
        f"{_IMAGENET}{_TIME_S}{_DATA_S}",
        f"{{rank}}: {_GNMT}{_TIME}{_DATA}",
        f"{{}} - INFO - {{rank}} - {_GNMT}{_TIME}{_DATA}",
        f"{{}}{_GNMT}{_TIME}{_DATA}",
        _TIMM,
        # Apex's example does not measure the wait for data.
        f"{_IMAGENET}{_TIME}",
    )
    meaning: ClassVar[Meaning] = Meaning("meters of PyTorch's examples", "last")
