"""Show the list of runs, with search, sorting and selection."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import urlencode

import dash_mantine_components as dmc
from dash import ALL, MATCH, Dash, Input, Output, State, dcc, html, no_update

from stallscope.catalogue.where import parse_search
from stallscope.errors import StallscopeError
from stallscope.formatting.lists import counted
from stallscope.formatting.plain import plain
from stallscope.words import CAUSES

from ..addresses import RUNS, Address, compare_address, run_address, runs_address, scaling_address
from ..components.basics import add_script, aria, link, named_swatch
from ..components.notices import warnings_card
from ..components.runs_table import BLOCK, GRID, line_of, runs_table
from ..store import ANALYSED_SORTS, SORTS, ListedRun, RunStore
from .run_page import Page, View

_log = logging.getLogger(__name__)

SEARCH = "runs-search"
COUNT = "runs-count"
PENDING = "runs-pending"
_WAITING = "runs-waiting"
ADDRESSED = "runs-addressed"
EMPTY = "runs-empty"
SELECTED = "runs-selected"
_UNDECIDED = "runs-undecided"
_CLEAR = "runs-clear"
_LONGEST_SEARCH = 500
_FAILED_SEARCH = "The dashboard failed on this search; its terminal shows where. Change the search."
# Runs that error pages offer.
_MOST_OFFERED = 10
# Each run is analysed, and its id is in the address.
_MOST_COMPARED = 60
# Rows above the requested ones that are still analysed while the user scrolls down.
_ROWS_ABOVE = 2 * BLOCK
# Runs whose analyses a search waits for are analysed in turns; browsers send six requests at a time.
_RUNS_IN_TURN = 4


class RunsPage(Page):
    path: ClassVar[str] = RUNS

    def view(self, address: Address, store: RunStore) -> View:
        store.refresh()
        store.forget_failures()
        runs = store.listing().shown
        if not runs:
            return View("Runs", _no_runs())
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
            dcc.Store(id=_WAITING),
            html.Div(id=PENDING),
            dcc.Store(id=ADDRESSED),
            dcc.Store(id=_UNDECIDED, data=0),
        ]
        return View.of("Runs", parts, gap="sm")

    def add_callbacks(self, app: Dash, store: RunStore) -> None:
        @app.callback(
            Output(GRID, "getRowsResponse"),
            Output(COUNT, "children"),
            Output(SEARCH, "error"),
            Output(EMPTY, "children"),
            Output(_WAITING, "data"),
            Output(ADDRESSED, "data"),
            Output(_UNDECIDED, "data"),
            Input(GRID, "getRowsRequest"),
            State(SEARCH, "value"),
            prevent_initial_call=True,
        )
        def show_rows(request: Mapping[str, Any] | None, text: str | None) -> Any:
            if request is None:
                return (no_update,) * 7
            block = rows_of(store, request, text or "")
            return (
                {"rowData": block.rows, "rowCount": block.matching},
                _count(block),
                block.error,
                None if block.matching else _no_match(block),
                [_pending(run_id) for run_id in block.pending],
                runs_address() + block.query,
                block.undecided,
            )

        # One request per row: runs that are quick to analyse do not wait for others.
        @app.callback(Output(_pending(MATCH), "data"), Input(_pending(MATCH), "id"))
        def fill_in(pending: dict[str, Any]) -> dict[str, Any]:
            return analysed_row(store, str(pending["run"]))

        @app.callback(Output(SELECTED, "children"), Input(GRID, "selectedRows"))
        def offer_comparison(rows: Sequence[Mapping[str, Any]] | None) -> Any:
            return comparison_links(rows or [])

        _add_client_callbacks(app)


@dataclass(frozen=True)
class RowBlock:
    """The response to a request of the table for rows."""

    rows: list[dict[str, Any]]
    #: The number of runs that match the search, and of all runs.
    matching: int
    total: int
    #: Ids of runs to analyse: those among the rows, and the next ones that search and order wait for.
    pending: list[str]
    #: The number of runs whose analyses may change which runs match, or their order.
    undecided: int
    #: The number of runs that the search cannot judge, because nothing analyses them here.
    not_analysed: int
    #: The error in the search; None if it is valid.
    error: str | None
    #: The address's query for the same list.
    query: str


def rows_of(store: RunStore, request: Mapping[str, Any], text: str) -> RowBlock:
    """Return the rows that the table requests: a part of the runs that match the search."""
    listing = store.listing()
    # Half of a character, as browsers send it after a cut, cannot be encoded.
    text = text[:_LONGEST_SEARCH].strip().encode(errors="replace").decode()
    sort, reverse = _order(request)
    matching: Sequence[ListedRun] = ()
    undecided: Sequence[ListedRun] = ()
    not_analysed = 0
    message = None
    try:
        search = parse_search(text)
        matching = listing.matching(search, sort, reverse=reverse)
        undecided, not_analysed = listing.undecided(search), listing.not_analysed(search)
    except StallscopeError as error:
        message = str(error)
    except Exception:
        _log.exception("the search for %r failed", text)
        message = _FAILED_SEARCH
    first = request.get("startRow")
    start = max(first, 0) if isinstance(first, int) else 0
    if sort in ANALYSED_SORTS:
        undecided = [*undecided, *(listed for listed in matching if listed.is_pending)]
    # Rows above may still be waiting for their analyses.
    rows_and_above = matching[max(start - _ROWS_ABOVE, 0) : start + BLOCK]
    analysed_next = [*rows_and_above, *undecided[:_RUNS_IN_TURN]]
    return RowBlock(
        rows=[line_of(listing, listed) for listed in matching[start : start + BLOCK]],
        matching=len(matching),
        total=len(listing.shown),
        pending=list(dict.fromkeys(listed.id for listed in analysed_next if listed.is_pending)),
        undecided=len(undecided),
        not_analysed=not_analysed,
        error=message,
        query=_query(text, sort, reverse),
    )


def analysed_row(store: RunStore, run_id: str) -> dict[str, Any]:
    """Analyse a run and return its row, or its row with the error."""
    try:
        store.verdict(run_id)
        baseline_id = store.baseline_of(run_id)
        if baseline_id is not None:
            with suppress(StallscopeError):
                store.verdict(baseline_id)
        listing = store.listing()
        return line_of(listing, listing[run_id])
    except StallscopeError as error:
        message = str(error)
    except Exception:
        _log.exception("the analysis of run %r failed", run_id)
        message = "could not be analysed; the reason is in the terminal"
    store.note_failure(run_id, message)
    listing = store.listing()
    return {**line_of(listing, listing[run_id]), "verdict": message} if run_id in listing else {}


def comparison_links(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return links to the comparisons of the selected runs, or a hint to select some."""
    older_first = sorted(rows, key=lambda row: str(row.get("startedAt") or ""))
    ids = [str(row["id"]) for row in older_first]
    if len(ids) < 2:
        return dmc.Text("Select runs to compare", size="sm", c="dimmed")
    latest = ids[-_MOST_COMPARED:]
    text = f"{len(ids):,} selected"
    if len(latest) < len(ids):
        text += f", the latest {len(latest)} are compared"
    links = [
        link(title, address, underline="never", className="button")
        for title, address in (
            ("Compare", compare_address(*latest)),
            ("Scaling", scaling_address(latest)),
        )
    ]
    return dmc.Group([dmc.Text(text, size="sm", c="dimmed"), *links], gap="sm")


