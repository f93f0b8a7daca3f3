"""Any chart as an SVG element: the drawing of its kind, its text, its legend and its style."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from html import escape
from typing import Any

from .. import COLOURS, HEAT, SHADES, STATUS, Colour
from ..axis import Areas, text_width
from ..charts import Chart
from ..curves import Curves
from ..heat_map import HeatMap
from ..marks import Shape, layout_of, legend_of, marks_of
from ..rows import Rows
from ..scaling_curves import RateBars
from ..step_time import OverTime
from .markup import coordinate, element, line, rectangle, text, whisker
from .svg_curves import draw_area, draw_curves, draw_over_time
from .svg_heat_map import draw_heat_map
from .svg_rows import draw_rate_bars, draw_rows

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

_DARK_INK, _LIGHT_INK = "#14171c", "#ffffff"
# Colours on which light text stands out more than dark text, on light and on dark pages.
_DEEP = {"compute", "steps", "validation", "negotiation", "scale"}
_DEEP_AT_NIGHT = {
    "validation",
    "latency",
    "fusion",
    "wait",
    "waiting_or_allreduce",
    "startup",
    "warmup",
    "input_waiting",
    "compute_waiting",
    "other_waiting",
}
_RULES = """\
.chart{display:block;width:100%;height:auto;font-family:inherit}
.chart text{font-size:13px;fill:var(--ink)}
.chart .tick{font-size:12px;fill:var(--muted);font-variant-numeric:tabular-nums}
.chart .strong{font-weight:650}
.chart .grid{stroke:var(--line);stroke-width:1}
.chart .zero{stroke:var(--muted);stroke-width:1}
.chart .mark{stroke:var(--muted);stroke-width:1;stroke-dasharray:2 3}
.chart .band{fill:var(--band)}
.chart .inside{pointer-events:none;font-variant-numeric:tabular-nums}
.chart .area{stroke-width:0}
.chart .saved{fill-opacity:.3}
.fill-total{fill:var(--total)}
.chart .beyond{fill:var(--ink)}
.chart .whisker{stroke:var(--ink);stroke-width:1.5}
.chart .paler-1{fill-opacity:.6}
.chart .paler-2{fill-opacity:.35}
.chart .change{stroke:var(--ink);stroke-width:2}
.chart .paper{fill:var(--paper);fill-opacity:.85}
.chart .pause{fill:var(--paper);stroke:var(--ink);stroke-width:1.5}
.chart .ideal{stroke:var(--ink);stroke-width:2.5}
.chart .curve{fill:none}
.chart .halo{fill:none;stroke:var(--paper);stroke-width:4;stroke-opacity:.7}
.chart .window{fill:none;stroke:var(--ink);stroke-width:2}
.chart .sample{pointer-events:none}
.chart .high{stroke-dasharray:4 3}
.chart .own{stroke:var(--steps);stroke-width:3}
.chart .projected{stroke:var(--steps);stroke-width:2;stroke-dasharray:5 4}
.chart .others{stroke:var(--muted);stroke-width:1.2}
.chart .dot{stroke-width:0;fill:var(--steps)}
.chart .dot.others{fill:var(--muted)}
.chart .leader{stroke:var(--line);stroke-width:1}
.chart .cells{fill:none;shape-rendering:crispEdges}
.chart .shade{stroke-width:0}
.chart .unmeasured{stroke:var(--paper)}
.chart .clear{fill:transparent}
.chart .hole{stroke:var(--muted);stroke-width:1;stroke-dasharray:1 3}
.chart .named{fill:var(--imbalance)}
.chart .cut{font-size:12px;fill:var(--ink)}
"""


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


# -- Samples of marks for legends -----------------------------------------------------------------


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


# -- The style sheet of all charts: colours as custom properties, for light and dark pages --------


def stylesheet() -> str:
    """Write the CSS that pages with charts include once."""
    shades = {**SHADES, **STATUS, **_stages(), **_heat()}
    light = _properties({name: colour.light for name, colour in shades.items()})
    dark = _properties({name: colour.dark for name, colour in shades.items()})
    fills = "".join(
        f".fill-{name}{{fill:var(--{name});stroke:var(--{name});stroke-width:0}}"
        f".chart text.on-{name}{{fill:var(--on-{name})}}\n"
        for name in COLOURS
    )
    fills += "".join(
        f".chart .{name}{{fill:var(--{name});stroke:var(--{name})}}\n" for name in _heat()
    )
    return (
        f":root{{{light}}}\n@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n"
        f"{_RULES}{fills}"
    )


def _stages() -> dict[str, Colour]:
    """Return the colour of every stage, and of text on it."""
    texts = {
        f"on-{name}": Colour(_ink(name in _DEEP), _ink(name in _DEEP_AT_NIGHT)) for name in COLOURS
    }
    return {**COLOURS, **texts}


def _heat() -> dict[str, Colour]:
    return {f"heat-{level}": colour for level, colour in enumerate(HEAT)}


def _properties(values: dict[str, str]) -> str:
    return "".join(f"--{name}:{value};" for name, value in values.items())


def _ink(light: bool) -> str:
    return _LIGHT_INK if light else _DARK_INK
