"""Show the steps of all ranks as lanes, from the whole run down to one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import dash_mantine_components as dmc
from dash import Dash, Input, Output, dcc, html

from stallscope.analysis import Analysis
from stallscope.analysis.ledger.ledger import GAPS
from stallscope.analysis.stragglers.lateness import Straggler
from stallscope.analysis.views.lanes import Lanes
from stallscope.analysis.views.one_step import late_steps
from stallscope.charts.step_time import machine_chart
from stallscope.formatting.lists import capitalised, counted, joined, listed
from stallscope.formatting.numbers import amount, finite, percent
from stallscope.formatting.plain import plain
from stallscope.text.job_words import NOT_KNOWN, TITLE
from stallscope.text.straggler_words import who

from ..components.basics import add_script, aria, labelled_swatch, named_swatch, sentence_card
from ..components.chart_card import chart_card, chart_head, heat_scale
from ..components.data_tables import data_card
from ..components.notices import warnings_card
from ..store import RunStore
from ..store.cache import lanes_of
from ..timeline import add_timeline_route, gauges_of, head, marks, verdicts
from ..timeline.gauges import MOST_MARKS, EventMark
from .run_page import RunPage, RunRequest

_MOST_JUMPS = 6
# Ranks that are marked in a larger share of the steps are named: their lanes are full of marks.
_OFTEN = 0.1
# The resolution of timestamps: no clock offset is known more exactly.
_RESOLUTION_MS = 1e-3
_COLUMNS = ("When", "What happened", "Of", "Log")
# How clocks were aligned, by method.
_ALIGNED = {
    "completions": "on the ends of their allreduces",
    "wall clocks": "on their wall clocks, as a slow link makes allreduces end late",
    "every step": "in every step, assuming that all ranks end it at the same moment",
}

_PAUSES = "A mark at the lower edge of a lane: garbage collection, compilation, or a save."

_HEAD = "timeline-head"
_READOUT = "timeline-readout"
_DRAWN = "timeline-drawn"
KEYS: tuple[tuple[str, str], ...] = (
    ("← →", "earlier and later; with Shift step by step"),
    ("+ −", "zoom in and out in time; also the wheel"),
    ("↑ ↓", "the lane above and below"),
    ("] [", "zoom in and out in ranks; also Alt and the wheel"),
    ("Page ↑ ↓", "scroll the lanes; also Shift and the wheel"),
    ("Home", "the whole run on all ranks"),
    ("End", "the end of the run"),
    ("N P", "the next and the previous late step"),
    ("E", "the next mark of other logs; with Shift the previous one"),
    ("M", "the next machine metric; with Shift the previous one"),
    ("S", "stages or lateness"),
    ("Enter", "open the step; where a cell holds several, zoom in"),
    ("?", "this list"),
)
#: A key of timelines with several generations.
GENERATION_KEY = ("G", "the next generation; with Shift the previous one")
_BUTTONS = (
    ("in", "+", "Zoom in"),
    ("out", "−", "Zoom out"),
    ("all", "Whole run", "The whole run on all ranks"),
    ("previous-late", "‹ Late step", "Previous late step"),
    ("next-late", "Late step ›", "Next late step"),
)
_EVENT_BUTTONS = (
    ("previous-event", "‹ Other logs", "Previous mark of other logs"),
    ("next-event", "Other logs ›", "Next mark of other logs"),
)


class TimelinePage(RunPage):
    path: ClassVar[str] = "/run/<run_id>/timeline"
    tab: ClassVar[str] = "Timeline"

    def parts(self, request: RunRequest, store: RunStore) -> list[Any]:
        analysis = request.analysis
        lanes = lanes_of(analysis, request.query.get("by"))
        events = marks(analysis.run, lanes)
        if lanes is None:
            return [
                sentence_card("There are no stages to draw", analysis.why_no_stages),
                chart_card("machines", machine_chart(analysis)),
                events_card(events),
            ]
        gauges = gauges_of(analysis, lanes)
        data = head(
            analysis, lanes, request.run_id, request.baseline_id, request.query, events, gauges
        )
        return [
            timeline_card(
                data,
                "Ranks over time",
                _sentence(analysis, lanes),
                amount(lanes.late_from, "ms"),
                [*_rank_jumps(analysis, lanes), *_change_jumps(data)],
            ),
            events_card(events),
            warnings_card(_limits(analysis, lanes)),
        ]

    def add_callbacks(self, app: Dash, store: RunStore) -> None:
        add_timeline_callbacks(app)
        add_timeline_route(app, store)


def _sentence(analysis: Analysis, lanes: Lanes) -> str:
    ranks = counted(len(lanes.ranks), "rank")
    if len(lanes.generations) > 1:
        sizes = joined([f"{generation.size:,}" for generation in lanes.generations])
        ranks = f"{len(lanes.generations):,} generations of {sizes} ranks"
    return (
        f"{ranks}, {counted(len(lanes), 'step')} in {amount(lanes.span / 1e6, 'ms')}. "
        f"{_late_sentence(analysis, lanes)} {_clock_sentence(lanes)}"
    )


def _late_sentence(analysis: Analysis, lanes: Lanes) -> str:
    """Count unusual steps; lateness that is usual, which lanes show all along, comes first."""
    late = len(late_steps(lanes.generations))
    count = f"{counted(late, 'step')} {'is' if late == 1 else 'are'}" if late else "no step is"
    unusual = f"{count} unusually late."
    usual = _usual_lateness(analysis, lanes)
    return capitalised(f"{'; '.join(usual)}; beyond that, {unusual}" if usual else unusual)


def _usual_lateness(analysis: Analysis, lanes: Lanes) -> list[str]:
    """Name the ranks that are late all the time, and those that are marked in many steps."""
    persistent = {
        who(straggler): straggler
        for _, verdict in verdicts(analysis, lanes)
        for straggler in verdict.stragglers
        if straggler.pattern == "persistent"
    }
    sentences = []
    if persistent:
        size = sum(len(straggler.hosts or straggler.ranks) for straggler in persistent.values())
        be = "is" if size == 1 else "are"
        sentences.append(f"{joined(list(persistent))} {be} late all the time")
    named = {rank for straggler in persistent.values() for rank in straggler.ranks}
    marked = lanes.usually_late
    # Ranks that take turns by chance are not named.
    least = max(_OFTEN, marked.any_rank / 2)
    often = {
        rank: share
        for rank, share in sorted(marked.by_rank.items())
        if share >= least and rank not in named
    }
    if often:
        low, high = (percent(end(often.values())) for end in (min, max))
        shares = low if low == high else f"{low} to {high}"
        be = "is" if len(often) == 1 else "are"
        sentences.append(f"{listed('rank', list(often))} {be} late in {shares} of steps")
    elif not named and marked.any_rank >= _OFTEN:
        sentences.append(
            f"a rank is late in {percent(marked.any_rank)} of steps, not always the same"
        )
    return sentences


def _clock_sentence(lanes: Lanes) -> str:
    """Describe the accuracy of the lanes' alignment."""
    methods = {
        generation.clocks.method
        for generation in lanes.generations
        if generation.clocks is not None
    }
    if methods <= {"one clock"}:
        return "All ranks share one clock, so lanes are aligned exactly."
    known = [
        finite(ms) for generation in lanes.generations for ms in generation.clock_uncertainty_ms
    ]
    most = max((value for value in known if value is not None), default=0.0)
    how = next(words for method, words in _ALIGNED.items() if method in methods)
    shift = (
        f"up to {amount(most, 'ms')}"
        if most >= _RESOLUTION_MS
        else f"less than {amount(_RESOLUTION_MS, 'ms')}"
    )
    return (
        f"The hosts' clocks were aligned {how}: lanes of different hosts may be shifted by {shift}."
    )


