"""What ranks reduce, how long that holds a step up, and what Horovod itself wrote about it."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, dcc

from stallscope.analysis import Analysis
from stallscope.charts.charts import Chart, step_time_chart
from stallscope.errors import StallscopeError
from stallscope.formatting.numbers import NOT_MEASURED, amount, interval, percent, significant
from stallscope.formatting.plain import plain
from stallscope.reports.document import Table
from stallscope.text.figures import bytes_in_words
from stallscope.text.verdicts import counted, listed

from ..companion_files import (
    AutotuneSeen,
    TimelineReading,
    TimelineSeen,
    autotune_beside,
    folder_of,
    timeline_beside,
)
from ..components.aria import aria
from ..components.autotune_card import autotune_cards
from ..components.chart_card import chart_card
from ..components.notices import warnings_card
from ..components.sentence_card import sentence_card
from ..components.tables import words_card
from ..components.tensor_cards import (
    fusion_card,
    late_card,
    reading_card,
    sizes_card,
    tensors_card,
    timeline_card,
)
from ..components.timeline_steps import timeline_steps_card
from ..store import RunStore
from .run_page import RunPage, Shown, side_by_side

_EVERY_MS = 1000
_TIMELINE, _TICK, _OF_RUN = "timeline-beside", "timeline-beside-tick", "timeline-beside-run"
_ELSEWHERE = Path("/shared/folder")


class CommunicationPage(RunPage):
    path: ClassVar[str] = "/run/<run_id>/communication"
    tab: ClassVar[str] = "Communication"

    def parts(self, shown: Shown, store: RunStore) -> list[Any]:
        analysis = shown.analysis
        problems: list[str] = []
        timeline = _or_problem(lambda: timeline_beside(analysis.run), problems)
        autotune = _or_problem(lambda: autotune_beside(analysis.run), problems)
        chart = exposed_chart(analysis)
        return [
            sentence_card(*exposed(analysis), stage="allreduce"),
            warnings_card(problems),
            side_by_side(
                None if chart is None else chart_card("exposed", chart),
                words_card(_reduced(analysis)),
            ),
            *_timeline_parts(timeline, shown),
            *([] if autotune is None else autotune_cards(autotune)),
            _howto(analysis, timeline, autotune),
        ]

    def add_callbacks(self, app: Dash, store: RunStore) -> None:
        @app.callback(
            Output(_TIMELINE, "children"),
            Output(_TICK, "disabled"),
            Input(_TICK, "n_intervals"),
            State(_OF_RUN, "data"),
        )
        def look(_ticks: int | None, run_id: str) -> Any:
            return looked(store.analysis(run_id))


def looked(analysis: Analysis) -> tuple[list[Any], bool]:
    """What the page shows of a timeline that was being read, and whether that is all."""
    try:
        seen = timeline_beside(analysis.run, again=False)
    except StallscopeError as error:
        return [warnings_card([plain(str(error))])], True
    if isinstance(seen, TimelineReading):
        return [reading_card(seen)], False
    return [part for part in _of_timeline(seen, analysis) if part is not None], True


def _or_problem(read: Callable[[], Any], problems: list[str]) -> Any:
    try:
        return read()
    except StallscopeError as error:
        problems.append(plain(str(error)))
        return None


def exposed(analysis: Analysis) -> tuple[str, str]:
    """What the allreduce costs a step, as a title and what that rests on."""
    run = analysis.run
    if run.size < 2:
        return "A single rank has no allreduce", ""
    entry = analysis.entry("allreduce")
    if entry is None:
        return "These logs cannot show what allreduce costs", _reason(analysis)
    took = amount(entry.ms, "ms", entry.ci95_ms)
    title = f"Exposed allreduce takes {percent(entry.share)} of a step: {took}"
    text = f"A step reduces {_gradients(analysis)}. " if _gradients(analysis) else ""
    text += (
        "Exposed is what the step waits for after the last rank is ready; what runs beside backward is "
        "not in it, and waiting for slow ranks neither."
    )
    if run.missing_ranks:
        missing = listed("rank", run.missing_ranks)
        text += f" There is no log of {missing}: waiting for them is in it, too."
    return title, text


def _reason(analysis: Analysis) -> str:
    if not analysis.steps:
        return "No step was recorded."
    stamps = analysis.run.fact("stamps")
    why = stamps.get("reason") if isinstance(stamps, dict) else None
    because = f": {plain(str(why))}" if why else ""
    return f"When gradients were ready and reduced was not measured{because}."


def _gradients(analysis: Analysis) -> str:
    tensors = _count(analysis, "gradient_tensors")
    size = _count(analysis, "gradient_bytes")
    said = [
        "" if tensors is None else counted(tensors, "gradient tensor"),
        "" if size is None else bytes_in_words(size) + ("" if tensors else " of gradients"),
    ]
    return ", ".join(filter(None, said))


def _count(analysis: Analysis, fact: str) -> int | None:
    value = analysis.run.fact(fact)
    return value if isinstance(value, int) and value > 0 else None


def exposed_chart(analysis: Analysis) -> Chart | None:
    """Exposed allreduce over the run. None where it is not known, or there is none."""
    chart = step_time_chart(analysis)
    if chart is None or analysis.run.size < 2:
        return None
    return replace(
        chart,
        title="Exposed allreduce over the run",
        layers=tuple(layer for layer in chart.layers if layer[0] == "allreduce"),
        changes=(),
        pauses=(),
        rates=None,
    )


def _reduced(analysis: Analysis) -> Table:
    """What a step reduces, and how fast."""
    found, entry = analysis.communication, analysis.entry("allreduce")
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
    note = "Bus bandwidth is 2(N−1)/N × bytes / exposed time: the network's own where nothing is hidden "
    note += "behind backward, and more than it can do where a part is."
    return Table(
        "What a step reduces",
        ("What", "In this run"),
        tuple(rows),
        words=frozenset({0, 1}),
        note=note if found is not None else "",
    )


def _bandwidth(analysis: Analysis) -> str:
    found = analysis.communication
    if found is None or found.bus_bandwidth is None:
        return "not known"
    return f"{significant(found.bus_bandwidth)} GB/s"


def _hidden(analysis: Analysis) -> str:
    found = analysis.communication
    if found is None or found.network_bandwidth is None:
        return "not known without the network's own bandwidth"
    return (
        f"{amount(found.hidden_ms, 'ms')} of {amount(found.whole_ms, 'ms')}, at "
        f"{significant(found.network_bandwidth)} GB/s"
    )


def _timeline_parts(seen: TimelineSeen | TimelineReading | None, shown: Shown) -> list[Any]:
    if not isinstance(seen, TimelineReading):
        return _of_timeline(seen, shown.analysis)
    return [
        dmc.Stack([reading_card(seen)], id=_TIMELINE),
        dcc.Interval(id=_TICK, interval=_EVERY_MS),
        dcc.Store(id=_OF_RUN, data=shown.run_id),
    ]


def _of_timeline(seen: TimelineSeen | None, analysis: Analysis) -> list[Any]:
    if seen is None:
        return []
    found = seen.tensors
    return [
        side_by_side(timeline_card(seen, analysis.run), fusion_card(found.fusion)),
        timeline_steps_card(found.steps),
        tensors_card(found),
        sizes_card(found.fusion, analysis.run.size),
        late_card(found),
    ]


def _howto(
    analysis: Analysis,
    timeline: TimelineSeen | TimelineReading | None,
    autotune: AutotuneSeen | None,
) -> Any:
    """The lines that record what is missing, and what each costs."""
    versions = analysis.run.fact("versions")
    if isinstance(versions, dict) and not versions.get("horovod", True):
        return None  # another library reduces
    folder = folder_of(analysis.run) or _ELSEWHERE
    parts: list[Any] = []
    if timeline is None:
        parts += _lines(
            "Every tensor's negotiation and operation",
            (
                f"HOROVOD_TIMELINE={_quoted(folder / 'timeline.json')}",
                "HOROVOD_TIMELINE_MARK_CYCLES=1",
            ),
            "Rank 0 writes it, some 600 bytes per tensor and step; 162 gradients made 96 kB a step, and "
            "steps of 27–36 ms took 39–43 ms, as its thread keeps a processor busy all the time. On "
            "GPUs, rank 0 waits for each of its operations besides. Record some hundred steps, not the "
            "whole training.",
        )
        parts += _lines(
            "Which rank was late, in every negotiation",
            ("HOROVOD_CACHE_CAPACITY=0",),
            "Together with the lines above. Without it ranks are told for the first negotiation of each "
            "tensor only; with it every step is negotiated in full, which costs most where tensors and "
            "ranks are many. The step logs tell who was late without it.",
        )
    if autotune is None:
        parts += _lines(
            "Settings that reduce faster",
            ("HOROVOD_AUTOTUNE=1", f"HOROVOD_AUTOTUNE_LOG={_quoted(folder / 'autotune.csv')}"),
            "Horovod tries some dozens of settings, at least fifty steps each, bad ones among them: "
            "steps are slower until it has settled, and their times say nothing about the job.",
        )
    if not parts:
        return None
    return dmc.Card(
        [
            dmc.Title("Record more of it", order=2, size="h4"),
            dmc.Text(
                "Horovod writes these files on rank 0 when its environment says so; beside the run's "
                "logs, this page finds them.",
                c="dimmed",
                size="sm",
            ),
            *parts,
        ],
        withBorder=True,
    )


def _quoted(path: Path) -> str:
    return shlex.quote(plain(str(path)))


def _lines(what: str, lines: tuple[str, ...], cost: str) -> list[Any]:
    return [
        dmc.Title(what, order=3, size="h6", mt="sm"),
        dmc.Code("\n".join(lines), block=True, my=6, tabIndex=0, **aria(label=what)),
        dmc.Text(cost, size="sm"),
    ]
