"""What the cells of a map are coloured by where ranks share rows: kept in the address."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import dash_mantine_components as dmc
from dash import html

from ..addresses import run_address
from .aria import aria

_NAME = "cells"
_WAYS = (("latest", "Latest rank"), ("mean", "Mean of the ranks"))


def wants_latest(query: Mapping[str, str]) -> bool:
    """Whether cells are to show their latest rank, as they do unless an address wants the mean."""
    return query.get(_NAME) != "mean"


def cell_choice(run_id: str, query: Mapping[str, str], latest: bool) -> Any:
    """Links to the same page with the cells coloured the one or the other way."""
    links = [
        dmc.Anchor(
            words,
            href=f"{run_address(run_id, page='stragglers')}?{urlencode({**query, _NAME: way})}",
            refresh=False,
            underline="never",
            className="cell-choice",
            **(aria(current="true") if (way == "latest") is latest else {}),
        )
        for way, words in _WAYS
    ]
    return html.Div(
        ["Cells show: ", *links], className="cell-choices", role="group", **aria(label="Cells show")
    )
