"""Recommend Horovod settings to pin, from autotune logs, Timelines and the job's steps."""

from .during import Tried
from .timelines import TimelineAdvice
from .tune import AutotuneFile, Compared, TimelineFile, Tuned, Tuning, tune

__all__ = [
    "AutotuneFile",
    "Compared",
    "TimelineAdvice",
    "TimelineFile",
    "Tried",
    "Tuned",
    "Tuning",
    "tune",
]