def list_of_runs(store: RunStore) -> Any:
    """Return links to a few runs, and to the list of all runs."""
    listing = store.listing()
    links = [
        link(listed.entry.name, run_address(listed.id, listing.baseline_of(listed)))
        for listed in listing.shown[:_MOST_OFFERED]
    ]
    if len(listing.shown) > _MOST_OFFERED:
        links.append(link(f"All {counted(len(listing.shown), 'run')}", runs_address(), fw=600))
    return dmc.Stack(links, gap=6, align="flex-start") if links else _collecting_hint()


def _add_client_callbacks(app: Dash) -> None:
    """Add the callbacks that run in the browser: ``assets/runs.js``."""
    # With an output, Dash also calls the function when the page appears.
    add_script(app, "runs.setUp", Output(EMPTY, "className"), Input(GRID, "id"))
    add_script(app, "runs.keepInAddress", Input(ADDRESSED, "data"))
    # Placing a hundred of them takes longer than painting the rows that wait for them.
    add_script(app, "runs.awaitAnalyses", Output(PENDING, "children"), Input(_WAITING, "data"))
    add_script(
        app,
        "runs.fillIn",
        Input(_pending(ALL), "data"),
        State(_UNDECIDED, "data", allow_optional=True),
    )
    add_script(app, "runs.search", Input(SEARCH, "value"), at_start=False)
    add_script(
        app, "runs.clear", Output(SEARCH, "value"), Input(_CLEAR, "n_clicks"), at_start=False
    )


