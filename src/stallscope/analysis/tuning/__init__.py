"""Recommend Horovod settings to pin, from autotune logs, Timelines and the job's steps."""

from .during import Tried
from .timelines import TimelineAdvice
from .tune import AutotuneFile, TimelineFile, Tuned, Tuning, UntunedRun, tune

__all__ = [
    "AutotuneFile",
    "TimelineAdvice",
    "TimelineFile",
    "Tried",
    "Tuned",
    "Tuning",
    "UntunedRun",
    "tune",
]