def _rank_jumps(analysis: Analysis, lanes: Lanes) -> list[Any]:
    """Return buttons that jump to slow ranks, or to the first rank of a slow host."""
    labels: dict[int, str] = {}
    for at, verdict in verdicts(analysis, lanes):
        where = "" if verdict is analysis else f" in generation {lanes.generations[at].number}"
        for rank, name in _slow(verdict.stragglers).items():
            row = lanes.row_of(rank, at)
            if row is not None:
                labels.setdefault(row, name + where)
    return [jump(label, row=str(row)) for row, label in list(labels.items())[:_MOST_JUMPS]]


def _slow(stragglers: Sequence[Straggler]) -> dict[int, str]:
    """Name slow ranks and hosts by rank; a host by its first one."""
    names: dict[int, str] = {}
    for straggler in stragglers:
        if straggler.hosts and straggler.ranks:
            host = listed("host", [plain(straggler.hosts[0])])
            names.setdefault(straggler.ranks[0], f"Slow {host}")
        else:
            names |= {rank: f"Slow rank {rank}" for rank in straggler.ranks}
    return names


def _change_jumps(data: dict[str, Any]) -> list[Any]:
    return [
        jump(change["words"], time=str(change["at"])) for change in data["changes"][:_MOST_JUMPS]
    ]