def _pending(run_id: Any) -> dict[str, Any]:
    """Return the id of the component that waits for the analysis of a run."""
    return {"type": "run-line", "run": run_id}


def _order(request: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the column to sort by, and whether descending; no column if it is unknown."""
    orders = request.get("sortModel")
    first = orders[0] if isinstance(orders, list) and orders else None
    if not isinstance(first, dict):
        return "", False
    sort = str(first.get("colId") or "")
    return (sort, first.get("sort") == "desc") if sort in SORTS else ("", False)


def _query(text: str, sort: str, reverse: bool) -> str:
    query = {"search": text, "sort": sort, "order": "desc" if sort and reverse else ""}
    encoded = urlencode({name: value for name, value in query.items() if value})
    return f"?{encoded}" if encoded else ""


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
                placeholder="Search: resnet gpu-07, or verdict=input age<7d",
                flex=1,
                miw=220,
                **aria(label="Search runs"),
            ),
            html.Div(id=SELECTED, **aria(live="polite")),
        ],
        gap="md",
        align="flex-start",
        className="runs-tools",
    )


def _count(block: RowBlock) -> str:
    total = counted(block.total, "run")
    text = total if block.matching == block.total else f"{block.matching:,} of {total}"
    if block.undecided:
        text += f", {block.undecided:,} still to analyse"
    if block.not_analysed:
        text += f", {block.not_analysed:,} not analysed"
    return text


def _no_match(block: RowBlock) -> Any:
    """Say that no run matches, or why that is not known."""
    title, reason = "No run matches this search.", block.error
    if block.error is not None:
        title = "This search was not done."
    elif block.undecided:
        title = "No run matches this search so far."
        runs = counted(block.undecided, "run")
        reason = f"Still to analyse: {runs}. Those that match appear here."
    elif block.not_analysed:
        title = "No analysed run matches this search."
        reason = f"Not analysed: {counted(block.not_analysed, 'run')}."
    return dmc.Stack(
        [
            dmc.Text(title, fw=600),
            None if reason is None else dmc.Text(plain(reason), size="sm"),
            dmc.Text(
                "The search finds words in names, models, hosts, verdicts and sources; all words must "
                "match. Conditions are those of stallscope runs: ranks>=8, verdict=input, input>20%, "
                "age<7d, host~gpu-07.",
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


def _no_runs() -> Any:
    heading = dmc.Title("Runs", order=1, size="h2", tabIndex=-1)
    return dmc.Stack([heading, dmc.Card(_collecting_hint(), withBorder=True)])


def _collecting_hint() -> Any:
    return dmc.Text(
        [
            "There are no runs here yet. Collect runs into this store with ",
            dmc.Code("stallscope collect SOURCE… --to DIR"),
            " and reload this page, or look at the sample runs with ",
            dmc.Code("stallscope demo"),
            ".",
        ],
        maw=680,
    )
