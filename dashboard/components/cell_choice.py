"""The choice of what colours a heat map's cells where ranks share rows; the address keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from dash import html

from ..addresses import run_address
from .basics import aria, link

_NAME = "cells"
_WAYS = (("latest", "Latest rank"), ("mean", "Mean of the ranks"))


def wants_latest(query: Mapping[str, str]) -> bool:
    """Whether cells show their latest rank, as they do unless the address asks for the mean."""
    return query.get(_NAME) != "mean"


def cell_choice(run_id: str, query: Mapping[str, str], latest: bool) -> Any:
    """Link to the same page with its cells coloured either way."""
    links = [
        link(
            words,
            f"{run_address(run_id, page='stragglers')}?{urlencode({**query, _NAME: way})}",
            underline="never",
            className="cell-choice",
            **(aria(current="true") if (way == "latest") is latest else {}),
        )
        for way, words in _WAYS
    ]
    return html.Div(
        ["Cells show: ", *links], className="cell-choices", role="group", **aria(label="Cells show")
    )
