"""Provide the data of the timeline's script: the whole run first, then the part in view."""

from .gauges import gauges_of
from .head import head, verdicts
from .marks import marks
from .route import add_timeline_route

__all__ = ["add_timeline_route", "gauges_of", "head", "marks", "verdicts"]
