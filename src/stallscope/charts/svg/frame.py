"""What all pictures share: the outermost element with its text, and the legend."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from ..charts import TITLES, Chart
from .markup import coordinate, element, rectangle, text, text_width

_SWATCH = 11.0
_LEGEND_LINE = 22.0
_LEGEND_GAP = 18.0


def frame(chart: Chart, key: str, width: float, height: float, *parts: str) -> str:
    """The picture: an image to screen readers, with the chart's title and sentence as its text."""
    return element(
        "svg",
        element("title", escape(chart.title), id=f"{key}-title"),
        element("desc", escape(chart.sentence), id=f"{key}-desc"),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        class_="picture",
        role="img",
        aria_labelledby=f"{key}-title {key}-desc",
        viewBox=f"0 0 {coordinate(width)} {coordinate(height)}",
    )


def title_of(name: str) -> str:
    """A stage's name for people."""
    return TITLES.get(name, name)


def legend(entries: Sequence[tuple[str, str]], top: float, width: float) -> tuple[str, float]:
    """Swatches with labels, in as many lines as they need.

    Args:
        entries: stage and label.
        top: where the legend begins.
        width: where its lines end.

    Returns:
        The markup, and where the legend ends.
    """
    parts, x, y = [], 0.0, top
    for name, label in entries:
        needed = _SWATCH + 6 + text_width(label)
        if x and x + needed > width:
            x, y = 0.0, y + _LEGEND_LINE
        parts.append(rectangle(x, y + 3, _SWATCH, _SWATCH, rx=2, class_=f"fill-{name}"))
        parts.append(text(label, x + _SWATCH + 6, y + 13))
        x += needed + _LEGEND_GAP
    return "".join(parts), y + _LEGEND_LINE
