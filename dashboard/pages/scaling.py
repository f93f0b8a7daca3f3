"""Runs of one job on different numbers of ranks."""

from __future__ import annotations

from typing import Any, ClassVar

import dash_mantine_components as dmc

from stallscope.analysis.scaling import Series, scaling
from stallscope.pictures.scaling import efficiency_chart, rate_chart, steps_chart
from stallscope.reports.scaling.contents import (
    difference,
    headline,
    lost_table,
    published_table,
    rates_table,
    title,
)
from stallscope.wording.plain import plain
from stallscope.wording.verdicts import counted

from ..addresses import SCALING, Address
from ..components.chart_card import chart_card
from ..components.notices import notice, warnings_card
from ..components.tables import words_card
from ..store import RunStore
from .base import Page, View
from .run_page import side_by_side

# Each is analysed: more of them are chosen in the list.
_MOST_UNASKED = 30


class ScalingPage(Page):
    path: ClassVar[str] = SCALING

    def view(self, address: Address, store: RunStore) -> View:
        chosen = [one for one in address.query.get("runs", "").split(",") if one]
        ids = chosen or [run.id for run in store.runs()]
        if not chosen and len(ids) > _MOST_UNASKED:
            return _nothing(
                f"There are {len(ids):,} runs here: select those to compare in the list."
            )
        found = scaling(store.analysis(run_id) for run_id in ids)
        if not chosen:
            # Who asks for nothing in particular wants to see what does scale.
            found = [one for one in found if len(one.points) > 1]
        if not found:
            return _nothing(
                "None of these runs is of a job that was run on different numbers of ranks."
            )
        head = dmc.Box(
            [
                dmc.Title("Scaling", order=1, size="h2", tabIndex=-1),
                dmc.Text(
                    f"{counted(len(ids), 'run')}, brought together by what they say of themselves.",
                    c="dimmed",
                ),
            ]
        )
        parts = [part for index, one in enumerate(found) for part in _series(one, index)]
        content = [head, *parts, words_card(published_table())]
        return View("Scaling", dmc.Stack([part for part in content if part is not None]))


def _series(series: Series, index: int) -> list[Any]:
    steps = steps_chart(series)
    return [
        dmc.Card(
            [
                dmc.Text(plain(title(series)), size="sm", c="dimmed"),
                dmc.Title(headline(series), order=2, size="h3"),
                dmc.Text(difference(series), size="sm", mt=4) if difference(series) else None,
            ],
            withBorder=True,
        ),
        side_by_side(
            chart_card(f"rates-{index}", rate_chart(series)),
            chart_card(f"efficiency-{index}", efficiency_chart(series)),
        ),
        None if steps is None else chart_card(f"steps-{index}", steps),
        words_card(rates_table(series)),
        words_card(lost_table(series)),
        warnings_card(series.warnings),
    ]


def _nothing(text: str) -> View:
    return View("Scaling", notice("Scaling", text))
