"""Show a run while it is recorded; the page updates itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar

import dash_mantine_components as dmc
import numpy as np
from dash import Dash, Input, Output, State, dcc, html, no_update

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.views.log_health import Progress, progress
from stallscope.charts.chart_kinds import StackedArea
from stallscope.charts.step_time import step_time_chart
from stallscope.errors import NotFoundError, StallscopeError
from stallscope.formatting.lists import counted
from stallscope.formatting.numbers import NOT_MEASURED, amount
from stallscope.parsers.growing import Follower
from stallscope.text.job_words import throughput

from ..components.basics import advice_steps, coded_words, progress_bar, verdict_swatch
from ..components.chart_card import chart_card, chart_figure, chart_legend
from ..components.notices import LOGS_DELETED, warnings_card
from ..components.run_head import recording_badge
from ..run_folder import followed_folder, is_recording, log_silence_s, silence_sentence
from ..store import RunStore
from ..store.cache import Cache, give_back
from .run_page import RunPage, RunRequest

_INTERVAL_MS = 1000
_STATUS, _TICK, _SHOWN = "live-status", "live-tick", "live-shown"
_CHART, _LEGEND = "live", "live-legend"
# Recorders write once a second: longer pauses are reported.
_SILENCE_S = 5.0
_MOST_RANKS = 10
_SENTENCE = "The latest steps, without warm-up. The chart updates itself."

# Each run needs about 20 MB.
_MAX_RUNS = 8
# Requests that come sooner get the previous state.
_POLL_INTERVAL_S = 0.5


class LivePage(RunPage):
    path: ClassVar[str] = "/run/<run_id>/live"
    tab: ClassVar[str] = "Live"
    shows_status: ClassVar[bool] = True

    def parts(self, request: RunRequest, store: RunStore) -> list[Any]:
        if store.logs_deleted(request.run_id):
            return []
        if followed_folder(request.analysis.run) is None:
            return [
                warnings_card(
                    ["this run has ended, or its step logs are not in a local or mounted folder"]
                )
            ]
        return [
            dmc.Card(html.Div("Reading the last steps…", id=_STATUS), withBorder=True),
            # The legend is known with the first steps.
            chart_card(_CHART, _chart(None), html.Div(id=_LEGEND)),
            dcc.Interval(id=_TICK, interval=_INTERVAL_MS),
            dcc.Store(id=_SHOWN, data={"run": request.run_id, "number": 0}),
        ]

    def add_callbacks(self, app: Dash, store: RunStore) -> None:
        live_runs = LiveRuns()

        @app.callback(
            Output(_STATUS, "children"),
            Output({"type": "chart-figure", "name": _CHART}, "data"),
            Output(_LEGEND, "children"),
            Output(_TICK, "disabled"),
            Output(_SHOWN, "data"),
            Input(_TICK, "n_intervals"),
            State(_SHOWN, "data"),
        )
        def update(_ticks: int | None, shown: dict[str, Any] | None) -> Any:
            return live_update(store, live_runs, shown or {})


def live_update(store: RunStore, live_runs: LiveRuns, shown: dict[str, Any]) -> tuple[Any, ...]:
    """Return the page's update: status, chart and legend if there are new steps, whether it ended."""
    run_id = str(shown.get("run"))
    try:
        if store.logs_deleted(run_id):
            return LOGS_DELETED, no_update, no_update, True, no_update
        run = store.analysis(run_id).run
    except StallscopeError as error:
        return str(error), no_update, no_update, True, no_update
    folder = followed_folder(run)
    if folder is None:
        text = LOGS_DELETED if run.lacks_end else "This run has ended."
        return text, no_update, no_update, True, no_update
    try:
        live = live_runs.latest(folder, run.id)
    except StallscopeError as error:
        return str(error), no_update, no_update, False, no_update
    ended = live.analysis.run.status == "completed"
    status = _status(live, ended)
    if live.number == shown.get("number"):
        return status, no_update, no_update, ended, no_update
    chart = _chart(live)
    shown = {**shown, "number": live.number}
    return status, chart_figure(chart), chart_legend(chart), ended, shown


def _chart(live: LiveState | None) -> StackedArea:
    chart = None if live is None else step_time_chart(live.analysis)
    if chart is None:
        return StackedArea("Step time", _SENTENCE, "ms", "step", np.zeros(0), ())
    return replace(chart, title="Step time", sentence=_SENTENCE)


