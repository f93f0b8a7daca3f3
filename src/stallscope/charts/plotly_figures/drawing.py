"""A Plotly figure as plain data.

Plotly's classes check every property, and check all annotations again whenever one is added. That would
be most of the time of a page with ten charts.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import numpy as np

# The names of plotly.js for types of numbers; it has none for whole numbers of 64 bits.
_TYPES = {"int32": "i4", "float32": "f4", "float64": "f8"}


class Drawing:
    """Traces and a layout, with the properties of plotly.js.

    Properties that are None are left out. ``go.Figure(drawing.traces, drawing.layout)`` checks them.
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
        """Return the figure for plotly.js, with numbers packed instead of numpy arrays."""
        return {"data": [_packed(trace) for trace in self.traces], "layout": self.layout}


def _known(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in properties.items() if value is not None}


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
