"""What the timeline's script is told: the run at first, then whatever part of it is looked at."""

from .head import head
from .kept import gauges_of, lanes_of
from .marks import marks
from .route import add_timeline_route

__all__ = ["add_timeline_route", "gauges_of", "head", "lanes_of", "marks"]
