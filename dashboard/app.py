"""Build the Dash app from shell, pages, callbacks and headers, and route addresses to pages.

The shell is around every page: header, colour scheme, and the place of the page.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any
from urllib.parse import unquote

import dash_mantine_components as dmc
from dash import Dash, Input, Output, dcc, html
from werkzeug.exceptions import NotFound
from werkzeug.routing import Map, Rule

from stallscope.errors import NotFoundError, StallscopeError

from .addresses import ADDRESS, Address, below, query_of, root_path, runs_address, scaling_address
from .components.basics import add_script, aria, card, colours_of, link
from .components.chart_card import COLOUR_SCHEME, add_chart_callbacks
from .components.notices import notice
from .components.run_head import add_run_head_callbacks
from .downloads import add_download_routes
from .pages import PAGES, View
from .pages.runs_page import list_of_runs
from .security import add_security_headers
from .store import RunStore

#: Ids of the shell's parts: the place of the page, and which page is loaded.
PAGE = "page"
LOADED_PAGE = "loaded-page"
_SCHEME_SWITCH = "colour-scheme-switch"

# These shades give text a contrast of 4.5 : 1.
_THEME = {
    "primaryColor": "blue",
    "primaryShade": {"light": 8, "dark": 4},
    "defaultRadius": "md",
    "autoContrast": True,
    "respectReducedMotion": True,
    "cursorType": "pointer",
}

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


# -- The shell around every page ------------------------------------------------------------------


def shell() -> Any:
    """Return the layout of the app, without a page."""
    return dmc.MantineProvider(
        [
            html.A("Skip to content", href="#content", className="skip-link"),
            dcc.Location(id=ADDRESS, refresh="callback-nav"),
            dcc.Store(id=COLOUR_SCHEME),
            dcc.Store(id=LOADED_PAGE),
            dmc.AppShell(
                [
                    dmc.AppShellHeader(_header(), className="header"),
                    dmc.AppShellMain(_content(), id="content"),
                ],
                header={"height": 56},
                mode="static",
                padding=0,
            ),
        ],
        theme=_THEME,
        defaultColorScheme="auto",
    )


def add_shell_callbacks(app: Dash) -> None:
    """Set the colour scheme of pages, and the window's title."""
    add_script(
        app,
        "stallscope.followColourScheme",
        Output(COLOUR_SCHEME, "data"),
        Input(_SCHEME_SWITCH, "computedColorScheme"),
    )
    add_script(app, "stallscope.showLoadedPage", Input(LOADED_PAGE, "data"))


def _header() -> Any:
    return dmc.Container(
        dmc.Group(
            [
                link([_logo(), "Stallscope"], runs_address(), underline="never", className="brand"),
                dmc.Group(
                    [
                        link("Runs", runs_address(), size="sm"),
                        link("Scaling", scaling_address(), size="sm"),
                        dmc.ColorSchemeToggle(
                            id=_SCHEME_SWITCH,
                            lightIcon=html.Span("☀", **aria(hidden="true")),
                            darkIcon=html.Span("☾", **aria(hidden="true")),
                            variant="default",
                            size="lg",
                            **aria(label="Switch between light and dark"),
                        ),
                    ],
                    gap="md",
                ),
            ],
            justify="space-between",
            h="100%",
        ),
        size="xl",
        h="100%",
    )


def _logo() -> Any:
    bars = [
        html.Span(className="swatch", style=colours_of(name))
        for name in ("compute", "input", "imbalance", "allreduce")
    ]
    return html.Span(bars, className="logo", **aria(hidden="true"))


def _content() -> Any:
    target: Any = {PAGE: "children"}
    return dmc.Container(
        dcc.Loading(
            html.Div(id=PAGE),
            custom_spinner=dmc.Group(
                [dmc.Loader(size="sm"), dmc.Text("Reading the steps…")], className="reading"
            ),
            delay_show=300,
            show_initially=False,
            overlay_style={"visibility": "visible", "opacity": 0.5},
            target_components=target,
        ),
        size="xl",
        py="lg",
    )
