"""The list of ten thousand runs, and two of them side by side, in a real Chromium."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect
from support.step_logs import run_of_job

from stallscope.charts import COLOURS
from stallscope.dashboard import RunStore

from .browsing import NARROW, WIDE, Open, opening, served, tab_stops
from .cases import HOSTILE, REAL, SCRIPT, SLOW_RANK, SYNTHETIC
from .stores import Listed, listed

pytestmark = pytest.mark.browser

MANY = 10_000


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    jobs = (REAL, SYNTHETIC, SLOW_RANK, HOSTILE)
    runs = [run_of_job(tmp_path_factory.mktemp("run"), job) for job in jobs]
    with served(
        RunStore(runs, sources=[Listed([listed(number) for number in range(MANY)])])
    ) as url:
        yield url


def _row(page: Page, name: str) -> Locator:
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True))


def test_runs_in_memory_are_filled_in_and_collected_ones_are_there(open_page: Open) -> None:
    page = open_page("/")
    expect(page.locator("#runs-count")).to_have_text("10,004 runs")
    slow = _row(page, "resnet with a slow rank")
    expect(slow).to_contain_text("Slow rank 2")
    expect(slow.get_by_role("img")).to_have_attribute("aria-label", re.compile(r"Compute 86\.\d%"))
    real = _row(page, "resnet on pictures")
    expect(real).to_contain_text("Input")
    expect(real).to_contain_text(re.compile(r"−2\d\.\d%"))
    expect(_row(page, "training 0").locator("svg polyline")).to_have_count(1)
    expect(page.get_by_role("grid", name="Runs")).to_have_attribute("aria-rowcount", "10005")


def test_every_rerun_has_its_trend_whichever_run_is_analysed_first(
    context: BrowserContext, tmp_path_factory: pytest.TempPathFactory
) -> None:
    jobs = [replace(REAL, run_id=f"run-{number}", seed=number) for number in range(4)]
    runs = [run_of_job(tmp_path_factory.mktemp("run"), job) for job in jobs]
    with served(RunStore(runs)) as url, opening(context, url) as open_page:
        page = open_page("/")
        # All but the oldest.
        expect(page.get_by_role("row").locator("svg polyline")).to_have_count(3)


def test_a_bookmarked_search_of_runs_that_were_never_analysed_ends_with_those_that_match(
    context: BrowserContext, tmp_path_factory: pytest.TempPathFactory
) -> None:
    jobs = [replace(REAL, run_id=f"run-{number}", seed=number) for number in range(8)]
    jobs.insert(5, SLOW_RANK)
    runs = [run_of_job(tmp_path_factory.mktemp("run"), job) for job in jobs]
    with served(RunStore(runs)) as url, opening(context, url) as open_page:
        page = open_page("/?search=verdict%3Dimbalance")
        expect(page.locator("#runs-count")).to_have_text("1 of 9 runs")
        expect(_row(page, "resnet with a slow rank")).to_contain_text("Slow rank 2")
        expect(page.locator("#runs-empty")).to_be_empty()
        page.get_by_role("textbox", name="Search runs").fill("step_ms>1")
        expect(page.locator("#runs-count")).to_have_text("9 runs")


def test_no_text_is_cut_on_a_phone(open_page: Open) -> None:
    page = open_page("/", width=NARROW)
    expect(_row(page, "resnet with a slow rank")).to_contain_text("Slow rank 2")
    cut = page.locator(".run-lines, .run-lines *").evaluate_all(
        """parts => parts.filter(part => part.clientWidth && part.scrollWidth > part.clientWidth + 1)
            .map(part => part.textContent)"""
    )
    assert cut == []
    higher = page.locator(".run-lines").evaluate_all(
        "parts => parts.filter(part => part.scrollHeight > part.closest('.ag-row').clientHeight)"
        ".map(part => part.textContent)"
    )
    assert higher == []


def test_the_list_is_scrolled_to_its_end(open_page: Open) -> None:
    page = open_page("/")
    expect(_row(page, "training 0")).to_be_visible()
    page.locator("#runs-grid .ag-body-viewport").evaluate("one => one.scrollTop = one.scrollHeight")
    expect(_row(page, f"training {MANY - 1}")).to_be_visible()


def test_a_search_is_in_the_address_and_nothing_found_leads_back(open_page: Open) -> None:
    page = open_page("/")
    search = page.get_by_role("textbox", name="Search runs")
    search.fill("training 12 verdict=compute")
    expect(page.locator("#runs-count")).to_have_text("199 of 10,004 runs")
    expect(page).to_have_url(re.compile(r"\?search=training\+12\+verdict%3Dcompute$"))
    expect(search).to_be_focused()
    page.reload()
    expect(page.locator("#runs-count")).to_have_text("199 of 10,004 runs")
    expect(search).to_have_value("training 12 verdict=compute")
    search.fill("ranks>=many")
    expect(page.get_by_text("ranks takes a whole number").first).to_be_visible()
    search.fill("nothing of the kind")
    expect(page.get_by_text("No run matches this search.")).to_be_visible()
    page.get_by_role("button", name="Show all runs").click()
    expect(page.locator("#runs-count")).to_have_text("10,004 runs")
    expect(_row(page, "training 0")).to_be_visible()
    expect(page).to_have_url(re.compile(r"/$"))


def test_of_many_keys_the_last_one_counts(open_page: Open) -> None:
    page = open_page("/")
    search = page.get_by_role("textbox", name="Search runs")
    search.click()
    for text in ("training", "training 9", "training 99", "training 999", "training 9999"):
        # Each is asked for before the next key.
        with page.expect_request(lambda asked, text=text: f'"{text}"' in (asked.post_data or "")):
            search.fill(text)
    expect(page.locator("#runs-count")).to_have_text("1 of 10,004 runs")
    expect(page.locator("#runs-grid .run-title a")).to_have_text(["training 9999"])


def test_the_order_is_in_the_address_and_there_after_a_look_at_a_run(open_page: Open) -> None:
    page = open_page("/?search=training")
    page.get_by_role("columnheader", name="Samples/s").click()
    expect(page).to_have_url(re.compile(r"\?search=training&sort=throughput&order=desc$"))
    expect(_row(page, "training 9999")).to_be_visible()
    page.get_by_role("columnheader", name="Samples/s").click()
    expect(page).to_have_url(re.compile(r"&sort=throughput$"))
    expect(_row(page, "training 0")).to_be_visible()
    page.get_by_role("textbox", name="Search runs").fill("pictures")
    page.get_by_role("link", name="resnet on pictures").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("resnet on pictures")
    expect(page).to_have_url(re.compile(r"/run/real\?baseline=synthetic$"))
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_have_text("Runs")
    expect(page.get_by_role("textbox", name="Search runs")).to_have_value("pictures")
    expect(page.get_by_role("columnheader", name="Samples/s")).to_have_attribute(
        "aria-sort", "ascending"
    )
    # The way home means the whole list.
    page.get_by_role("link", name="Runs", exact=True).click()
    expect(page.locator("#runs-count")).to_have_text("10,004 runs")
    expect(page.get_by_role("columnheader", name="Samples/s")).to_have_attribute(
        "aria-sort", "none"
    )


def test_the_list_is_walked_and_a_run_is_opened_by_keyboard(open_page: Open) -> None:
    page = open_page("/")
    expect(_row(page, "resnet on pictures")).to_contain_text("Input")
    page.get_by_role("textbox", name="Search runs").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    focused = page.locator("#runs-grid .ag-cell-focus")
    expect(focused).to_contain_text("resnet on noise")
    page.keyboard.press("Enter")
    heading = page.get_by_role("heading", level=1)
    expect(heading).to_have_text("resnet on noise")
    expect(heading).to_be_focused()


def test_two_runs_are_selected_by_keyboard_and_compared(open_page: Open) -> None:
    page = open_page("/?search=resnet")
    expect(_row(page, "resnet with a slow rank")).to_contain_text("Slow rank 2")
    expect(page.get_by_text("Select runs to compare")).to_be_visible()
    page.locator("#runs-grid .ag-cell[col-id=ranks]").first.click()
    page.keyboard.press("Space")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    link = page.get_by_role("link", name="Compare", exact=True)
    expect(link).to_be_visible()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    expect(page.get_by_text("3 selected")).to_be_visible()
    page.keyboard.press("Space")
    expect(page.get_by_text("2 selected")).to_be_visible()
    link.focus()
    page.keyboard.press("Enter")
    heading = page.get_by_role("heading", level=1)
    expect(heading).to_have_text("Compare two runs")
    expect(page).to_have_url(re.compile(r"/compare\?runs=(real,synthetic|synthetic,real)$"))
    expect(page.get_by_role("img", name=re.compile("^From A to B"))).to_be_visible()
    drawn = page.get_by_role("img", name=re.compile("^From A to B")).locator(".bars .point")
    # What each of four causes adds, and all of them.
    expect(drawn).to_have_count(6)
    rows = page.get_by_role("region", name="What changed").get_by_role("row")
    expect(rows.filter(has_text="Input")).to_contain_text("yes")
    page.get_by_role("link", name="Swap A and B").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Compare two runs")


def test_names_from_logs_are_text(open_page: Open) -> None:
    page = open_page("/?search=script")
    expect(page.locator("#runs-grid .run-title a")).to_have_text([SCRIPT])
    assert page.locator("#runs-grid script, #runs-grid b").count() == 0
    assert page.locator("#runs-grid img").count() == 0


@pytest.mark.parametrize(("scheme", "width"), [("light", WIDE), ("dark", NARROW)])
def test_the_list_is_light_or_dark_and_fits(open_page: Open, scheme: str, width: int) -> None:
    page = open_page("/", scheme=scheme, width=width)
    row = _row(page, "training 0")
    expect(row).to_be_visible()
    expect(row.get_by_text("slower than in the baseline")).to_be_visible()
    # A phone has no room for both the reason and the bar.
    expect(row.locator(".run-bar:visible")).to_have_count(int(width == WIDE))
    piece = row.locator(".stage-compute:visible").last
    colour = getattr(COLOURS["compute"], scheme)
    red, green, blue = bytes.fromhex(colour[1:])
    expect(piece).to_have_css("background-color", f"rgb({red}, {green}, {blue})")
    background = row.evaluate("one => getComputedStyle(one).backgroundColor")
    level = sum(map(int, re.findall(r"\d+", background)[:3])) / 3
    assert (level < 60) if scheme == "dark" else (level > 240)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    heads = page.get_by_role("columnheader").all_inner_texts()
    assert ("Source" in "".join(heads)) is (width == WIDE)


def test_what_has_the_focus_can_be_seen(open_page: Open) -> None:
    page = open_page("/")
    expect(_row(page, "training 0")).to_be_visible()
    assert "Search runs" in tab_stops(page, 6)
    page.locator("#runs-grid .ag-cell").nth(1).click()
    focused = page.locator("#runs-grid .ag-cell-focus")
    assert focused.evaluate("one => getComputedStyle(one).borderTopColor") != "rgba(0, 0, 0, 0)"
