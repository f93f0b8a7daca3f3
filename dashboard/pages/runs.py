"""The list of runs."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import urlencode

import dash_mantine_components as dmc
from dash import ALL, MATCH, ClientsideFunction, Dash, Input, Output, State, dcc, html, no_update

from stallscope.analysis.ledger.ledger import CAUSES
from stallscope.catalogue import Filter, parse_search
from stallscope.errors import StallscopeError, UsageError
from stallscope.formatting.lists import counted

from ..addresses import RUNS, Address, run_address, runs_address, scaling_address
from ..components.aria import aria
from ..components.notices import warnings_card
from ..components.runs_table import BLOCK, GRID, line_of, runs_table
from ..components.swatch import named_swatch
from ..store import SORTS, RunStore
from .base import Page, View
from .compare import compare_address

_log = logging.getLogger(__name__)

SEARCH = "runs-search"
COUNT = "runs-count"
PENDING = "runs-pending"
ADDRESSED = "runs-addressed"
EMPTY = "runs-empty"
CHOSEN = "runs-chosen"
_CLEAR = "runs-clear"
_LONGEST_SEARCH = 500
#: Runs that a page which has none of its own offers.
_OFFERED = 10
# Each of them is analysed, and all of them are in the address.
_MOST_COMPARED = 60
# Lines further up that are still filled in while a user scrolls on.
_PATIENT = 2 * BLOCK


class RunsPage(Page):
    path: ClassVar[str] = RUNS

    def view(self, address: Address, store: RunStore) -> View:
        store.refresh()
        runs = store.listing().shown
        if not runs:
            return View("Runs", _nothing_yet())
        query = address.query
        reverse = query.get("order") == "desc"
        parts = [
            _head(len(runs)),
            _tools(query.get("search", "")[:_LONGEST_SEARCH]),
            warnings_card(store.listing().problems),
            html.Div(
                [html.Div(id=EMPTY), runs_table(len(runs), query.get("sort", ""), reverse=reverse)],
                role="region",
                **aria(label="List of runs"),
            ),
            html.Div(id=PENDING),
            dcc.Store(id=ADDRESSED),
        ]
        return View("Runs", dmc.Stack([part for part in parts if part is not None], gap="sm"))

    def add_callbacks(self, app: Dash, store: RunStore) -> None:
        @app.callback(
            Output(GRID, "getRowsResponse"),
            Output(COUNT, "children"),
            Output(SEARCH, "error"),
            Output(EMPTY, "children"),
            Output(PENDING, "children"),
            Output(ADDRESSED, "data"),
            Input(GRID, "getRowsRequest"),
            State(SEARCH, "value"),
            prevent_initial_call=True,
        )
        def show_lines(request: Mapping[str, Any] | None, text: str | None) -> Any:
            if request is None:
                return (no_update,) * 6
            lines = lines_of(store, request, text or "")
            return (
                {"rowData": lines.lines, "rowCount": lines.found},
                _counted(lines),
                lines.mistake,
                None if lines.found else _nothing_found(),
                [dcc.Store(id=_pending(run_id)) for run_id in lines.pending],
                runs_address() + lines.query,
            )

        # One request per line: what is quick to analyse is there at once.
        @app.callback(Output(_pending(MATCH), "data"), Input(_pending(MATCH), "id"))
        def fill_in(pending: dict[str, Any]) -> dict[str, Any]:
            return analysed_line(store, str(pending["run"]))

        @app.callback(Output(CHOSEN, "children"), Input(GRID, "selectedRows"))
        def offer_comparison(rows: Sequence[Mapping[str, Any]] | None) -> Any:
            return comparison_links(rows or [])

        _add_browsers_part(app)


@dataclass(frozen=True)
class Lines:
    """What the table gets when it asks for lines."""

    lines: list[dict[str, Any]]
    #: How many runs the search finds, and of how many.
    found: int
    of_all: int
    #: Runs among the lines that are still to be analysed.
    pending: list[str]
    #: What is wrong with the search; None where nothing is.
    mistake: str | None
    #: The address's query that brings the same list.
    query: str


def lines_of(store: RunStore, request: Mapping[str, Any], text: str) -> Lines:
    """The lines that the table asks for: a part of the runs that the search finds."""
    listing = store.listing()
    text = text[:_LONGEST_SEARCH].strip()
    sort, reverse = _order(request)
    mistake = None
    try:
        search = parse_search(text)
    except UsageError as error:
        search, mistake = Filter(), str(error)
    found = [] if mistake else listing.found(search, sort, reverse=reverse)
    start = max(int(request.get("startRow") or 0), 0)
    part = found[start : start + BLOCK]
    return Lines(
        lines=[line_of(listing, one) for one in part],
        found=len(found),
        of_all=len(listing.shown),
        # Those before them may still be waiting.
        pending=[
            one.id
            for one in found[max(start - _PATIENT, 0) : start + BLOCK]
            if one.verdict is None and one.shelf.in_memory
        ],
        mistake=mistake,
        query=_query(text, sort, reverse),
    )


def analysed_line(store: RunStore, run_id: str) -> dict[str, Any]:
    """The line of a run once it has been analysed, or with why it cannot be."""
    try:
        store.summary(run_id)
        baseline_id = store.baseline_of(run_id)
        if baseline_id is not None:
            with suppress(StallscopeError):
                store.summary(baseline_id)
        listing = store.listing()
        return line_of(listing, listing[run_id])
    except StallscopeError as error:
        said = str(error)
    except Exception:
        _log.exception("the analysis of run %r failed", run_id)
        said = "could not be analysed; the reason is in the terminal"
    listing = store.listing()
    return {**line_of(listing, listing[run_id]), "verdict": said} if run_id in listing else {}


def comparison_links(rows: Sequence[Mapping[str, Any]]) -> Any:
    """The ways to the comparisons of the chosen runs; or how to choose some."""
    older_first = sorted(rows, key=lambda row: str(row.get("began") or ""))
    ids = [str(row["id"]) for row in older_first]
    if len(ids) < 2:
        return dmc.Text("Select runs to compare", size="sm", c="dimmed")
    latest = ids[-_MOST_COMPARED:]
    said = f"{len(ids):,} selected"
    if len(latest) < len(ids):
        said += f", the latest {len(latest)} count"
    links = [
        _button("Compare", compare_address(*latest)),
        _button("Scaling", scaling_address(latest)),
    ]
    return dmc.Group([dmc.Text(said, size="sm", c="dimmed"), *links], gap="sm")


def _button(words: str, address: str) -> Any:
    return dmc.Anchor(words, href=address, refresh=False, underline="never", className="button")


def list_of_runs(store: RunStore) -> Any:
    """A few runs to go on from, and the way to all of them."""
    listing = store.listing()
    links = [
        dmc.Anchor(
            one.entry.name, href=run_address(one.id, listing.baseline_of(one)), refresh=False
        )
        for one in listing.shown[:_OFFERED]
    ]
    if len(listing.shown) > _OFFERED:
        all_runs = f"All {counted(len(listing.shown), 'run')}"
        links.append(dmc.Anchor(all_runs, href=runs_address(), refresh=False, fw=600))
    return dmc.Stack(links, gap=6, align="flex-start") if links else _how_to_get_some()


def _add_browsers_part(app: Dash) -> None:
    """What the browser does by itself: ``assets/runs.js``."""
    parts: tuple[tuple[str, tuple[Any, ...]], ...] = (
        # Without an output it would not be called when the page comes.
        ("begin", (Output(EMPTY, "className"), Input(GRID, "id"))),
        ("keepInAddress", (Input(ADDRESSED, "data"),)),
        ("fillIn", (Input(_pending(ALL), "data"),)),
    )
    for name, wires in parts:
        app.clientside_callback(ClientsideFunction("runs", name), *wires)  # type: ignore[no-untyped-call]
    app.clientside_callback(  # type: ignore[no-untyped-call]
        ClientsideFunction("runs", "search"), Input(SEARCH, "value"), prevent_initial_call=True
    )
    app.clientside_callback(  # type: ignore[no-untyped-call]
        ClientsideFunction("runs", "clear"),
        Output(SEARCH, "value"),
        Input(_CLEAR, "n_clicks"),
        prevent_initial_call=True,
    )


def _pending(run_id: Any) -> dict[str, Any]:
    """The id of what waits for the analysis of a run."""
    return {"type": "run-line", "run": run_id}


def _order(request: Mapping[str, Any]) -> tuple[str, bool]:
    """What the list is sorted by and whether from the largest; nothing where it is no column."""
    first: Mapping[str, Any] = next(iter(request.get("sortModel") or []), {})
    sort = str(first.get("colId") or "")
    return (sort, first.get("sort") == "desc") if sort in SORTS else ("", False)


def _query(text: str, sort: str, reverse: bool) -> str:
    query = {"search": text, "sort": sort, "order": "desc" if sort and reverse else ""}
    kept = urlencode({name: value for name, value in query.items() if value})
    return f"?{kept}" if kept else ""


def _head(number: int) -> Any:
    return dmc.Group(
        [
            dmc.Title("Runs", order=1, size="h2", tabIndex=-1),
            dmc.Text(
                counted(number, "run"), id=COUNT, c="dimmed", size="sm", **aria(live="polite")
            ),
            dmc.Group([named_swatch(name) for name in CAUSES], gap="md", className="legend"),
        ],
        justify="flex-start",
        align="baseline",
        gap="md",
        className="runs-head",
    )


def _tools(search: str) -> Any:
    return dmc.Group(
        [
            dmc.TextInput(
                id=SEARCH,
                value=search,
                debounce=250,
                placeholder="Search: resnet gpu-07 slow, or ranks>=8 verdict=input age<7d",
                flex=1,
                miw=220,
                **aria(label="Search runs"),
            ),
            html.Div(id=CHOSEN, **aria(live="polite")),
        ],
        gap="md",
        align="flex-start",
        className="runs-tools",
    )


def _counted(lines: Lines) -> str:
    if lines.found == lines.of_all:
        return counted(lines.of_all, "run")
    return f"{lines.found:,} of {counted(lines.of_all, 'run')}"


def _nothing_found() -> Any:
    return dmc.Stack(
        [
            dmc.Text("No run matches this search.", fw=600),
            dmc.Text(
                "Words are looked for in names, models, hosts, verdicts and sources; all of them must "
                "be there. Conditions are as stallscope runs takes them: ranks>=8, verdict=input, "
                "input>20%, age<7d, host~gpu-07.",
                size="sm",
                c="dimmed",
                maw=620,
                ta="center",
            ),
            dmc.Button("Show all runs", id=_CLEAR, variant="default"),
        ],
        align="center",
        gap="xs",
        py="xl",
    )


def _nothing_yet() -> Any:
    return dmc.Stack(
        [
            dmc.Title("Runs", order=1, size="h2", tabIndex=-1),
            dmc.Card(_how_to_get_some(), withBorder=True),
        ]
    )


def _how_to_get_some() -> Any:
    return dmc.Text(
        [
            "There are no runs here yet. Collect some into this store with ",
            dmc.Code("stallscope collect SOURCE… --to DIR"),
            " and reload this page, or look at the bundled ones with ",
            dmc.Code("stallscope demo"),
            ".",
        ],
        maw=680,
    )
