"""Show the page that the address names."""

from __future__ import annotations

import logging
from contextlib import suppress
from urllib.parse import unquote

from dash import Dash, Input, Output
from werkzeug.exceptions import NotFound
from werkzeug.routing import Map, Rule

from stallscope.errors import NotFoundError, StallscopeError

from .addresses import ADDRESS, Address, query_of, root_path
from .components.basics import card
from .components.notices import notice
from .layout import LOADED_PAGE, PAGE
from .pages import PAGES, View
from .pages.runs import list_of_runs
from .store import RunStore

_log = logging.getLogger(__name__)

# Matched against quoted paths: a slash in a run's id must not split the path.
_PATHS = Map(
    [Rule(page.path, endpoint=page) for page in PAGES], strict_slashes=False, merge_slashes=False
).bind("")


def add_routing(app: Dash, store: RunStore) -> None:
    """Add the callback that shows the page at the browser's address.

    Dash's own registry of pages is global: a second app in the process would show the pages and runs
    of the first one.
    """

    @app.callback(
        Output(PAGE, "children"),
        Output(LOADED_PAGE, "data"),
        Input(ADDRESS, "pathname"),
        Input(ADDRESS, "search"),
    )
    def show(pathname: str | None, search: str | None) -> tuple[object, dict[str, str]]:
        view = view_at(store, pathname or "/", search or "")
        return view.content, {"title": view.title, "place": pathname or "/"}


def view_at(store: RunStore, pathname: str, search: str) -> View:
    """Return the page at an address, or a page with the error."""
    try:
        page, quoted = _PATHS.match(pathname.removeprefix(root_path()).strip("/"))
        values = {name: unquote(value) for name, value in quoted.items()}
        view: View = page.view(Address(values, query_of(search)), store)
        return view
    except NotFound:
        return _error_page(store, "No such page", "There is nothing at this address.")
    except NotFoundError:
        return _error_page(store, "No such run", "This address names a run that is not open here.")
    except StallscopeError as error:
        return _error_page(store, "This page cannot be shown", str(error))
    except Exception:
        _log.exception("the page at %r failed", pathname)
        return _error_page(
            store,
            "This page cannot be shown",
            "Stallscope failed while making it; the terminal that it runs in shows where.",
        )


def _error_page(store: RunStore, title: str, text: str) -> View:
    # The list offers no run that was deleted meanwhile.
    with suppress(StallscopeError):
        store.refresh()
    return View.of(title, [notice(title, text), card("Runs", list_of_runs(store))])
