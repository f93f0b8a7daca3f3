"""The card around a picture: its title, the buttons that save it, its sentence, the picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html

from .aria import aria
from .save_buttons import save_buttons

_TRANSPARENT = "rgba(0,0,0,0)"
_EMPTY: dict[str, Any] = {
    "data": [],
    "layout": {
        "paper_bgcolor": _TRANSPARENT,
        "plot_bgcolor": _TRANSPARENT,
        "xaxis": {"visible": False},
        "yaxis": {"visible": False},
    },
}


def picture_card(
    name: str,
    title: str,
    sentence: str,
    figures: dict[str, Any],
    config: Any,
    height: int,
    *,
    above: Sequence[Any] = (),
    below: Sequence[Any] = (),
    role: str = "img",
) -> Any:
    """A card with a picture.

    Args:
        name: the picture's own on its page.
        title: what it is called.
        sentence: its content, also for readers who do not see it.
        figures: the Plotly figures for ``light`` and ``dark``, and its numbers as ``csv``.
        config: Plotly's.
        height: of the picture, in pixels.
        above: what stands above it, such as what its colours mean.
        below: what stands below it.
        role: ``figure`` where there are buttons inside: what is an image has none.
    """
    return dmc.Card(
        [
            html.Div(
                [dmc.Title(title, order=2, size="h4"), save_buttons(title, name)],
                className="picture-head",
            ),
            dmc.Text(sentence, c="dimmed", size="sm"),
            *above,
            html.Div(
                dcc.Graph(
                    id={"type": "chart", "name": name},
                    figure=_EMPTY,
                    config=config,
                    responsive=True,
                    style={"height": f"{height}px"},
                ),
                role=role,
                **aria(label=f"{title}. {sentence}"),
            ),
            dcc.Store(id={"type": "chart-figures", "name": name}, data=figures),
            *below,
        ],
        withBorder=True,
        h="100%",
        className="picture-card",
    )
