"""What tests that look at pages in a real Chromium share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from playwright.sync_api import BrowserContext, Page, expect
from support.waiting import PATIENCE_SECONDS

from stallscope.dashboard import RunStore
from stallscope.dashboard.server import DashboardServer

WIDE, NARROW = 1300, 400

expect.set_options(timeout=PATIENCE_SECONDS * 1000)

Open = Callable[..., Page]


@contextmanager
def served(store: RunStore) -> Iterator[str]:
    """The address at which a store's pages are."""
    server = DashboardServer(store, "127.0.0.1", 0)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield server.url
    finally:
        server.stop()
        thread.join(PATIENCE_SECONDS)


@contextmanager
def opening(context: BrowserContext, address: str) -> Iterator[Open]:
    """Open pages of a dashboard; afterwards nothing may have gone wrong, or elsewhere."""
    complaints: list[str] = []
    elsewhere: list[str] = []
    others = context.pages

    def opened(path: str, *, width: int = WIDE, scheme: str = "light") -> Page:
        page = context.new_page()
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        page.set_default_timeout(PATIENCE_SECONDS * 1000)
        page.on(
            "console",
            lambda said: (
                complaints.append(said.text) if said.type in ("error", "warning") else None
            ),
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
        page.on(
            "request",
            lambda asked: (
                None
                if asked.url.startswith((address, "data:", "blob:"))
                else elsewhere.append(asked.url)
            ),
        )
        page.goto(address.rstrip("/") + path)
        page.locator("#page h1").wait_for()
        return page

    yield opened
    for page in context.pages:
        if page not in others:
            close(page, address)
    context.clear_permissions()
    assert complaints == [], complaints
    assert elsewhere == [], elsewhere


def close(page: Page, address: str) -> None:
    """Close a page, and delete what the dashboard's script has stored in the browser."""
    if page.url.startswith(address):
        page.evaluate("localStorage.clear()")
    page.close()


def drawn(page: Page) -> None:
    """Waits until nothing is asked for any more, and every table has its head and its lines.

    A table is a component that is loaded by itself, and for a moment its head has no cells.
    """
    page.wait_for_load_state("networkidle")
    page.wait_for_function(
        """() => !document.querySelector("[data-dash-is-loading]")
            && [...document.querySelectorAll(".dash-ag-grid, [role=grid], [role=treegrid]")].every(
                (table) => table.querySelector("[role=columnheader]")
                    && table.querySelector("[role=gridcell]")
                    && !table.querySelector(".ag-header-row:empty"))"""
    )


def timeline_drawn(page: Page) -> Page:
    """Wait until the timeline's picture, words and address say the same."""
    expect(page.locator("#timeline")).to_have_attribute("aria-busy", "false")
    return page


def css_rgb(colour: str) -> str:
    """Write ``#rrggbb`` as browsers write colours."""
    red, green, blue = bytes.fromhex(colour[1:])
    return f"rgb({red}, {green}, {blue})"


def still(page: Page) -> None:
    """Waits until nothing fades or moves any more: until then colours are those of neither state."""
    page.wait_for_function(
        "() => document.getAnimations().every((one) => one.playState !== 'running')"
    )


def tab_stops(page: Page, number: int) -> list[str]:
    """The names of what the next tabs reach, each with a focus that can be seen."""
    stops = []
    for _ in range(number):
        page.keyboard.press("Tab")
        name, seen = page.evaluate(
            """() => {
                const focused = document.activeElement;
                const style = getComputedStyle(focused);
                const name = focused.getAttribute("aria-label")
                    || (focused.labels && focused.labels[0] && focused.labels[0].innerText)
                    || focused.innerText;
                return [name.trim(), style.outlineStyle !== "none" || focused.matches("input")];
            }"""
        )
        assert seen, f"{name} does not show its focus"
        stops.append(name)
    return stops
