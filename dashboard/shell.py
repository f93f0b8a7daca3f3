"""The shell around every page: header, colour scheme, and the place of the page."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import Dash, Input, Output, dcc, html

from .addresses import ADDRESS, runs_address, scaling_address
from .components.basics import add_script, aria, colours_of, link
from .components.chart_card import COLOUR_SCHEME

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
