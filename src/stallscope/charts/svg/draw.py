"""One function for all kinds of charts."""

from __future__ import annotations

from ..charts import Chart, StackedArea, StackedBars
from ..compared_bars import ComparedBars
from ..heat_map import HeatMap
from ..over_runs import OverRuns
from ..over_time import OverTime
from ..rates import EfficiencyLines, RateBars
from .area import draw_area
from .bars import draw_bars
from .compared_bars import draw_compared_bars
from .efficiency_lines import draw_efficiency_lines
from .heat_map import draw_heat_map
from .over_runs import draw_over_runs
from .over_time import draw_over_time
from .rate_bars import draw_rate_bars
from .waterfall import draw_waterfall

#: Widths in pixels at which texts have their natural size: for desktops, and for phones.
WIDE = 960
NARROW = 380


def draw(chart: Chart, key: str, width: int = WIDE) -> str:
    """A chart as an SVG element, to be styled by ``stylesheet``.

    Args:
        chart: what to draw.
        key: begins the ids within the picture; unlike any other picture's on the page.
        width: in pixels; the picture scales, its texts with it.
    """
    if isinstance(chart, StackedBars):
        return draw_bars(chart, key, width)
    if isinstance(chart, StackedArea):
        return draw_area(chart, key, width)
    if isinstance(chart, HeatMap):
        return draw_heat_map(chart, key, width)
    if isinstance(chart, ComparedBars):
        return draw_compared_bars(chart, key, width)
    if isinstance(chart, RateBars):
        return draw_rate_bars(chart, key, width)
    if isinstance(chart, EfficiencyLines):
        return draw_efficiency_lines(chart, key, width)
    if isinstance(chart, OverRuns):
        return draw_over_runs(chart, key, width)
    if isinstance(chart, OverTime):
        return draw_over_time(chart, key, width)
    return draw_waterfall(chart, key, width)
