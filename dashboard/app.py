"""Build the Dash app from shell, pages, callbacks and headers."""

from __future__ import annotations

from dash import Dash

from .addresses import below
from .components.chart_card import add_chart_callbacks
from .components.run_head import add_run_head_callbacks
from .downloads import add_download_routes
from .layout import add_shell_callbacks, shell
from .pages import PAGES
from .routing import add_routing
from .security import add_security_headers
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
