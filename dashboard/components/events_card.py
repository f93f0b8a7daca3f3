"""Events from other logs of a run, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stallscope.formatting.plain import plain
from stallscope.text.events import NOT_KNOWN, TITLE

from ..timeline.marks import MOST_MARKS, Mark
from .tables import data_card

_COLUMNS = ("When", "What happened", "Of", "Log")


def events_card(marks: Sequence[Mark]) -> Any:
    """Make a card with all events; None without any."""
    if not marks:
        return None
    placed = sum(mark.at is not None for mark in marks)
    unknown = sum(mark.when == NOT_KNOWN for mark in marks)
    note = f"{placed:,} of {len(marks):,} lie on the axis: between the first step and the last one."
    if unknown:
        note += (
            f" Of {unknown:,} it is not known when they were: their logs do not tell, or tell local "
            "time that fits into more than one zone."
        )
    if len(marks) > MOST_MARKS:
        note += f" The first {MOST_MARKS:,} are listed."
    rows = [
        (mark.when, mark.words, mark.who or "–", plain(mark.event.where))
        for mark in marks[:MOST_MARKS]
    ]
    return data_card(TITLE, note, _COLUMNS, rows, text_columns=len(_COLUMNS))
