"""Charts as inline SVG: no scripts, nothing from elsewhere, light and dark through CSS properties."""

from .draw import NARROW, WIDE, draw
from .style import stylesheet

__all__ = ["NARROW", "WIDE", "draw", "stylesheet"]
