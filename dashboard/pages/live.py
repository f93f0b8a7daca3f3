"""A run while it is recorded: new steps come by themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import dash_mantine_components as dmc
import numpy as np
from dash import Dash, Input, Output, State, dcc, html, no_update

from stallscope.analysis import ENTRIES
from stallscope.analysis.ledger.ledger import CAUSES
from stallscope.analysis.views.progress import Progress
from stallscope.charts.charts import StackedArea, step_time_chart
from stallscope.errors import StallscopeError
from stallscope.formatting.lists import counted
from stallscope.formatting.numbers import amount, rate
from stallscope.text.verdicts import short_verdict

from ..components.aria import aria
from ..components.chart_card import chart_card, chart_figures
from ..components.notices import warnings_card
from ..components.swatch import labelled_swatch
from ..live import Followings, Live, followed_folder
from ..store import RunStore
from .run_page import RunPage, Shown

_EVERY_MS = 1000
_NOW, _TICK, _SEEN = "live-now", "live-tick", "live-seen"
_CHART = "live"
# Recorders write once a second: a pause this long is worth a word.
_SILENCE_S = 5.0
_MOST_BEHIND = 10
_SENTENCE = "The last steps, warm-up left out; new ones come by themselves."


class LivePage(RunPage):
    path: ClassVar[str] = "/run/<run_id>/live"
    tab: ClassVar[str] = "Live"

    def parts(self, shown: Shown, store: RunStore) -> list[Any]:
        if followed_folder(shown.analysis.run) is None:
            return [
                warnings_card(
                    ["this run has ended, or its logs are not in a folder that can be watched"]
                )
            ]
        return [
            dmc.Card(html.Div("Reading the last steps…", id=_NOW), withBorder=True),
            chart_card(_CHART, _chart(None)),
            dcc.Interval(id=_TICK, interval=_EVERY_MS),
            dcc.Store(id=_SEEN, data={"run": shown.run_id, "number": 0}),
        ]

    def add_callbacks(self, app: Dash, store: RunStore) -> None:
        followings = Followings()

        @app.callback(
            Output(_NOW, "children"),
            Output({"type": "chart-figures", "name": _CHART}, "data"),
            Output(_TICK, "disabled"),
            Output(_SEEN, "data"),
            Input(_TICK, "n_intervals"),
            State(_SEEN, "data"),
        )
        def look(_ticks: int | None, seen: dict[str, Any]) -> Any:
            return looked(store, followings, seen)


def looked(store: RunStore, followings: Followings, seen: dict[str, Any]) -> tuple[Any, ...]:
    """What the page shows now: its words, its figures where there is news, whether it has ended."""
    run = store.analysis(str(seen["run"])).run
    folder = followed_folder(run)
    if folder is None:
        return "This run has ended.", no_update, True, no_update
    try:
        live = followings.look(folder, run.id)
    except StallscopeError as error:
        return str(error), no_update, False, no_update
    ended = live.analysis.run.status == "completed"
    words = _now(live, ended)
    if live.number == seen["number"]:
        return words, no_update, ended, no_update
    return words, chart_figures(_chart(live)), ended, {**seen, "number": live.number}


def _chart(live: Live | None) -> StackedArea:
    chart = None if live is None else step_time_chart(live.analysis)
    if chart is None:
        nothing = np.zeros(0)
        layers = tuple((name, nothing) for name in CAUSES)
        return StackedArea("Step time", _SENTENCE, "ms", "step", nothing, layers)
    return replace(chart, title="Step time", sentence=_SENTENCE)


def _now(live: Live, ended: bool) -> Any:
    found, analysis = live.progress, live.analysis
    if found is None:
        return dmc.Text("Training has begun; no step has ended yet.")
    bottleneck = analysis.bottleneck
    verdict = short_verdict(bottleneck)
    step = analysis.step
    figures = [
        (
            "Step",
            f"{found.last_step:,}" + ("" if found.epoch is None else f" in epoch {found.epoch}"),
        ),
        ("Throughput", rate(analysis.samples_per_second)),
        ("A step takes", "not known yet" if step is None else amount(step.mean, "ms", step.ci95)),
        ("Time left", _left(found, ended)),
    ]
    return dmc.Stack(
        [
            dmc.Group(
                [
                    dmc.Badge("ended" if ended else "recording", variant="light", color="blue"),
                    labelled_swatch(bottleneck.kind, verdict)
                    if bottleneck.kind in ENTRIES
                    else dmc.Text(verdict, size="sm"),
                    *_pause(live, ended),
                ],
                gap="md",
            ),
            _bar(found),
            dmc.SimpleGrid([_figure(*one) for one in figures], cols={"base": 2, "sm": 4}),
            *_behind(found),
        ],
        gap="sm",
    )


def _bar(found: Progress) -> Any:
    if found.total is None or found.done is None:
        return dmc.Text("How many steps there will be is not in the logs.", size="sm", c="dimmed")
    said = f"{found.done:,} of {found.total:,} steps"
    return dmc.Box(
        [
            dmc.ProgressRoot(
                dmc.ProgressSection(
                    value=100 * found.done / max(found.total, 1), **aria(label=said)
                ),
                size="lg",
            ),
            dmc.Text(said, size="sm", c="dimmed", mt=4),
        ]
    )


def _figure(name: str, value: str) -> Any:
    return dmc.Box([dmc.Text(name, size="sm", c="dimmed"), dmc.Text(value, fw=600)])


def _left(found: Progress, ended: bool) -> str:
    if ended:
        return "none"
    return "not known" if found.left_s is None else f"about {amount(found.left_s, 's')}"


def _pause(live: Live, ended: bool) -> list[Any]:
    if ended or live.silent_s < _SILENCE_S:
        return []
    return [dmc.Text(f"no new step for {live.silent_s:.0f} s", size="sm", c="dimmed")]


def _behind(found: Progress) -> list[Any]:
    if not found.behind:
        return []
    named = ", ".join(
        f"rank {rank} (step {last:,})" if last >= 0 else f"rank {rank} (no step yet)"
        for rank, last in found.behind[:_MOST_BEHIND]
    )
    more = len(found.behind) - _MOST_BEHIND
    said = f"{counted(len(found.behind), 'rank')} behind the others: {named}"
    return [dmc.Text(said + (f" and {more} more" if more > 0 else ""), size="sm")]
