"""Tables of any number of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dash_mantine_components as dmc

from .tables import TABLE_LOOK, scroller, table_card


def data_card(
    title: str,
    note: str,
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    text_columns: int = 1,
) -> Any:
    """Make a card with a table; the first columns are words, the others numbers."""
    # As data, not as a component per cell: a thousand rows are quick.
    table = dmc.Table(data={"head": list(head), "body": [list(row) for row in rows]}, **TABLE_LOOK)
    return table_card(title, note, scroller(title, table, words=range(text_columns)))
