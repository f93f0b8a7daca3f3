"""What axe-core, the checker of accessibility, says of every page: light, and dark on a phone."""

from __future__ import annotations

from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from stallscope.dashboard.components.notices import TABS

from .browsing import NARROW, Open, drawn, still

pytestmark = pytest.mark.browser

# What keeps people out; the rest is advice.
SERIOUS = ("serious", "critical")
RUN_PAGES = [f"/run/slow/{page}".rstrip("/") for page in TABS.values()]
PAGES = [
    "/",
    "/scaling",
    "/compare?runs=real,slow",
    "/compare?runs=real,slow,synthetic",
    "/run/slow/step/60",
    "/run/nobody",
    "/run/without-stamps",
    "/run/real?baseline=synthetic",
    *RUN_PAGES,
]


@pytest.mark.parametrize("path", PAGES)
def test_pages_are_accessible(open_page: Open, path: str) -> None:
    page = open_page(path)
    assert _serious(page) == []
    # Drawing a page takes longer than looking through it: the same one is seen dark and narrow.
    page.set_viewport_size({"width": NARROW, "height": 900})
    page.emulate_media(color_scheme="dark")
    expect(page.locator("html")).to_have_attribute("data-mantine-color-scheme", "dark")
    assert _serious(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") == NARROW


def _serious(page: Page) -> list[str]:
    drawn(page)
    still(page)
    violations = Axe().run(page).response["violations"]
    return [_said(violation) for violation in violations if violation["impact"] in SERIOUS]


def _said(violation: dict[str, Any]) -> str:
    where = "; ".join(str(node["target"]) for node in violation["nodes"][:5])
    return f"{violation['id']}: {violation['help']} at {where}"
