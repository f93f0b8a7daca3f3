"""Which of Horovod's settings to fix: from autotune logs, Timelines and the job's own steps."""

from .during import Tried
from .timelines import TimelineSays
from .tune import AutotuneFile, Compared, TimelineFile, Tuned, Tuning, tune

__all__ = [
    "AutotuneFile",
    "Compared",
    "TimelineFile",
    "TimelineSays",
    "Tried",
    "Tuned",
    "Tuning",
    "tune",
]
