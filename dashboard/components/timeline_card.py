"""The timeline as a card: its buttons, the element that the script draws in, and its description."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import Dash, Input, Output, dcc, html

from stallscope.analysis.ledger.ledger import GAPS

from .basics import add_script, aria, labelled_swatch, named_swatch
from .chart_card import chart_head
from .legend import heat_scale

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
        ],
        className="legend timeline-legends",
    )


def _gauges(gauges: Sequence[dict[str, Any]]) -> Any:
    """Let the user choose a machine metric below the lanes; None if none was measured."""
    if not gauges:
        return None
    options = [html.Option(one["label"], value=one["key"]) for one in gauges]
    return html.Label(
        [
            "Below the lanes: ",
            html.Select(options, className="timeline-button", **_data(choose="gauge")),
            " (the mean, and the range of single values; blank where nothing was measured)",
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
