"""Any chart as an SVG element: the drawing of its kind, its text and its legend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from html import escape
from typing import Any

from ..area import Areas
from ..charts import Chart
from ..curves import Curves
from ..heat_map import HeatMap
from ..layouts import layout_of, legend_of
from ..marks import Shape, marks_of
from ..over_time import OverTime
from ..rates import RateBars
from ..rows import Rows
from ..text_width import text_width
from .area import draw_area
from .curves import draw_curves
from .heat_map import draw_heat_map
from .mark_samples import SAMPLE, mark_sample
from .markup import coordinate, element, rectangle, text
from .over_time import draw_over_time
from .rate_bars import draw_rate_bars
from .rows import draw_rows

#: Widths in pixels at which texts have their natural size: for desktops, and for phones.
WIDE = 960
NARROW = 380

_SWATCH = 11.0
_LEGEND_LINE = 22.0
_LEGEND_GAP = 18.0

# Each draws into a width, and returns the markup and the height.
_KINDS: dict[type, Callable[[Any, float], tuple[list[str], float]]] = {
    Rows: draw_rows,
    Areas: draw_area,
    Curves: draw_curves,
    HeatMap: draw_heat_map,
    OverTime: draw_over_time,
    RateBars: draw_rate_bars,
}


def draw(chart: Chart, key: str, width: int = WIDE) -> str:
    """Draw a chart as an SVG element, to be styled by ``stylesheet``.

    Args:
        chart: what to draw.
        key: a prefix of the ids within the chart, unique on the page.
        width: in pixels; the chart scales, its texts with it.
    """
    layout = layout_of(chart)
    parts, height = _KINDS[type(layout)](layout, width)
    swatches, end = legend(legend_of(chart), height, width, marks_of(chart))
    return frame(chart, key, width, end, *parts, swatches)


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


def legend(
    entries: Sequence[tuple[str, str]],
    top: float,
    width: float,
    marks: Sequence[tuple[Shape, str]] = (),
) -> tuple[str, float]:
    """Draw swatches and marks with labels, in as many lines as they need.

    Args:
        entries: names of the palette with labels.
        top: where the legend starts.
        width: the length of its lines.
        marks: shapes of marks with labels, after the entries.

    Returns:
        The markup, and where the legend ends.
    """
    samples = [(_SWATCH, partial(_swatch, name), label) for name, label in entries]
    samples += [(SAMPLE, partial(mark_sample, shape), label) for shape, label in marks]
    parts, x, y = [], 0.0, top
    for size, sample, label in samples:
        needed = size + 6 + text_width(label)
        if x and x + needed > width:
            x, y = 0.0, y + _LEGEND_LINE
        parts += [sample(x, y + 3), text(label, x + size + 6, y + 13)]
        x += needed + _LEGEND_GAP
    return "".join(parts), y + (_LEGEND_LINE if samples else 0.0)


def _swatch(name: str, x: float, y: float) -> str:
    return rectangle(x, y, _SWATCH, _SWATCH, rx=2, class_=f"fill-{name}")
