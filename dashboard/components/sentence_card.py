"""The sentence that a page starts with."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc

from .swatch import colours_of


def sentence_card(
    title: str, text: str, stage: str = "other", *more: Any, label: str | None = None, **look: Any
) -> Any:
    """Make a card with what a page finds, in the colour of a stage.

    Args:
        title: what the page finds.
        text: the evidence; it may be empty.
        stage: whose colour the card has.
        more: what stands below.
        label: what kind of sentence it is, above it.
        look: further properties of the card.
    """
    return dmc.Card(
        [
            dmc.Text(label, size="sm", fw=600, c="dimmed") if label else None,
            dmc.Title(title, order=2, size="h3"),
            dmc.Text(text, mt="xs") if text else None,
            *more,
        ],
        withBorder=True,
        className="verdict-card",
        style=colours_of(stage),
        **look,
    )
