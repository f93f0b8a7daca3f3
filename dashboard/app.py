"""Build the Dash app from shell, pages, callbacks and headers, and route addresses to pages."""

from __future__ import annotations

import logging
from contextlib import suppress
from urllib.parse import unquote

from dash import Dash, Input, Output
from werkzeug.exceptions import NotFound
from werkzeug.routing import Map, Rule

from stallscope.errors import NotFoundError, StallscopeError

from .addresses import ADDRESS, Address, below, query_of, root_path
from .components.basics import card
from .components.chart_card import add_chart_callbacks
from .components.notices import notice
from .components.run_head import add_run_head_callbacks
from .downloads import add_download_routes
from .pages import PAGES, View
from .pages.runs_page import list_of_runs
from .security import add_security_headers
from .shell import LOADED_PAGE, PAGE, add_shell_callbacks, shell
from .store import RunStore

_INDEX = """<!DOCTYPE html>
<html lang="en">
    <head>
        {%metas%}
        <title>{%title%}</title>
        <link rel="icon" type="image/svg+xml" href="ICON">
        {%css%}
    </head>
    <body>
        {%app_entry%}
        <noscript>Stallscope's dashboard needs JavaScript; its reports do not.</noscript>
        <footer>{%config%}{%scripts%}{%renderer%}</footer>
    </body>
</html>"""

_log = logging.getLogger(__name__)
# Matched against quoted paths: a slash in a run's id must not split the path.
_PATHS = Map(
    [Rule(page.path, endpoint=page) for page in PAGES], strict_slashes=False, merge_slashes=False
).bind("")


def create_app(store: RunStore, prefix: str = "/") -> Dash:
    """Create a Dash app that shows the runs of a store; a process can have several.

    Args:
        store: the runs to show.
        prefix: the path below which browsers reach the app, with a slash at both ends.
    """
    app = Dash(
        __name__,
        title="Stallscope",
        update_title="",
        index_string=_INDEX.replace("ICON", f"{prefix}assets/icon.svg"),
        requests_pathname_prefix=prefix,
        routes_pathname_prefix="/",
        serve_locally=True,
        use_pages=False,
        # Callbacks name components of pages that are not shown yet.
        suppress_callback_exceptions=True,
        add_log_handler=False,
        enable_mcp=False,
        meta_tags=[
            {"name": "viewport", "content": "width=device-width, initial-scale=1"},
            {"name": "color-scheme", "content": "light dark"},
        ],
    )
    # A function, called for every request: its links depend on the path below which the app is served.
    app.layout = shell
    app.server.wsgi_app = below(prefix, app.server.wsgi_app)
    add_shell_callbacks(app)
    add_chart_callbacks(app)
    add_run_head_callbacks(app)
    add_routing(app, store)
    add_download_routes(app, store)
    for page in PAGES:
        page.add_callbacks(app, store)
    add_security_headers(app)
    return app


# -- Show the page that the address names ---------------------------------------------------------


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
