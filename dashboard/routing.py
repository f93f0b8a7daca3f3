"""From an address to the page that it means."""

from __future__ import annotations

import logging

import dash_mantine_components as dmc
from dash import Dash, Input, Output

from stallscope.errors import NotFoundError, StallscopeError

from .addresses import ADDRESS, read_address
from .components.notices import notice
from .layout import ARRIVAL, PAGE
from .pages import PAGES, View
from .pages.runs import list_of_runs
from .store import RunStore

_log = logging.getLogger(__name__)


def add_routing(app: Dash, store: RunStore) -> None:
    """Let an app show the page that the address names.

    Dash has a registry of pages of its own, but it is one per process: a second app would show the
    first one's pages, with the first one's runs.
    """

    @app.callback(
        Output(PAGE, "children"),
        Output(ARRIVAL, "data"),
        Input(ADDRESS, "pathname"),
        Input(ADDRESS, "search"),
    )
    def show(pathname: str | None, search: str | None) -> tuple[object, dict[str, str]]:
        view = view_at(store, pathname or "/", search or "")
        return view.content, {"title": view.title, "place": pathname or "/"}


def view_at(store: RunStore, pathname: str, search: str) -> View:
    """Return the page at an address, or a page with the error."""
    try:
        for page in PAGES:
            address = read_address(page.path, pathname, search)
            if address is not None:
                return page.view(address, store)
    except NotFoundError:
        return _lost(store, "No such run", "This address names a run that is not open here.")
    except StallscopeError as error:
        return _lost(store, "This page cannot be shown", str(error))
    except Exception:
        _log.exception("the page at %r failed", pathname)
        return _lost(
            store,
            "This page cannot be shown",
            "Stallscope failed while making it; the terminal that it runs in shows where.",
        )
    return _lost(store, "No such page", "There is nothing at this address.")


def _lost(store: RunStore, title: str, text: str) -> View:
    content = [
        notice(title, text),
        dmc.Card(
            [dmc.Title("Runs", order=2, size="h4", mb="xs"), list_of_runs(store)], withBorder=True
        ),
    ]
    return View(title, dmc.Stack(content))
