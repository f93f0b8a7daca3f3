"""Recommend Horovod settings to pin, from autotune logs, Timelines and the job's steps."""

from .recommend import (
    AutotuneFile,
    TimelineAdvice,
    TimelineFile,
    Tried,
    Tuned,
    Tuning,
    UntunedRun,
    tune,
)

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