def _limits(analysis: Analysis, lanes: Lanes) -> list[str]:
    shown = {generation.number for generation in lanes.generations}
    limits = [
        f"generation {generation.number} of {counted(generation.size, 'rank')} has no lanes: its "
        "stages were not measured"
        for generation in analysis.generations
        if generation.number not in shown
    ]
    missing = analysis.run.missing_ranks
    if missing:
        verb = "has" if len(missing) == 1 else "have"
        limits.append(f"{listed('rank', missing)} {verb} no log and no lane")
    unknown = {
        rank
        for generation in lanes.generations
        for rank, ms in zip(generation.ledger.ranks, generation.clock_uncertainty_ms, strict=True)
        if finite(ms) is None
    }
    if unknown:
        limits.append(
            f"the clock of {listed('rank', sorted(unknown))} could not be compared with the others'"
        )
    limits += [
        f"the clock of {clock} was set by {amount(abs(ms), 'ms')} at step {step:,}"
        for generation in lanes.generations
        if generation.clocks is not None
        for clock, step, ms in generation.clocks.jumps
    ]
    if analysis.coverage.unused:
        limits.append(
            f"{counted(analysis.coverage.unused, 'step')} without timestamps of most ranks are blank"
        )
    if analysis.coverage.sampled_out:
        limits.append(
            f"{counted(analysis.coverage.sampled_out, 'step')} are blank: they were recorded as sums, "
            "not in full"
        )
    return limits


def events_card(marks: Sequence[EventMark]) -> Any:
    """Make a card with all events; None without any."""
    if not marks:
        return None
    placed = sum(mark.at is not None for mark in marks)
    unknown = sum(mark.when == NOT_KNOWN for mark in marks)
    note = f"{placed:,} of {len(marks):,} lie on the axis: between the first step and the last one."
    if unknown:
        note += (
            f" Of {unknown:,} the time is not known: their logs record none, or a local time that "
            "fits into more than one zone."
        )
    if len(marks) > MOST_MARKS:
        note += f" The first {MOST_MARKS:,} are listed."
    rows = [
        (mark.when, mark.words, mark.who or "–", plain(mark.event.where))
        for mark in marks[:MOST_MARKS]
    ]
    return data_card(TITLE, note, _COLUMNS, rows, text_columns=len(_COLUMNS))


# -- The timeline as a card -----------------------------------------------------------------------
#
# Its buttons, the element that the script draws in, and its description.


def timeline_card(
    head: dict[str, Any], title: str, sentence: str, late: str, jumps: Sequence[Any]
) -> Any:
    """Make the card; it marks cells from ``late`` (an amount) on, ``jumps`` lead to ranks and steps."""
    return dmc.Card(
        [
            chart_head(title, "timeline"),
            dmc.Text(sentence, c="dimmed", size="sm"),
            dmc.Group([_tools(bool(head["events"])), *jumps], gap="xs", mt="xs"),
            _legend(head, late),
            _arrangements(head["arrangements"]),
            _gauges(head["gauges"]),
            html.Div(
                id="timeline",
                className="timeline",
                tabIndex=0,
                role="application",
                **aria(
                    label=f"{title}. {sentence} Question mark lists the keys.", details=_READOUT
                ),
            ),
            html.P(id=_READOUT, className="timeline-readout", role="status", **aria(live="polite")),
            _keys((*KEYS, GENERATION_KEY) if head["generations"] else KEYS),
            dcc.Store(id=_HEAD, data=head),
            dcc.Store(id=_DRAWN),
        ],
        withBorder=True,
        id="timeline-card",
        className="chart-card",
    )


