"""What a page says: its texts and components, found by walking through them."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import plotly.graph_objects as go
from dash.development.base_component import Component

# A colour for light pages and one for dark pages, as JSON.
_PAIR = re.compile(r'"light-dark\((#\w+|rgba\([^)]*\)), [^"]*"')
_KNOWN = {
    *("A", "Button", "Details", "Div", "Graph"),
    *("Nav", "Span", "Store", "Strong", "Summary"),
}


def components(content: Any) -> Iterator[Component]:
    """All components of a content, from the outermost, in the order in which they are read."""
    if isinstance(content, Component):
        yield content
        yield from components(getattr(content, "children", None))
    elif isinstance(content, list | tuple):
        for part in content:
            yield from components(part)


def assert_known_components(content: Any) -> None:
    """Assert that a content has Mantine's components and a few others, but none from a log's text."""
    for component in components(content):
        assert type(component).__module__.startswith("dash_mantine_components") or (
            type(component).__name__ in _KNOWN
        )


def texts(content: Any) -> list[str]:
    """All texts of a content, tables included."""
    if isinstance(content, str):
        return [content]
    if isinstance(content, list | tuple):
        return [text for part in content for text in texts(part)]
    if isinstance(content, Component):
        data = getattr(content, "data", None)
        table = data if isinstance(data, dict) and "body" in data else {}
        return [
            *texts(getattr(content, "children", None)),
            *texts(table.get("head")),
            *[text for row in table.get("body", []) for text in texts(row)],
        ]
    return []


def of_type(content: Any, name: str) -> list[Component]:
    """The components of a type, by its name: ``Graph``, ``Anchor``."""
    return [component for component in components(content) if type(component).__name__ == name]


def table_rows(content: Any, label: str) -> list[list[str]]:
    """Return the rows of the table with a label, its head first."""
    region = next(
        component
        for component in of_type(content, "Div")
        if getattr(component, "role", "") == "region" and getattr(component, "aria-label") == label
    )
    (table,) = of_type(region, "Table")
    data = getattr(table, "data", None)
    if data:
        return [data["head"], *data["body"]]
    return [texts(row) for row in of_type(region, "TableTr")]


def charts(content: Any) -> dict[str, Any]:
    """The figures of the chart cards on a light page, by name."""
    return {
        component.id["name"]: figure_of(component.data)
        for component in of_type(content, "Store")
        if isinstance(component.id, dict) and component.id.get("type") == "chart-figure"
    }


def figure_of(plain: Mapping[str, Any]) -> go.Figure:
    """Let Plotly check a chart card's figure on a light page, with its numbers as arrays again."""
    light = json.loads(_PAIR.sub(r'"\1"', json.dumps(plain)))
    traces = [{name: _unpacked(value) for name, value in trace.items()} for trace in light["data"]]
    return go.Figure(traces, light["layout"])


def _unpacked(value: Any) -> Any:
    if not (isinstance(value, Mapping) and "bdata" in value):
        return value
    array = np.frombuffer(b64decode(value["bdata"]), value["dtype"])
    shape = value.get("shape")
    return array if shape is None else array.reshape([*map(int, shape.split(", "))])
