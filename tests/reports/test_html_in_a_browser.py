"""The page in a real browser: fits phones, follows light and dark, sends no requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from stallscope.analysis import Analysis
from stallscope.reports.write import write_reports

pytestmark = pytest.mark.browser


class Opened:
    """A report in a browser, with the browser's requests and errors."""

    def __init__(self, page: Page, path: Path) -> None:
        self.page = page
        self.asked: list[str] = []
        self.complaints: list[str] = []
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        page.goto(path.as_uri())


@pytest.fixture
def opened(
    browser: Browser, case: Callable[[str], Analysis], tmp_path: Path
) -> Iterator[Callable[..., Opened]]:
    pages: list[Page] = []

    def open_report(
        name: str, width: int = 1300, scheme: Literal["dark", "light"] = "light"
    ) -> Opened:
        (path,) = write_reports([case(name)], ["html"], tmp_path, force=True)
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        pages.append(page)
        return Opened(page, path)

    yield open_report
    for page in pages:
        page.close()


@pytest.mark.parametrize("width", [1300, 400])
@pytest.mark.parametrize(
    "name", ["a slow rank and a baseline", "a thousand ranks", "hostile names with stages"]
)
def test_nothing_sticks_out_to_the_side(
    name: str, width: int, opened: Callable[..., Opened]
) -> None:
    page = opened(name, width).page
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide == width


@pytest.mark.parametrize("name", ["a slow rank and a baseline", "hostile names with stages"])
def test_the_browser_sends_no_request_and_reports_no_error(
    name: str, opened: Callable[..., Opened]
) -> None:
    visit = opened(name)
    assert [url for url in visit.asked if not url.startswith(("file:", "data:"))] == []
    assert len([url for url in visit.asked if url.startswith("file:")]) == 1
    assert visit.complaints == []


@pytest.mark.parametrize("width", [1300, 400])
def test_verdict_rank_cause_and_certainty_are_on_the_first_screen(
    width: int, opened: Callable[..., Opened]
) -> None:
    page = opened("a slow rank and a baseline", width).page
    for seen in ("#headline", ".evidence", ".said li", ".big", ".big + p"):
        box = page.locator(seen).first.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] < 900
    assert "95% interval" in page.locator(".big + p").inner_text()


def test_verdict_and_first_chart_are_on_the_first_screen(opened: Callable[..., Opened]) -> None:
    page = opened("a slow rank and a baseline").page
    for seen in ("#headline", ".big", "svg >> nth=0"):
        box = page.locator(seen).first.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] < 900


@pytest.mark.parametrize("name", ["a slow rank and a baseline", "everything"])
def test_pages_are_accessible(name: str, opened: Callable[..., Opened]) -> None:
    page = opened(name).page
    page.evaluate(
        "document.querySelectorAll('details').forEach((details) => { details.open = true; })"
    )
    for width, scheme in ((1300, "light"), (400, "dark")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        violations = Axe().run(page).response["violations"]
        assert [
            violation["help"]
            for violation in violations
            if violation["impact"] in ("serious", "critical")
        ] == []


def test_phones_get_their_own_charts(opened: Callable[..., Opened]) -> None:
    for width, shown in ((1300, "wide"), (400, "narrow")):
        page = opened("two ranks", width).page
        visible = page.locator("svg:visible")
        assert visible.count() == page.locator(f".{shown} svg").count() > 0
        size = visible.first.locator("text").first.evaluate("e => e.getBoundingClientRect().height")
        assert size > 11


def test_dark_pages_are_dark_and_paper_is_white(opened: Callable[..., Opened]) -> None:
    def ground(page: Page) -> str:
        return str(page.locator(".card").first.evaluate("e => getComputedStyle(e).backgroundColor"))

    assert ground(opened("two ranks").page) == "rgb(255, 255, 255)"
    dark = opened("two ranks", scheme="dark").page
    assert ground(dark) == "rgb(27, 31, 38)"
    dark.emulate_media(media="print")
    assert ground(dark) == "rgb(255, 255, 255)"
    assert dark.locator("details:not([open]) table").first.is_visible()
