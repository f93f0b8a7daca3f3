"""Charts as inline SVG: without scripts or other files, light and dark through CSS properties."""

from .draw import NARROW, WIDE, draw, stylesheet

__all__ = ["NARROW", "WIDE", "draw", "stylesheet"]
