"""Compare runs of one job on different numbers of ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import dash_mantine_components as dmc
from dash import Dash, Input, Output

from stallscope.analysis import Analysis
from stallscope.analysis.scaling import FACTS, ScalingSeries, left_out, scaling
from stallscope.charts.scaling_curves import efficiency_chart, losses_chart, rate_chart, steps_chart
from stallscope.formatting.lists import counted
from stallscope.formatting.plain import plain
from stallscope.reports.scaling.scaling_contents import (
    difference,
    headline,
    kind_in_words,
    lost_table,
    published_table,
    rates_table,
    runs_table,
    title,
)

from ..addresses import ADDRESS, SCALING, Address, run_address
from ..components.basics import add_script, aria, card, outcome_card, points
from ..components.chart_card import chart_card, picture
from ..components.data_tables import AS_A_TABLE, folded_table, text_table_card
from ..components.notices import notice, warnings_card
from ..store import RunStore
from .run_page import Page, View, side_by_side

_BY = "scaling-by"
# Each run is analysed; of more runs, users select some in the list.
_MOST_UNSELECTED = 30

_NOTHING_SCALES = "None of these runs is of a job that was run on different numbers of ranks."


class ScalingPage(Page):
    path: ClassVar[str] = SCALING

    def view(self, address: Address, store: RunStore) -> View:
        selected = [run_id for run_id in address.query.get("runs", "").split(",") if run_id]
        ids = selected or [run.id for run in store.runs()]
        if not selected and len(ids) > _MOST_UNSELECTED:
            text = f"There are {len(ids):,} runs here: select those to compare in the list."
            return View("Scaling", notice("Scaling", text))
        by = address.query.get("by")
        by = by if by in FACTS else None
        analyses = [store.analysis(run_id) for run_id in ids]
        all_series = scaling(analyses, by, one_per_size=True)
        if not selected:
            # Without a selection, show only jobs with several numbers of ranks.
            all_series = [series for series in all_series if len(series.points) > 1]
        addresses = {
            id(analysis): run_address(run_id)
            for run_id, analysis in zip(ids, analyses, strict=True)
        }
        content = [
            _head(len(ids), by),
            *[
                part
                for index, series in enumerate(all_series)
                for part in _series(series, index, addresses)
            ],
            None if all_series else dmc.Text(_NOTHING_SCALES),
            _left_out(analyses, by),
            picture("published", None, folded_table(published_table())) if all_series else None,
        ]
        return View.of("Scaling", content)

    def add_callbacks(self, app: Dash, store: RunStore) -> None:
        add_script(
            app,
            "stallscope.chooseGrouping",
            Output(ADDRESS, "search", allow_duplicate=True),
            Input(_BY, "value"),
            at_start=False,
        )


def _left_out(analyses: Sequence[Analysis], by: str | None) -> Any:
    """Name the runs that are in no curve, with the reason; None if there are none."""
    sentences = [plain(text) for text in left_out(analyses, by)]
    return card("Left out", points(sentences)) if sentences else None


def _head(number: int, by: str | None) -> Any:
    """Return the title, and the menu that groups the runs."""
    group = "recorded job facts" if by is None else FACTS[by][0].lower()
    text = (
        f"{counted(number, 'run')}, grouped by {group}. Each number of ranks is represented by its "
        "newest run, if possible one without a fault."
    )
    clear: Any = {"tabIndex": 0, **aria(label="Group by job", hidden="false")}
    return dmc.Group(
        [
            dmc.Box(
                [
                    dmc.Title("Scaling", order=1, size="h2", tabIndex=-1),
                    dmc.Text(text, c="dimmed"),
                ],
                flex=1,
                miw=280,
            ),
            dmc.Select(
                id=_BY,
                label="Group by",
                placeholder="Job",
                data=[{"value": key, "label": words} for key, (words, _) in FACTS.items()],
                value=by,
                clearable=True,
                clearButtonProps=clear,
                w={"base": "100%", "xs": 220},
            ),
        ],
        justify="space-between",
        align="flex-start",
        gap="lg",
    )


def _series(series: ScalingSeries, index: int, addresses: Mapping[int, str]) -> list[Any]:
    """Return the cards of a series.

    Args:
        addresses: the addresses of the runs' pages, by the identity of their analyses.
    """
    runs = [run for point in series.points for run in point.point.runs]
    return [
        outcome_card(
            headline(series),
            filter(None, [kind_in_words(series), difference(series)]),
            label=plain(title(series)),
        ),
        side_by_side(
            picture(f"rates-{index}", rate_chart(series), folded_table(rates_table(series))),
            chart_card(f"efficiency-{index}", efficiency_chart(series)),
        ),
        side_by_side(
            picture(
                f"losses-{index}",
                losses_chart(series),
                folded_table(lost_table(series), AS_A_TABLE),
            ),
            chart_card(f"steps-{index}", steps_chart(series)),
        ),
        text_table_card(runs_table(series), [addresses[id(run)] for run in runs]),
        warnings_card([plain(warning) for warning in series.warnings]),
    ]
