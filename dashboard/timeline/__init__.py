"""Provide the data of the timeline's script: the whole run first, then the part in view."""

from .gauges import gauges_of, marks
from .head import add_timeline_route, head, verdicts

__all__ = ["add_timeline_route", "gauges_of", "head", "marks", "verdicts"]
