"""The index page in a real browser: sorted by a click, readable without scripts, fit for phones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from stallscope.analysis import Analysis
from stallscope.reports.index import Index, line_of, parts
from stallscope.reports.report_formats import ReportOptions, render

pytestmark = pytest.mark.browser

NAMES = ("two ranks", "a slow rank and a baseline", "host stamps only", "hostile names with stages")


@pytest.fixture
def opened(
    browser: Browser, case: Callable[[str], Analysis], tmp_path: Path, options: ReportOptions
) -> Iterator[Callable[..., Page]]:
    lines = [line_of(case(name), f"run-{at}") for at, name in enumerate(NAMES)]
    days = [replace(lines[0], started_at=f"2026-11-0{day}T01:00:00.000Z") for day in (1, 2)]
    files = frozenset(f"{line.stem}.html" for line in lines)
    path = tmp_path / "index.html"
    index = Index([*lines, *days], ["nowhere: no such file"], files)
    path.write_text(render("html", parts(index), options))
    pages: list[Page] = []

    def open_index(
        width: int = 1300, scheme: Literal["dark", "light"] = "light", scripts: bool = True
    ) -> Page:
        page = browser.new_page(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            java_script_enabled=scripts,
        )
        page.on("console", lambda message: pytest.fail(message.text))
        page.on("dialog", lambda dialog: pytest.fail(dialog.message))
        page.goto(path.as_uri())
        pages.append(page)
        return page

    yield open_index
    for page in pages:
        page.close()


def column(page: Page, number: int) -> list[str]:
    return page.locator(f"tbody tr > :nth-child({number})").all_inner_texts()


def test_a_click_sorts_and_another_one_reverses_the_order(opened: Callable[..., Page]) -> None:
    page = opened()
    before = column(page, 1)
    ranks = page.get_by_role("button", name="Ranks")
    ranks.click()
    assert column(page, 8) == ["4", "4", "2", "2", "2", "2"]
    assert page.locator("th[aria-sort]").all_inner_texts() == ["Ranks"]
    ranks.click()
    assert column(page, 8) == ["2", "2", "2", "2", "4", "4"]
    page.get_by_role("button", name="Time lost").click()
    assert sorted(column(page, 1)) == sorted(before)
    assert column(page, 3)[-1] == "not measured"


def test_without_scripts_everything_is_there(opened: Callable[..., Page]) -> None:
    page = opened(scripts=False)
    assert len(column(page, 1)) == len(NAMES) + 2
    assert page.locator("thead button").count() == 0
    assert page.get_by_text("nowhere: no such file").is_visible()
    assert page.locator("figure svg:visible").count() == 1


@pytest.mark.parametrize("width", [1300, 400])
def test_nothing_sticks_out_to_the_side(width: int, opened: Callable[..., Page]) -> None:
    assert opened(width).evaluate("document.documentElement.scrollWidth") == width


def test_a_phone_shows_the_whole_note(opened: Callable[..., Page]) -> None:
    box = opened(400).locator("caption .note").bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= 400


def test_the_whole_table_fits_a_desktop(opened: Callable[..., Page]) -> None:
    box = opened().locator("table").first.bounding_box()
    assert box is not None
    assert box["x"] + box["width"] < 1300


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible(
    scheme: Literal["dark", "light"], opened: Callable[..., Page]
) -> None:
    report = Axe().run(opened(scheme=scheme))
    assert report.violations_count == 0, report.generate_report()
