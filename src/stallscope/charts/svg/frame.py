"""What all charts have around them: the outermost element with its text, and the legend."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from ..charts import Chart
from ..text_width import text_width
from .markup import coordinate, element, rectangle, text

_SWATCH = 11.0
_LEGEND_LINE = 22.0
_LEGEND_GAP = 18.0


def frame(chart: Chart, key: str, width: float, height: float, *parts: str) -> str:
    """Make an image to screen readers, with the chart's title and sentence as its text."""
    return element(
        "svg",
        element("title", escape(chart.title), id=f"{key}-title"),
        element("desc", escape(chart.sentence), id=f"{key}-desc"),
        *parts,
        xmlns="http://www.w3.org/2000/svg",
        class_="chart",
        role="img",
        aria_labelledby=f"{key}-title {key}-desc",
        viewBox=f"0 0 {coordinate(width)} {coordinate(height)}",
    )


def legend(entries: Sequence[tuple[str, str]], top: float, width: float) -> tuple[str, float]:
    """Draw swatches with labels, in as many lines as they need.

    Args:
        entries: names of the palette with labels.
        top: where the legend starts.
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
    return "".join(parts), y + (_LEGEND_LINE if entries else 0.0)
