"""Read durations of several steps, as TimeHistory of TensorFlow's official models logs them.

    TimeHistory: 12.34 seconds, 829.82 examples/second between steps 0 and 100
    BenchmarkMetric: {'global step':100, 'time_taken': 12.340000,'examples_per_second': 829.821717}

Steps are counted over the job, and examples over all ranks, as the models' batch size is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from .parser import Meaning, PrintedStepsParser
from .printed_settings import PrintedSettings

_LINES = (
    "{}TimeHistory: {seconds} seconds, {rate} examples/second between steps {} and {step}",
    "{}BenchmarkMetric: {}'global step':{step}, 'time_taken': {seconds},{}'examples_per_second': {rate}",
    "{}BenchmarkMetric: {}'num_batches':{step}, 'time_taken': {seconds},{}'examples_per_second': {rate}",
)
#: Lines of some versions about each epoch.
EPOCH_LINES = ("{}BenchmarkMetric: {}'epoch':{epoch}, 'time_taken': {seconds}",)


def _settings(_: bytes, ranks: int | None) -> PrintedSettings:
    """Return only the number of ranks, as printed batch sizes may be of one rank or of all."""
    return PrintedSettings(ranks=ranks)


class TimeHistoryParser(PrintedStepsParser):
    name: ClassVar[str] = "time-history"
    title: ClassVar[str] = "what TimeHistory logs"
    certain: ClassVar[bool] = True
    patterns: ClassVar[Sequence[str]] = _LINES
    epoch_patterns: ClassVar[Sequence[str]] = EPOCH_LINES
    meaning: ClassVar[Meaning] = Meaning(
        "what TimeHistory logged",
        "total",
        rate_of="all ranks",
        first_step=1,
        settings=_settings,
        framework="tensorflow",
    )
