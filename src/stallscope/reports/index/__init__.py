"""An index of many runs' reports: ranked by the time they lost, with trends."""

from .index import Index
from .line import Line, by_time_lost, line_of
from .registry import FORMATS, render

__all__ = ["FORMATS", "Index", "Line", "by_time_lost", "line_of", "render"]
