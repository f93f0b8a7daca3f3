"""Provide the data of the timeline's script: the whole run first, then the part in view."""

from .head import head, verdicts
from .lane_cache import gauges_of, lanes_of
from .marks import marks
from .route import add_timeline_route

__all__ = ["add_timeline_route", "gauges_of", "head", "lanes_of", "marks", "verdicts"]
