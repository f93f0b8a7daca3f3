"""The sentence that a page begins with."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc

from .swatch import colours_of


def sentence_card(title: str, text: str, stage: str = "other") -> Any:
    """What a page finds, and what that rests on; in the colour of a stage."""
    return dmc.Card(
        [
            dmc.Title(title, order=2, size="h3"),
            dmc.Text(text, mt="xs") if text else None,
        ],
        withBorder=True,
        className="verdict-card",
        style=colours_of(stage),
    )
