"""What somebody has zoomed to stays where it is for another baseline, and in other colours."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Locator, Page, expect
from support.step_logs import run_of_job

from stallscope.dashboard import RunStore
from stallscope.run import Run

from .browsing import Open, drawn, served
from .cases import SYNTHETIC

pytestmark = pytest.mark.browser

# The ends of the only picture's axis, once it is drawn.
_RANGE = """() => {
    const graph = document.querySelector("#page .js-plotly-plot");
    const drawn = graph && graph.layout && graph.querySelector(".hm");
    return drawn ? graph.layout.xaxis.range.map(Math.round) : null;
}"""

# The colour of the only picture's words: another one once it is drawn for the other scheme.
_INK = (
    """() => getComputedStyle(document.querySelector("#page .js-plotly-plot .xtick text")).fill"""
)


@pytest.fixture(scope="module")
def address(
    named_run: Callable[[str], Run], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    baseline = run_of_job(tmp_path_factory.mktemp("run"), SYNTHETIC)
    with served(RunStore([named_run("four ranks"), baseline])) as url:
        yield url


def graph(page: Page, title: str) -> Locator:
    chart = page.get_by_role("figure", name=re.compile(f"^{title}")).locator(".js-plotly-plot")
    expect(chart.locator(".trace, .hm").first).to_be_attached()
    return chart


def ends(page: Page) -> list[int]:
    limits: list[int] = page.wait_for_function(_RANGE).json_value()
    return limits


def expect_ends(page: Page, expected: list[int]) -> None:
    page.wait_for_function(f"expected => String(({_RANGE})()) === String(expected)", arg=expected)


def zoom(page: Page, title: str) -> None:
    """Drag over the second quarter of a picture, as people do."""
    box = graph(page, title).locator(".nsewdrag").first.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] / 4, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, middle, steps=5)
    page.mouse.up()


def choose_baseline(page: Page) -> None:
    page.get_by_role("textbox", name="Baseline").click()
    page.get_by_role("option", name="resnet on noise").click()
    expect(page).to_have_url(re.compile("baseline=synthetic"))
    expect(page.get_by_role("textbox", name="Baseline")).to_have_value("resnet on noise: 4 ranks")
    # The picture of before shows the same ends: what follows is about the one with the baseline.
    drawn(page)


def test_a_zoomed_map_stays_zoomed_for_another_baseline_and_other_colours(open_page: Open) -> None:
    page = open_page("/run/real/stragglers")
    title = "Lateness over the run"
    before = ends(page)
    zoom(page, title)
    page.wait_for_function(f"before => ({_RANGE})()[0] > before + 9", arg=before[0])
    zoomed = ends(page)
    assert before[0] < zoomed[0] < zoomed[1] < before[1]
    choose_baseline(page)
    expect_ends(page, zoomed)
    light = page.evaluate(_INK)
    page.emulate_media(color_scheme="dark")
    expect(page.locator("html")).to_have_attribute("data-mantine-color-scheme", "dark")
    page.wait_for_function(f"light => ({_INK})() !== light", arg=light)
    expect_ends(page, zoomed)
    # Another page's pictures of that name are its own.
    page.get_by_role("link", name="Overview").click()
    expect(page).to_have_title(re.compile("^resnet on pictures"))
    page.go_back()
    expect_ends(page, before)


def test_a_zoom_is_kept_though_the_chart_changes_its_size_at_once(open_page: Open) -> None:
    page = open_page("/run/real/stragglers")
    graph(page, "Lateness over the run")
    page.evaluate(
        """async () => {
            const graph = document.querySelector("#page .js-plotly-plot");
            await Plotly.relayout(graph, {"xaxis.range[0]": 30, "xaxis.range[1]": 60});
            await Plotly.relayout(graph, {autosize: true});
        }"""
    )
    choose_baseline(page)
    expect_ends(page, [30, 60])


def test_the_timeline_stays_where_it_is_for_another_baseline(open_page: Open) -> None:
    page = open_page("/run/real/timeline")
    timeline = page.locator("#timeline")
    expect(timeline).to_have_attribute("aria-busy", "false")
    timeline.focus()
    for _ in range(3):
        page.keyboard.press("+")
    page.keyboard.press("s")
    expect(page).to_have_url(re.compile(r"from=\d+.*to=\d+.*show=lateness"))
    # Then the address says what is shown.
    expect(timeline).to_have_attribute("aria-busy", "false")
    ends = re.findall(r"(?:from|to)=([\d.]+)", page.url)
    choose_baseline(page)
    # As the new page's timeline writes it: until then there are two, and buttons of either.
    begin, end = map(re.escape, ends)
    kept = rf"\?baseline=synthetic&from={begin}&to={end}&show=lateness$"
    expect(page).to_have_url(re.compile(kept))
    expect(timeline).to_have_attribute("aria-busy", "false")
    expect(page.get_by_role("button", name="Colour by lateness")).to_have_attribute(
        "aria-pressed", "true"
    )
    page.get_by_role("button", name="No baseline").click()
    expect(page).not_to_have_url(re.compile("baseline"))
    assert re.findall(r"(?:from|to)=([\d.]+)", page.url) == ends
