"""Samples of marks for legends."""

from __future__ import annotations

from ..marks import Shape
from .markup import coordinate, element, line, rectangle, text, whisker

#: The width of a sample.
SAMPLE = 16.0
_HEIGHT = 11.0
# Marks with a style of another name.
_STYLES = {
    "line": "window",
    "dashes": "window high",
    "across": "ideal",
    "pale": "fill-total paler-2",
    "projected": "fill-steps paler-2",
    "saved": "fill-total saved",
}
# Marks that are characters.
_CHARACTERS = {"named": "◀", "cut": "//"}


def mark_sample(shape: Shape, x: float, y: float) -> str:
    """Draw a mark as in charts; the place is its upper left corner."""
    middle, end, bottom = y + _HEIGHT / 2, x + SAMPLE, y + _HEIGHT
    across, style = x + SAMPLE / 2, f"{_STYLES.get(shape, shape)} sample"
    if shape == "whisker":
        return whisker(x + 1, middle, end - 1, middle)
    if shape in _CHARACTERS:
        return text(_CHARACTERS[shape], x + 2, bottom, class_=style)
    if shape in ("pause", "beyond"):
        path = f"M{coordinate(across - 5)} {coordinate(bottom - 1)}l10 0l-5 -9Z"
        return element("path", d=path, class_=style)
    if shape in ("pale", "projected", "saved", "band"):
        return rectangle(x, y, SAMPLE, _HEIGHT, rx=2, class_=style)
    if shape == "change":
        return line(across, y, across, bottom, class_=style)
    return line(x, middle, end, middle, class_=style)
