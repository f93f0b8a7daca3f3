"""Read times that mmcv and mmengine log.

    Epoch [1][50/7330]  lr: 1.978e-03, eta: 14:12:38, time: 0.532, data_time: 0.054, memory: 3820
    11/21 02:28:01 - mmengine - INFO - Epoch(train)  [1][  50/7330]  time: 0.5320  data_time: 0.0540

Both are means over the steps since the last line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from .parser import Meaning, PrintedStepsParser

_PLACES = (
    "Epoch [{epoch}][{step}/{steps}] ",
    "Epoch(train) [{epoch}][{step}/{steps}] ",
    "Iter [{step}/{steps}] ",
    "Iter(train) [{step}/{steps}] ",
)
_TIMES = ("{} time: {seconds}, data_time: {data},", "{} time: {seconds} data_time: {data}")


class OpenmmlabParser(PrintedStepsParser):
    name: ClassVar[str] = "openmmlab"
    title: ClassVar[str] = "what mmcv and mmengine log"
    patterns: ClassVar[Sequence[str]] = tuple(
        f"{{}}{place}{times}" for place in _PLACES for times in _TIMES
    )
    meaning: ClassVar[Meaning] = Meaning("what mmcv or mmengine logged", "mean")
