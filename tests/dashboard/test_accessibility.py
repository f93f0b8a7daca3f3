"""What axe-core, the checker of accessibility, says of every page, light and dark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser
from support.chromium import chromium

from stallscope.dashboard import RunStore
from stallscope.dashboard.components.run_tabs import TABS
from stallscope.dashboard.server import DashboardServer

from .browsing import PATIENCE_S, drawn

pytestmark = pytest.mark.browser

# What keeps people out; the rest is advice.
SERIOUS = ("serious", "critical")
RUN_PAGES = [f"/run/slow/{page}".rstrip("/") for page in TABS.values()]
PAGES = [
    "/",
    "/scaling",
    "/compare?runs=real,slow",
    "/run/nobody",
    "/run/without-stamps",
    "/run/real?baseline=synthetic",
    *RUN_PAGES,
]


@pytest.fixture(scope="module")
def address(store: RunStore) -> Iterator[str]:
    server = DashboardServer(store, "127.0.0.1", 0)
    thread = threading.Thread(target=server.run)
    thread.start()
    yield server.url.rstrip("/")
    server.stop()
    thread.join(PATIENCE_S)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", PAGES)
def test_nobody_is_kept_out(browser: Browser, address: str, path: str, scheme: Any) -> None:
    page = browser.new_page(color_scheme=scheme, viewport={"width": 1300, "height": 900})
    page.set_default_timeout(PATIENCE_S * 1000)
    page.goto(address + path)
    page.locator("#page h1").wait_for()
    drawn(page)
    violations = Axe().run(page).response["violations"]
    page.close()
    assert [_said(one) for one in violations if one["impact"] in SERIOUS] == []


def _said(violation: dict[str, Any]) -> str:
    where = "; ".join(str(node["target"]) for node in violation["nodes"][:5])
    return f"{violation['id']}: {violation['help']} at {where}"