def jump(words: str, **target: str) -> Any:
    """Make a button that leads to a row (``row="3"``) or a time (``time="1.5"``, in seconds)."""
    return html.Button(words, className="timeline-button timeline-jump", **_data(**target))


def add_timeline_callbacks(app: Dash) -> None:
    """Let the script draw when the card arrives."""
    add_script(
        app,
        "stallscopeTimeline.show",
        # Without an output Dash would not call it when a page arrives.
        Output(_DRAWN, "data"),
        Input(_HEAD, "data"),
    )


def _tools(with_events: bool) -> Any:
    shown = (*_BUTTONS, *(_EVENT_BUTTONS if with_events else ()))
    buttons = [_button(words, name, label) for name, words, label in shown]
    modes = [
        _button("Stages", "stages", "Colour by stage", aria(pressed="true")),
        _button("Lateness", "lateness", "Colour by lateness", aria(pressed="false")),
    ]
    return html.Div(
        [
            html.Div(modes, className="timeline-modes", role="group", **aria(label="Colours")),
            *buttons,
        ],
        className="timeline-tools",
        role="toolbar",
        **aria(label="Timeline", controls="timeline"),
    )


def _button(words: str, name: str, label: str, more: dict[str, Any] | None = None) -> Any:
    data = {**_data(do=name), **(more or {})}
    same = label.startswith(words)
    return html.Button(
        words,
        className="timeline-button",
        title=label,
        **data,
        **({} if same else aria(label=label)),
    )


def _legend(head: dict[str, Any], late: str) -> Any:
    """Explain the colours that the run has; the script shows the parts that are in use."""
    colours = {
        "stages": [named_swatch(name) for name in head["legend"] if name not in GAPS],
        "lateness": [heat_scale("not later", f"{late} later or more")],
    }
    later = f"ater than the reference rank by {late} or more"
    if head["anyLate"]:
        colours["late"] = [labelled_swatch("imbalance", f"L{later}")]
    if len(head["ranks"]) > 1:
        colours["last"] = [labelled_swatch("imbalance", f"Last rank, or l{later}")]
    gaps = [named_swatch(name) for name in head["legend"] if name in GAPS]
    return html.Div(
        [
            *(
                html.Div(
                    entries,
                    className="timeline-legend",
                    hidden=part != "stages",
                    **_data(legend=part),
                )
                for part, entries in colours.items()
            ),
            html.Div(gaps, className="timeline-legend") if gaps else None,
            html.Div(_PAUSES, className="timeline-legend") if head["pauses"] else None,
        ],
        className="legend timeline-legends",
    )


def _gauges(gauges: Sequence[dict[str, Any]]) -> Any:
    """Let the user choose a machine metric below the lanes; None if none was measured."""
    if not gauges:
        return None
    options = [html.Option(gauge["label"], value=gauge["key"]) for gauge in gauges]
    return html.Label(
        [
            "Below the lanes: ",
            html.Select(options, className="timeline-button", **_data(choose="gauge")),
            " (the mean, and the range of single values; blank where nothing was measured)",
        ],
        className="timeline-gauges",
    )


def _arrangements(dimensions: Sequence[str]) -> Any:
    """Let the user arrange the ranks by a dimension of the job's mesh; None without one."""
    if not dimensions:
        return None
    options = [
        html.Option("host", value=""),
        *(html.Option(plain(name), value=name) for name in dimensions),
    ]
    return html.Label(
        [
            "Ranks by: ",
            html.Select(options, className="timeline-button", **_data(choose="arrangement")),
        ],
        className="timeline-gauges",
    )


def _data(**values: str) -> dict[str, Any]:
    return {f"data-{name}": value for name, value in values.items()}


def _keys(keys: Sequence[tuple[str, str]]) -> Any:
    rows = [html.Tr([html.Th(html.Kbd(key), scope="row"), html.Td(what)]) for key, what in keys]
    return html.Details(
        [html.Summary("Keys"), html.Table(html.Tbody(rows))],
        id="timeline-keys",
        className="timeline-keys",
    )
