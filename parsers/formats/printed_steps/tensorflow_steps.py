"""Read times of single steps that TensorFlow models log.

I1121 02:28:01.250000 47580 keras_utils.py:93] step = 35, time_taken = 3.276137, loss = 6.9
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from .parser import Meaning, PrintedStepsParser
from .time_history import EPOCH_LINES


class TensorflowStepsParser(PrintedStepsParser):
    name: ClassVar[str] = "tensorflow-steps"
    title: ClassVar[str] = "times of steps that TensorFlow models log"
    patterns: ClassVar[Sequence[str]] = ("{}step = {step}, time_taken = {seconds}",)
    epoch_patterns: ClassVar[Sequence[str]] = EPOCH_LINES
    meaning: ClassVar[Meaning] = Meaning("what TensorFlow's models logged", "step")
