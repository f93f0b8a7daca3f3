"""Show what ranks reduce, how long steps wait for it, and the contents of Horovod's files."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, dcc

from stallscope.analysis import Analysis
from stallscope.analysis.network.network_check import network_sentence
from stallscope.charts.charts import Chart, network_chart
from stallscope.charts.step_time import step_time_chart
from stallscope.errors import StallscopeError
from stallscope.formatting.lists import counted, listed
from stallscope.formatting.numbers import NOT_MEASURED, amount, interval, percent, significant
from stallscope.formatting.plain import plain
from stallscope.reports.run.network_tables import network_tables
from stallscope.text.figure_words import bytes_in_words

from ..companion_files import (
    LoadedTimeline,
    LoadingTimeline,
    companion_autotune,
    companion_timeline,
)
from ..components.autotune_card import autotune_cards
from ..components.basics import card, code_block, sentence_card
from ..components.chart_card import chart_card
from ..components.data_tables import data_card, table_card
from ..components.notices import warnings_card
from ..components.tensor_cards import (
    fusion_card,
    late_card,
    reading_card,
    sizes_card,
    tensors_card,
    timeline_card,
    timeline_steps_card,
)
from ..run_folder import local_folder
from ..store import RunStore
from .run_page import RunPage, RunRequest, side_by_side

_INTERVAL_MS = 1000
_TIMELINE, _TICK, _RUN = "horovod-timeline", "horovod-timeline-tick", "horovod-timeline-run"
# An example for runs that are not on this machine.
_EXAMPLE_FOLDER = Path("/shared/folder")
_BUS_BANDWIDTH = (
    "Bus bandwidth is 2(N−1)/N × bytes / exposed time. It is the network's own bandwidth if no part is "
    "hidden behind backward, and higher if a part is."
)


class CommunicationPage(RunPage):
    path: ClassVar[str] = "/run/<run_id>/communication"
    tab: ClassVar[str] = "Communication"

    def parts(self, request: RunRequest, store: RunStore) -> list[Any]:
        analysis = request.analysis
        problems: list[str] = []
        timeline = _or_problem(lambda: companion_timeline(analysis.run), problems)
        autotune = _or_problem(lambda: companion_autotune(analysis.run), problems)
        return [
            sentence_card(*exposed(analysis), colour="allreduce"),
            warnings_card(problems),
            side_by_side(
                chart_card("exposed", exposed_chart(analysis)),
                # Logs of epochs alone would leave nearly every row empty.
                None if analysis.epoch_times is not None else _reduced(analysis),
            ),
            chart_card("network", network_chart(analysis)),
            *map(table_card, network_tables(analysis)),
            *_timeline_parts(timeline, request),
            *([] if autotune is None else autotune_cards(autotune)),
            _howto(
                analysis, with_timeline=timeline is not None, with_autotune=autotune is not None
            ),
        ]

    def add_callbacks(self, app: Dash, store: RunStore) -> None:
        @app.callback(
            Output(_TIMELINE, "children"),
            Output(_TICK, "disabled"),
            Input(_TICK, "n_intervals"),
            State(_RUN, "data"),
        )
        def update(_ticks: int | None, run_id: str | None) -> Any:
            try:
                return timeline_update(store.analysis(run_id or ""))
            except StallscopeError as error:  # such as a run that was deleted meanwhile
                return [warnings_card([plain(str(error))])], True


def timeline_update(analysis: Analysis) -> tuple[list[Any], bool]:
    """Return the cards of a timeline, and whether it is completely read."""
    try:
        timeline = companion_timeline(analysis.run, reload=False)
    except StallscopeError as error:
        return [warnings_card([plain(str(error))])], True
    if isinstance(timeline, LoadingTimeline):
        return [reading_card(timeline)], False
    return [card for card in _timeline_cards(timeline, analysis) if card is not None], True


def _or_problem(read: Callable[[], Any], problems: list[str]) -> Any:
    try:
        return read()
    except StallscopeError as error:
        problems.append(plain(str(error)))
        return None


def exposed(analysis: Analysis) -> tuple[str, str]:
    """Return the cost of the allreduce per step as a title, and its evidence."""
    run = analysis.run
    if run.size < 2 and run.size_known:
        return "A single rank has no allreduce", ""
    entry = analysis.entry("allreduce")
    if entry is None or run.times_host_work:
        return "These logs cannot show what allreduce costs", _reason(analysis)
    took = amount(entry.ms, "ms", entry.ci95_ms)
    title = f"Exposed allreduce takes {percent(entry.share)} of a step: {took}"
    text = f"A step reduces {_gradients(analysis)}. " if _gradients(analysis) else ""
    text += (
        "Exposed is the time that the step waits after the last rank is ready. It excludes allreduce "
        "that overlaps backward, and waiting for slow ranks."
    )
    if run.unknown_ranks:
        missing = listed("rank", run.unknown_ranks)
        text += f" There is no complete log of {missing}, so it includes waiting for them."
    if analysis.network_use is not None:
        text += f" {network_sentence(analysis.network_use)}"
    return title, text


def _reason(analysis: Analysis) -> str:
    if analysis.printed is not None and not analysis.printed.recorded:
        return analysis.why_no_stages
    if not analysis.coverage.steps:
        return "No step was recorded."
    if analysis.run.times_host_work:
        return (
            "The compiled step shows no times inside: what devices communicate counts as compute."
        )
    timestamps = analysis.run.fact("stamps")
    reason = timestamps.get("reason") if isinstance(timestamps, dict) else None
    suffix = f": {plain(str(reason))}" if reason else ""
    return f"The times at which gradients were ready and reduced were not measured{suffix}."


def _gradients(analysis: Analysis) -> str:
    tensors = _count(analysis, "gradient_tensors")
    size = _count(analysis, "gradient_bytes")
    parts = [
        "" if tensors is None else counted(tensors, "gradient tensor"),
        "" if size is None else bytes_in_words(size) + ("" if tensors else " of gradients"),
    ]
    return ", ".join(filter(None, parts))


def _count(analysis: Analysis, fact: str) -> int | None:
    value = analysis.run.fact(fact)
    return value if isinstance(value, int) and value > 0 else None


def exposed_chart(analysis: Analysis) -> Chart | None:
    """Return the chart of exposed allreduce over the run; None if it is not known, or on one rank."""
    chart = step_time_chart(analysis)
    # Lines of another program have no stages over the run.
    if chart is None or analysis.run.size < 2 or analysis.epoch_times is not None:
        return None
    return replace(
        chart,
        title="Exposed allreduce over the run",
        layers=tuple(layer for layer in chart.layers if layer[0] == "allreduce"),
        changes=(),
        pauses=(),
        rates=None,
        windows=None,
    )


def _reduced(analysis: Analysis) -> Any:
    """Tabulate the gradients of a step, and their bandwidth."""
    entry = analysis.entry("allreduce")
    tensors, size = _count(analysis, "gradient_tensors"), _count(analysis, "gradient_bytes")
    rows = [
        ("Ranks", f"{analysis.run.size:,}"),
        ("Gradient tensors", NOT_MEASURED if tensors is None else f"{tensors:,}"),
        ("Gradients", NOT_MEASURED if size is None else bytes_in_words(size)),
    ]
    if analysis.run.size > 1:
        rows += [
            ("Exposed per step", amount(None if entry is None else entry.ms, "ms")),
            (
                "95% interval of the mean",
                NOT_MEASURED if entry is None else interval(entry.ci95_ms, "ms"),
            ),
            ("Share of the step", NOT_MEASURED if entry is None else percent(entry.share)),
        ]
        rows += [("Effective bus bandwidth", _bandwidth(analysis)), ("Hidden", _hidden(analysis))]
    note = "" if analysis.communication is None else _BUS_BANDWIDTH
    return data_card("Reduced per step", note, ("What", "In this run"), rows, text_columns=2)


def _bandwidth(analysis: Analysis) -> str:
    communication = analysis.communication
    if communication is None or communication.bus_bandwidth is None:
        return "not known"
    return f"{significant(communication.bus_bandwidth)} GB/s"


def _hidden(analysis: Analysis) -> str:
    communication, use = analysis.communication, analysis.network_use
    if use is not None and use.gradients_ms is not None and use.excess_ms is not None:
        hidden, whole = max(0.0, -use.excess_ms.value), use.gradients_ms.value
        return f"{amount(hidden, 'ms')} of {amount(whole, 'ms')}, as measured while nothing trains"
    if communication is None or communication.network_bandwidth is None:
        return "not known without stallscope netcheck, or the network's own bandwidth"
    return (
        f"{amount(communication.hidden_ms, 'ms')} of {amount(communication.whole_ms, 'ms')}, at "
        f"{significant(communication.network_bandwidth)} GB/s"
    )


def _timeline_parts(
    timeline: LoadedTimeline | LoadingTimeline | None, request: RunRequest
) -> list[Any]:
    if not isinstance(timeline, LoadingTimeline):
        return _timeline_cards(timeline, request.analysis)
    return [
        dmc.Stack([reading_card(timeline)], id=_TIMELINE),
        dcc.Interval(id=_TICK, interval=_INTERVAL_MS),
        dcc.Store(id=_RUN, data=request.run_id),
    ]


def _timeline_cards(timeline: LoadedTimeline | None, analysis: Analysis) -> list[Any]:
    if timeline is None:
        return []
    tensors = timeline.tensors
    return [
        side_by_side(timeline_card(timeline, analysis.run), fusion_card(tensors.fusion)),
        timeline_steps_card(tensors.steps),
        tensors_card(tensors),
        sizes_card(tensors.fusion, analysis.run.size),
        late_card(tensors),
    ]


def _howto(analysis: Analysis, *, with_timeline: bool, with_autotune: bool) -> Any:
    """Return the settings that record the missing files, with their cost."""
    versions = analysis.run.fact("versions")
    if isinstance(versions, dict) and not versions.get("horovod", True):
        return None  # not a Horovod job
    folder = local_folder(analysis.run) or _EXAMPLE_FOLDER
    parts: list[Any] = []
    if not with_timeline:
        parts += _settings(
            "Negotiation and operation of each tensor",
            (
                f"HOROVOD_TIMELINE={_quoted(folder / 'timeline.json')}",
                "HOROVOD_TIMELINE_MARK_CYCLES=1",
            ),
            "Rank 0 writes about 600 bytes per tensor and step: with 162 gradients, 96 kB per step. "
            "Steps of 27–36 ms took 39–43 ms, because the writing thread keeps a CPU core busy. On "
            "GPUs, rank 0 also waits for each of its operations. Record some hundred steps, not the "
            "whole training.",
        )
        parts += _settings(
            "The last rank of every negotiation",
            ("HOROVOD_CACHE_CAPACITY=0",),
            "In addition to the lines above. Without it, the timeline names ranks only in the first "
            "negotiation of each tensor. With it, every step is negotiated in full, which is slow with "
            "many tensors or ranks. The step logs show late ranks without it.",
        )
    if not with_autotune:
        parts += _settings(
            "Faster settings",
            ("HOROVOD_AUTOTUNE=1", f"HOROVOD_AUTOTUNE_LOG={_quoted(folder / 'autotune.csv')}"),
            "Horovod tries dozens of settings for at least fifty steps each. Some are slow, so step "
            "times do not represent the job until tuning has converged.",
        )
    if not parts:
        return None
    return card(
        "Record more",
        *parts,
        note="Set these variables in the environment of rank 0, and Horovod writes the files. This page "
        "finds them next to the run's logs.",
    )


def _quoted(path: Path) -> str:
    return shlex.quote(plain(str(path)))


def _settings(title: str, lines: tuple[str, ...], cost: str) -> list[Any]:
    return [
        dmc.Title(title, order=3, size="h6", mt="sm"),
        code_block("\n".join(lines), title, my=6),
        dmc.Text(cost, size="sm"),
    ]