def _status(live: LiveState, ended: bool) -> Any:
    progress, analysis = live.progress, live.analysis
    if progress is None:
        return dmc.Text("Training has started; no step has ended yet.")
    bottleneck = analysis.bottleneck
    step = analysis.step
    figures = [
        (
            "Step",
            f"{progress.last_step:,}"
            + ("" if progress.epoch is None else f" in epoch {progress.epoch}"),
        ),
        ("Throughput", throughput(analysis) or NOT_MEASURED),
        ("Step time", "not known yet" if step is None else amount(step.mean, "ms", step.ci95)),
        ("Time left", _left(progress, live, ended)),
    ]
    return dmc.Stack(
        [
            dmc.Group(
                [
                    dmc.Badge("ended", variant="light", color="blue")
                    if ended
                    else recording_badge(live.silent_s),
                    verdict_swatch(bottleneck),
                    None if ended else _pause(live.silent_s),
                ],
                gap="md",
            ),
            _stop(analysis),
            _bar(progress),
            dmc.SimpleGrid([_figure(*figure) for figure in figures], cols={"base": 2, "sm": 4}),
            dmc.Text(_late_ranks(progress), size="sm") if progress.behind else None,
        ],
        gap="sm",
    )


def _pause(silence_s: float) -> Any:
    """Say for how long there is no new step; None for the usual pause between writes."""
    if silence_s < _SILENCE_S:
        return None
    short = f"no new step for {silence_s:.0f} s"
    return _dimmed(short if is_recording(silence_s) else silence_sentence(silence_s))


def _stop(analysis: Analysis) -> Any:
    """Show since when and where the job hangs, and what to do; None if it makes progress."""
    stopped = analysis.stopped
    if stopped is None:
        return None
    since = "" if stopped.since is None else f" since {stopped.since:%Y-%m-%d %H:%M:%S} UTC"
    advice = advice_steps(analysis.bottleneck.advice)
    return dmc.Alert(
        [dmc.Text(coded_words(stopped.evidence), size="sm"), *advice],
        title=f"The job {'hangs' if stopped.advice is None else 'has stopped'}{since}",
        color="red",
    )


def _bar(progress: Progress) -> Any:
    if progress.total is None or progress.done is None:
        return _dimmed("The logs do not contain the number of steps.")
    text = f"{progress.done:,} of {counted(progress.total, 'step')}"
    bar = progress_bar(progress.done, progress.total, text, size="lg")
    return dmc.Box([bar, _dimmed(text, mt=4)])


def _figure(name: str, value: str) -> Any:
    return dmc.Box([_dimmed(name), dmc.Text(value, fw=600)])


def _left(progress: Progress, live: LiveState, ended: bool) -> str:
    if ended:
        return "none"
    unknown = progress.left_s is None or not is_recording(live.silent_s)
    return "not known" if unknown else f"about {amount(progress.left_s, 's')}"


def _dimmed(text: str, **look: Any) -> Any:
    return dmc.Text(text, size="sm", c="dimmed", **look)


def _late_ranks(progress: Progress) -> str:
    ranks = ", ".join(
        f"rank {rank} (step {last:,})" if last >= 0 else f"rank {rank} (no step yet)"
        for rank, last in progress.behind[:_MOST_RANKS]
    )
    more = len(progress.behind) - _MOST_RANKS
    text = f"{counted(len(progress.behind), 'rank')} behind the others: {ranks}"
    return text + (f" and {more} more" if more > 0 else "")


# -- Read running jobs while they are recorded; all users of the dashboard share the readers ------


@dataclass(frozen=True)
class LiveState:
    """The latest steps of a running job."""

    #: Increases with every poll that found new steps.
    number: int
    analysis: Analysis
    progress: Progress | None
    #: Seconds since the logs grew.
    silent_s: float = 0.0


class LiveRuns:
    """Readers of running jobs; the least recently used reader is dropped first. Thread-safe.

    Args:
        clock: a monotonic clock in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._runs = Cache(_MAX_RUNS)

    def latest(self, folder: Path, run_id: str) -> LiveState:
        """Return the latest steps of a run; read what was written since the last poll.

        Raises:
            NotFoundError: if the folder or the run's logs do not exist.
        """
        run = self._runs.get((folder, run_id), lambda: _LiveRun(Follower(folder, run_id)))
        return run.latest(self._clock())


class _LiveRun:
    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._lock = Lock()
        self._polled_at: float | None = None
        self._changed_at = 0.0
        self._state: LiveState | None = None

    def latest(self, now: float) -> LiveState:
        with self._lock:
            if self._polled_at is None or now - self._polled_at >= _POLL_INTERVAL_S:
                self._polled_at = now
                self._poll(now)
            if self._state is None:
                raise NotFoundError("this run has no log in its folder yet")
            return replace(self._state, silent_s=max(now - self._changed_at, 0.0))

    def _poll(self, now: float) -> None:
        if not self._follower.look():
            return
        analysis = analyse(self._follower.run())
        before = self._state
        number = 1 if before is None else before.number + 1
        self._state = LiveState(number, analysis, progress(analysis))
        # The logs may have grown last long before a user opened the page.
        silence_s = log_silence_s(analysis.run) if before is None else None
        self._changed_at = now - (silence_s or 0.0)
        give_back()
