"""Show how jobs scale over numbers of ranks."""

from .pace import FACTS, left_out
from .points import Point, Scaled
from .projection import HeldOut, Projected, TrackRecord, held_out, track_record
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
    "left_out",
    "scaling",
    "track_record",
]
