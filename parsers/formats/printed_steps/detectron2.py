"""Read times that detectron2 logs.

    [11/21 02:28:07 d2.utils.events]:  iter: 19  loss: 1.9  time: 0.2153  data_time: 0.0131  lr: 0.0001

``time`` is the mean over all steps so far except the first two, ``data_time`` the mean over the last 20
steps, each with the longest wait of any rank. Newer versions add the values of the last step. Steps are
counted from 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from .parser import Meaning, PrintedStepsParser

_MEAN = "{} iter: {step} {} time: {mean_seconds}"


class Detectron2Parser(PrintedStepsParser):
    name: ClassVar[str] = "detectron2"
    title: ClassVar[str] = "what detectron2 logs"
    patterns: ClassVar[Sequence[str]] = (
        f"{_MEAN} last_time: {{seconds}} data_time: {{data}} last_data_time: ",
        f"{_MEAN} data_time: {{data}} lr: ",
    )
    meaning: ClassVar[Meaning] = Meaning("what detectron2 logged", "last", first_step=0, untimed=2)
