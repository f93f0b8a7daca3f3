"""One function for all kinds of charts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..area import Areas
from ..charts import Chart
from ..curves import Curves
from ..heat_map import HeatMap
from ..layouts import layout_of
from ..legend import legend_of
from ..over_time import OverTime
from ..rates import RateBars
from ..rows import Rows
from .area import draw_area
from .curves import draw_curves
from .frame import frame, legend
from .heat_map import draw_heat_map
from .over_time import draw_over_time
from .rate_bars import draw_rate_bars
from .rows import draw_rows

#: Widths in pixels at which texts have their natural size: for desktops, and for phones.
WIDE = 960
NARROW = 380

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
        key: begins the ids within the chart; unlike any other chart's on the page.
        width: in pixels; the chart scales, its texts with it.
    """
    layout = layout_of(chart)
    parts, height = _KINDS[type(layout)](layout, width)
    swatches, end = legend(legend_of(chart), height, width)
    return frame(chart, key, width, end, *parts, swatches)
