"""How jobs scale over numbers of ranks."""

from .points import Point, Scaled
from .projection import Projected
from .series import Difference, Series, scaling

__all__ = ["Difference", "Point", "Projected", "Scaled", "Series", "scaling"]
