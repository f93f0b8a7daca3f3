"""Show how jobs scale over numbers of ranks."""

from .held_out import HeldOut, TrackRecord, held_out, track_record
from .jobs import FACTS, untimed
from .points import Point, Scaled
from .projection import Projected
from .series import ScalingSeries, SizeTest, scaling

__all__ = [
    "FACTS",
    "HeldOut",
    "Point",
    "Projected",
    "Scaled",
    "ScalingSeries",
    "SizeTest",
    "TrackRecord",
    "held_out",
    "scaling",
    "track_record",
    "untimed",
]
