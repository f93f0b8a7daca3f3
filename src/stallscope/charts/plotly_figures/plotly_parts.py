"""The parts that all Plotly figures share: colours, axes, whiskers, tooltips."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from stallscope.formatting.numbers import Interval

from .. import PALETTE, Colour
from ..axis import Axis

_FONT = "-apple-system, BlinkMacSystemFont, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif"
#: Pixels for labels below a horizontal axis.
AXIS_HEIGHT = 40
#: The size of texts next to bars and lines.
SMALL = 12
_MOST_TICKS = 6
# The most labels of marks that are readable on a phone.
_MOST_MARK_LABELS = 6
_TOP: dict[str, Any] = {"y": 1, "yref": "paper", "xanchor": "left"}

# The names of plotly.js for types of numbers; it has none for whole numbers of 64 bits.
_TYPES = {"int32": "i4", "float32": "f4", "float64": "f8"}


def empty() -> Drawing:
    """Make the drawing that every figure starts from."""
    axis = {
        "gridcolor": PALETTE["line"],
        "zeroline": False,
        "zerolinecolor": PALETTE["muted"],
        "linecolor": PALETTE["line"],
        "tickfont": {"size": SMALL},
        "automargin": True,
        "nticks": _MOST_TICKS,
    }
    return Drawing(
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": _FONT, "size": 13, "color": PALETTE["ink"]},
        margin={"l": 8, "r": 16, "t": 8, "b": 32, "pad": 4},
        hoverlabel={
            "bgcolor": PALETTE["paper"],
            "bordercolor": PALETTE["line"],
            "font": {"family": _FONT, "size": 13, "color": PALETTE["ink"]},
            "align": "left",
        },
        legend={
            "orientation": "h",
            "x": 0,
            "y": 1,
            "yanchor": "bottom",
            "traceorder": "normal",
            "itemclick": "toggle",
            "font": {"size": SMALL},
        },
        modebar={
            "bgcolor": "rgba(0,0,0,0)",
            "color": PALETTE["muted"],
            "activecolor": PALETTE["ink"],
        },
        uniformtext={"minsize": SMALL, "mode": "hide"},
        dragmode=False,
        xaxis=axis,
        yaxis=axis,
    )


def value_axis(axis: Axis, most: int = _MOST_TICKS) -> dict[str, Any]:
    """Describe an axis of values that cannot be zoomed."""
    ticks = axis.ticks(most)
    return {
        "tickvals": ticks,
        "ticktext": [markup(label) for label in axis.labels(ticks)],
        "tickangle": 0,
        "range": [axis.low, axis.high],
        "zeroline": axis.low <= 0.0,
        "fixedrange": True,
    }


def named_axis(axis: Axis, names: Sequence[tuple[float, str]], most: int) -> dict[str, Any]:
    """Describe a horizontal axis with as many names as are readable."""
    shown = names[:: -(-len(names) // most) or 1]
    return {
        "tickvals": [value for value, _ in shown],
        "ticktext": [name for _, name in shown],
        "title": {"text": axis.unit, "font": {"size": SMALL}},
        "range": [axis.low, axis.high],
        "fixedrange": True,
        "showgrid": False,
    }


def step_axis(label: str) -> dict[str, Any]:
    """Describe a horizontal axis of steps, which can be zoomed."""
    return {
        # Names the first tick, and every value under the pointer.
        "tickprefix": f"{markup(label)} ",
        "showtickprefix": "first",
        "hoverformat": ",d",
        "separatethousands": True,
        "showgrid": False,
    }


def whiskers(values: Sequence[float], intervals: Sequence[Interval | None]) -> dict[str, Any]:
    """Describe the whiskers of some values; values without an interval have none."""
    if not any(intervals):
        return {"visible": False}
    ends = [interval or (value, value) for value, interval in zip(values, intervals, strict=True)]
    return {
        "type": "data",
        "symmetric": False,
        "array": [high - value for value, (_, high) in zip(values, ends, strict=True)],
        "arrayminus": [value - low for value, (low, _) in zip(values, ends, strict=True)],
        "color": PALETTE["ink"],
        "thickness": 1.5,
        "width": 4,
    }


def add_text(
    drawn: Drawing, text: str, colour: Colour, *, strong: bool = False, **where: Any
) -> None:
    """Write a text at a place of a figure."""
    font = {"size": SMALL, "color": colour}
    drawn.add_annotation(text=bold(text, strong), showarrow=False, font=font, **where)


def add_lines(drawn: Drawing, places: Iterable[float], *, strong: bool) -> None:
    """Draw lines across the figure: thick at changes, or thin at starts of epochs."""
    thick = {"width": 2, "color": PALETTE["ink"]}
    thin = {"width": 1, "dash": "dot", "color": PALETTE["muted"]}
    line = {"y0": 0, "y1": 1, "yref": "y domain", "line": thick if strong else thin}
    for at in places:
        drawn.add_shape("line", **line, xref="x", x0=at, x1=at)


def add_across(drawn: Drawing, kind: str, low: float, high: float, **look: Any) -> None:
    """Draw a shape from the left to the right of the axes, between two heights."""
    drawn.add_shape(kind, xref="x domain", yref="y", x0=0, x1=1, y0=low, y1=high, **look)


def add_epochs(drawn: Drawing, marks: Sequence[tuple[float, str]]) -> None:
    """Draw thin lines across the figure, with as many labels above it as are readable."""
    every = -(-len(marks) // _MOST_MARK_LABELS)
    add_lines(drawn, [at for at, _ in marks], strong=False)
    for at, label in marks[:: every or 1]:
        add_text(drawn, label, PALETTE["muted"], x=at, yanchor="bottom", **_TOP)


def add_changes(drawn: Drawing, changes: Sequence[tuple[float, str]], **where: Any) -> None:
    """Draw lines across the figure at changes, with labels."""
    add_lines(drawn, [at for at, _ in changes], strong=True)
    for at, label in changes:
        add_text(drawn, label, PALETTE["ink"], strong=True, x=at, **where, **_TOP)


def hover(lines: Sequence[str]) -> str:
    """Write a tooltip; of several lines the first one is its title."""
    first, *others = map(markup, lines)
    return "<br>".join([f"<b>{first}</b>" if others else first, *others])


def bold(text: str, strong: bool) -> str:
    """Escape a text, and write it bold where it is strong."""
    return f"<b>{markup(text)}</b>" if strong else markup(text)


def markup(text: str) -> str:
    """Escape a text: Plotly takes some HTML for markup."""
    return escape(text, quote=False)


def suffix(unit: str) -> str:
    """Write a unit after a number that Plotly formats."""
    return f" {markup(unit)}"


# -- A Plotly figure as plain data ----------------------------------------------------------------
#
# Plotly's classes check every property, and check all annotations again whenever one is added. That
# would be most of the time of a page with ten charts.


class Drawing:
    """Traces and a layout, with the properties of plotly.js.

    Properties that are None are left out. Colours are pairs, for light and for dark pages.
    """

    def __init__(self, **layout: Any) -> None:
        self.traces: list[dict[str, Any]] = []
        self.layout: dict[str, Any] = {**layout, "annotations": [], "shapes": []}

    def add_trace(self, kind: str, **properties: Any) -> None:
        """Add a trace, such as a ``scatter`` or a ``bar``."""
        self.traces.append({"type": kind, **_known(properties)})

    def add_annotation(self, **properties: Any) -> None:
        self.layout["annotations"].append(properties)

    def add_shape(self, kind: str, **properties: Any) -> None:
        """Add a shape, such as a ``line`` or a ``rect``."""
        self.layout["shapes"].append({"type": kind, **properties})

    def update(self, **properties: Any) -> None:
        """Set properties of the layout; merge those of an axis, the margin or the legend."""
        for name, value in _known(properties).items():
            current = self.layout.get(name)
            if isinstance(value, Mapping) and isinstance(current, Mapping):
                value = {**current, **value}
            self.layout[name] = value

    def plain(self) -> dict[str, Any]:
        """Return the figure for plotly.js, with numbers packed instead of numpy arrays.

        Colours are written as in CSS: only the browser knows whether the page is light or dark.
        """
        traces, layout = self.coloured(lambda colour: colour.css)
        return {"data": [_packed(trace) for trace in traces], "layout": layout}

    def coloured(
        self, write: Callable[[Colour], str]
    ) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Return the traces and the layout with their colours written."""
        return _coloured(self.traces, write), _coloured(self.layout, write)


def _known(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in properties.items() if value is not None}


def _coloured(part: Any, write: Callable[[Colour], str]) -> Any:
    """Write the colours in a part of a figure."""
    if isinstance(part, Colour):
        return write(part)
    if isinstance(part, Mapping):
        return {name: _coloured(value, write) for name, value in part.items()}
    if isinstance(part, list):
        return [_coloured(entry, write) for entry in part]
    return part


def _packed(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _packed_array(value) if isinstance(value, np.ndarray) else value
        for name, value in properties.items()
    }


def _packed_array(array: np.ndarray[Any, Any]) -> Any:
    """Pack numbers as plotly.js reads them, NaN included; list everything else."""
    if array.dtype == np.int64:
        array = array.astype(np.float64)
    kind = _TYPES.get(array.dtype.name)
    if kind is None:
        return array.tolist()
    data = b64encode(array.tobytes()).decode()
    packed = {"dtype": kind, "bdata": data}
    return packed if array.ndim == 1 else {**packed, "shape": ", ".join(map(str, array.shape))}
