"""What a user sees, in a real Chromium that talks to a real server."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeoutError

from stallscope.analysis import ENTRIES
from stallscope.charts import COLOURS, SHADES
from stallscope.dashboard import RunStore
from stallscope.text.vocabulary import TITLES

from .browsing import NARROW, WIDE, Open, css_rgb, still, tab_stops
from .cases import SCRIPT

pytestmark = pytest.mark.browser

# Every graph of the page has been drawn with something in it.
_DRAWN = """() => {
    const graphs = [...document.querySelectorAll("#page .js-plotly-plot")];
    return graphs.length > 0 && graphs.every(graph => graph.querySelector(".trace"));
}"""

# How many pixels of a picture have which colour, as #rrggbb.
_COLOURS_OF = """async (source) => {
    const image = new Image();
    image.src = source;
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = image.width;
    canvas.height = image.height;
    const context = canvas.getContext("2d");
    context.drawImage(image, 0, 0);
    const pixels = context.getImageData(0, 0, image.width, image.height).data;
    const counts = {};
    for (let at = 0; at < pixels.length; at += 4) {
        const colour = "#" + [0, 1, 2]
            .map(part => pixels[at + part].toString(16).padStart(2, "0")).join("");
        counts[colour] = (counts[colour] || 0) + 1;
    }
    return counts;
}"""


def _drawn(page: Page) -> Page:
    page.wait_for_function(_DRAWN)
    return page


def _colours(browser: Browser, picture: Path) -> dict[str, int]:
    page = browser.new_page()
    source = "data:image/png;base64," + base64.b64encode(picture.read_bytes()).decode()
    counts: dict[str, int] = page.evaluate(_COLOURS_OF, source)
    page.close()
    return counts


def test_from_the_list_to_a_run_and_back(open_page: Open) -> None:
    page = open_page("/")
    row = page.get_by_role("row").filter(has_text="resnet with a slow rank")
    expect(row).to_contain_text("Slow rank 2")
    page.get_by_role("link", name="resnet on pictures").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("resnet on pictures")
    expect(page).to_have_title("resnet on pictures · Stallscope")
    expect(page).to_have_url(re.compile(r"/run/real\?baseline=synthetic$"))
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_have_text("Runs")


def test_a_run_against_its_baseline(open_page: Open) -> None:
    page = _drawn(open_page("/run/real?baseline=synthetic"))
    headings = page.get_by_role("heading", level=2).all_inner_texts()
    assert headings[0] == "Input holds this run back: batches come late"
    assert page.get_by_text(re.compile(r"^as fast \(95% interval: ")).is_visible()

    ledger = page.get_by_role("region", name="Step time of the typical rank")
    expect(ledger).to_have_count(0)
    page.get_by_text("Step time of the typical rank").click()
    for name in ENTRIES:
        expect(ledger.get_by_role("rowheader", name=TITLES[name])).to_be_visible()

    ranks = page.get_by_role("img", name=re.compile("^Ranks side by side"))
    assert ranks.locator(".ytick").all_text_contents() == [f"rank {rank}" for rank in range(4)]

    by_cause = page.get_by_role("img", name=re.compile("^Step time by cause"))
    assert by_cause.locator(".ytick").all_text_contents() == ["this run", "baseline"]

    over_time = page.get_by_role("figure", name=re.compile("^Step time over the run"))
    assert over_time.locator(".annotation").all_text_contents() == ["epoch 0", "epoch 1", "epoch 2"]

    page.get_by_role("link", name="Baseline", exact=True).click()
    waterfall = page.get_by_role("img", name=re.compile("^Losses by cause"))
    # Both totals have bars, too.
    expect(waterfall.locator(".bars .point")).to_have_count(6)
    assert waterfall.locator(".ytick").all_text_contents() == [
        "baseline",
        *(TITLES[name] for name in ("input_stall", "compute", "other", "allreduce")),
        "this run",
    ]


def test_a_slow_rank_is_named_and_stands_out(open_page: Open) -> None:
    page = _drawn(open_page("/run/slow"))
    expect(page.get_by_role("heading", level=2).first).to_contain_text("Rank 2")
    ranks = page.get_by_role("img", name=re.compile("^Ranks side by side"))
    assert len(ranks.locator(".ytick").all()) == 8
    assert len(ranks.locator(".shapelayer path").all()) == 1
    page.get_by_text("All 8 ranks", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("rowheader", name="2 (slow)")).to_be_visible()


def test_a_hostile_name_is_shown_as_it_is(open_page: Open, store: RunStore) -> None:
    key = next(run.id for run in store.runs() if run.entry.name == SCRIPT)
    page = _drawn(open_page(f"/run/{key}"))
    expect(page.get_by_role("heading", level=1)).to_have_text(SCRIPT)
    expect(page).to_have_title(f"{SCRIPT} · Stallscope")
    assert len(page.locator("#page img, #page b, #page script").all()) == 0


def test_an_unknown_run_shows_those_there_are(open_page: Open) -> None:
    page = open_page("/run/nobody")
    expect(page.get_by_role("heading", level=1)).to_have_text("No such run")
    expect(page.get_by_role("link", name="resnet on pictures")).to_be_visible()


@pytest.mark.parametrize(("scheme", "width"), [("light", WIDE), ("dark", NARROW)])
def test_pages_are_drawn_in_the_colours_of_the_system(
    open_page: Open, browser: Browser, tmp_path: Path, scheme: str, width: int
) -> None:
    page = _drawn(open_page("/run/real?baseline=synthetic", width=width, scheme=scheme))
    picture = tmp_path / f"overview-{scheme}-{width}.png"
    # Mantine and Plotly fade in.
    still(page)
    page.screenshot(path=picture, full_page=True)
    counts = _colours(browser, picture)
    assert len(counts) > 50
    for name in (*ENTRIES, "wait"):
        assert counts.get(getattr(COLOURS[name], scheme), 0) > 100, name
    background = max(counts, key=counts.__getitem__)
    brightness = sum(bytes.fromhex(background[1:])) / 3
    assert (brightness < 60) if scheme == "dark" else (brightness > 240)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_light_and_dark_follow_the_system_and_then_the_switch(open_page: Open) -> None:
    page = _drawn(open_page("/run/slow"))
    by_cause = page.get_by_role("img", name=re.compile("^Step time by cause"))
    bars = by_cause.locator(".bars path").first
    expect(bars).to_have_css("fill", css_rgb(COLOURS["input"].light))
    labels = by_cause.locator(".ytick text").first
    expect(labels).to_have_css("fill", css_rgb(SHADES["ink"].light))
    page.emulate_media(color_scheme="dark")
    expect(bars).to_have_css("fill", css_rgb(COLOURS["input"].dark))
    expect(labels).to_have_css("fill", css_rgb(SHADES["ink"].dark))
    entry = page.locator(".legend .named-swatch").filter(has_text=re.compile("^Input")).first
    expect(entry.locator(".swatch")).to_have_css("background-color", css_rgb(COLOURS["input"].dark))
    page.get_by_role("button", name="Switch between light and dark").click()
    expect(bars).to_have_css("fill", css_rgb(COLOURS["input"].light))
    page.reload()
    _drawn(page)
    expect(bars).to_have_css("fill", css_rgb(COLOURS["input"].light))


def test_a_baseline_is_chosen_by_keyboard_and_the_address_can_be_sent(
    open_page: Open,
) -> None:
    page = _drawn(open_page("/run/real"))
    assert tab_stops(page, 6) == [
        "Skip to content",
        "Stallscope",
        "Runs",
        "Scaling",
        "Switch between light and dark",
        "Baseline",
    ]
    page.keyboard.type("noise")
    expect(page.get_by_role("option")).to_have_text(["resnet on noise: 4 ranks"])
    _choose_first_option(page, re.compile(r"/run/real\?baseline=synthetic$"))
    expect(page.get_by_text("Lost against the baseline")).to_be_visible()
    baseline = page.get_by_role("textbox", name="Baseline")
    expect(baseline).to_have_value("resnet on noise: 4 ranks")
    expect(baseline).to_be_focused()

    sent = open_page(page.url.removeprefix(page.url.split("/run/")[0]))
    expect(sent.get_by_text("Lost against the baseline")).to_be_visible()


def _choose_first_option(page: Page, address: re.Pattern[str]) -> None:
    """Down and Enter, as a person does it: again where the list was still being filtered.

    The select forgets what is highlighted when its filter comes in, which on a busy machine can be
    after the key.
    """
    for _ in range(20):
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        try:
            page.wait_for_url(address, timeout=3000)
        except PlaywrightTimeoutError:
            continue
        return
    expect(page).to_have_url(address)


def test_a_baseline_is_put_away_by_keyboard(open_page: Open) -> None:
    page = _drawn(open_page("/run/real?baseline=synthetic"))
    assert tab_stops(page, 7)[-1] == "No baseline"
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/run/real$"))
    expect(page.get_by_text("Lost against the baseline")).to_have_count(0)
    expect(page.get_by_role("heading", level=1)).to_be_focused()


def test_runs_are_grouped_by_a_fact_and_by_job_again(open_page: Open) -> None:
    page = open_page("/scaling")
    page.get_by_role("textbox", name="Group by").click()
    page.get_by_role("option", name="Run name", exact=True).click()
    expect(page).to_have_url(re.compile(r"/scaling\?by=run$"))
    expect(page.get_by_text("grouped by run name")).to_be_visible()
    page.get_by_role("button", name="Group by job").click()
    expect(page).to_have_url(re.compile(r"/scaling$"))
    expect(page.get_by_text("grouped by recorded job facts")).to_be_visible()


def test_the_skip_link_leads_past_the_header(open_page: Open) -> None:
    page = _drawn(open_page("/run/real"))
    assert tab_stops(page, 1) == ["Skip to content"]
    expect(page.get_by_role("link", name="Skip to content")).to_be_in_viewport()
    page.keyboard.press("Enter")
    assert tab_stops(page, 1) == ["Baseline"]
