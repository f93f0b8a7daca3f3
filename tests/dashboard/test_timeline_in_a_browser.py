"""The timeline as people use it: by wheel, by drag, by keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect
from simulator import Fault, Job, simulate
from simulator.faults import EveryNth
from support.simulated import in_mesh
from support.waiting import wait_until

from stallscope.charts import COLOURS
from stallscope.dashboard import RunStore
from stallscope.run import Run

from .browsing import NARROW, WIDE, Open, served, timeline_drawn
from .test_saving import LANES, saved, table

pytestmark = pytest.mark.browser

# How many pixels of the canvas have which colour; from a copy, as Chromium warns of reading one often.
_COLOURS = """canvas => {
    const copy = new OffscreenCanvas(canvas.width, canvas.height)
        .getContext("2d", { willReadFrequently: true });
    copy.drawImage(canvas, 0, 0);
    const pixels = copy.getImageData(0, 0, canvas.width, canvas.height).data;
    const counts = {};
    for (let at = 0; at < pixels.length; at += 4) {
        const colour = "#" + [0, 1, 2]
            .map(part => pixels[at + part].toString(16).padStart(2, "0")).join("");
        counts[colour] = (counts[colour] || 0) + 1;
    }
    return counts;
}"""


@pytest.fixture(scope="module")
def address(named_run: Callable[[str], Run]) -> Iterator[str]:
    runs = [
        named_run(name)
        for name in ("a slow rank", "a thousand ranks", "two ranks", "hostile names")
    ]
    collections = Fault("compute", 100.0, ranks=[1], when=EveryNth(20), cause="garbage_collection")
    job = Job(ranks=2, steps=100, faults=(collections,), run_id="paused")
    runs.append(simulate(job).run)
    runs.append(in_mesh(simulate(Job(ranks=8, steps=60, run_id="mesh")).run))
    with served(RunStore(runs)) as url:
        yield url


def at(page: Page, x: float, y: float) -> None:
    """Move the pointer to a part of the lanes: shares of their width and height."""
    box = page.locator("#timeline canvas").bounding_box()
    assert box is not None
    left, top, bottom = 170.0, 82.0, 24.0
    page.mouse.move(
        box["x"] + left + x * (box["width"] - left),
        box["y"] + top + y * (box["height"] - top - bottom),
    )


def query(page: Page) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}


def steps(page: Page) -> tuple[float, float]:
    return float(query(page)["from"]), float(query(page)["to"])


@contextmanager
def moved(page: Page) -> Iterator[None]:
    """What is done within changes the address."""
    before = page.url
    yield
    expect(page).not_to_have_url(before)
    timeline_drawn(page)


def expect_colours(page: Page, colours: list[str], *, more_than: int) -> None:
    """Waits until so many pixels of the canvas have each of the colours."""
    page.wait_for_function(
        f"""([colours, least]) => {{
            const counts = ({_COLOURS})(document.querySelector("#timeline canvas"));
            return colours.every((colour) => (counts[colour] || 0) > least);
        }}""",
        arg=[colours, more_than],
        polling=100,
    )


def focus(page: Page) -> Page:
    page.locator("#timeline").focus()
    return page


def test_the_wheel_zooms_at_the_pointer_and_the_address_follows(open_page: Open) -> None:
    page = timeline_drawn(open_page("/run/slow/timeline"))
    assert query(page) == {}
    at(page, 0.5, 0.3)
    with moved(page):
        page.mouse.wheel(0, -300)
    first, last = steps(page)
    assert 40 < first < 120 < last < 200
    with moved(page):
        page.mouse.wheel(0, -300)
    closer = steps(page)
    assert first < closer[0] < closer[1] < last
    assert closer[1] - closer[0] == pytest.approx((last - first) * 0.55, rel=0.15)
    with moved(page):
        page.mouse.wheel(0, 300)
    assert steps(page) == pytest.approx((first, last), abs=2)


def test_a_view_that_is_sent_shows_the_same(open_page: Open) -> None:
    page = timeline_drawn(open_page("/run/slow/timeline?from=100&to=109&rank=2"))
    readout = page.locator("#timeline-readout")
    expect(readout).to_contain_text(re.compile(r"^Rank 2, step 10[45] \("))
    expect(readout).to_contain_text("rank 2 was last, by its compute")
    assert query(page) == {"from": "100", "to": "109", "rank": "2"}


def test_dragging_moves_what_is_seen(open_page: Open) -> None:
    page = timeline_drawn(open_page("/run/slow/timeline?from=100&to=139"))
    at(page, 0.8, 0.5)
    page.mouse.down()
    at(page, 0.3, 0.5)
    page.mouse.up()
    expect(page).to_have_url(re.compile(r"from=1[12]\d"))
    assert steps(page)[0] == pytest.approx(120, abs=2)


Touch = Callable[..., None]


@pytest.fixture
def fingers(open_page: Open) -> Callable[[Page], Touch]:
    """Moves fingers on the lanes, each from one place to another: shares of their width and height."""

    def on(page: Page) -> Touch:
        session = page.context.new_cdp_session(page)
        session.send("Emulation.setTouchEmulationEnabled", {"enabled": True, "maxTouchPoints": 5})
        box = page.locator("#timeline canvas").bounding_box()
        assert box is not None
        left, top, below = 170.0, 82.0, 24.0

        def point(number: int, x: float, y: float) -> dict[str, float]:
            across, down = box["width"] - left, box["height"] - top - below
            return {
                "x": box["x"] + left + x * across,
                "y": box["y"] + top + y * down,
                "id": number,
            }

        def touch(*ways: tuple[tuple[float, float], tuple[float, float]], turns: int = 8) -> None:
            for turn in range(turns + 1):
                part = turn / turns
                places = [
                    point(number, *(a + part * (b - a) for a, b in zip(begin, end, strict=True)))
                    for number, (begin, end) in enumerate(ways)
                ]
                kind = "touchMove" if turn else "touchStart"
                session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": places})
            session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})

        return touch

    return on


def page_stays(page: Page) -> None:
    assert page.evaluate("[visualViewport.scale, scrollX, scrollY]") == [1, 0, 0]


def test_two_fingers_zoom_about_what_is_between_them(
    open_page: Open, fingers: Callable[[Page], Touch]
) -> None:
    page = timeline_drawn(open_page("/run/slow/timeline?from=100&to=139"))
    touch = fingers(page)
    with moved(page):
        # Twice as far apart is twice as close, about step 128.
        touch(((0.6, 0.5), (0.5, 0.5)), ((0.8, 0.5), (0.9, 0.5)))
    assert steps(page) == (pytest.approx(114, abs=1.5), pytest.approx(133, abs=1.5))
    with moved(page):
        touch(((0.5, 0.5), (0.6, 0.5)), ((0.9, 0.5), (0.8, 0.5)))
    assert steps(page) == (pytest.approx(100, abs=1.5), pytest.approx(139, abs=1.5))
    page_stays(page)


def test_what_is_under_two_fingers_goes_with_them(
    open_page: Open, fingers: Callable[[Page], Touch]
) -> None:
    page = timeline_drawn(open_page("/run/slow/timeline?from=100&to=139"))
    with moved(page):
        fingers(page)(((0.5, 0.5), (0.25, 0.5)), ((0.75, 0.5), (0.5, 0.5)))
    first, last = steps(page)
    assert (first, last) == (pytest.approx(110, abs=1.5), pytest.approx(149, abs=1.5))


def test_fingers_above_each_other_zoom_in_ranks(
    open_page: Open, fingers: Callable[[Page], Touch]
) -> None:
    page = timeline_drawn(open_page("/run/slow/timeline?from=100&to=139"))
    with moved(page):
        fingers(page)(((0.5, 0.375), (0.5, 0.25)), ((0.5, 0.625), (0.5, 0.75)))
    top, bottom = map(int, query(page)["ranks"].split("-"))
    assert (top, bottom) == (pytest.approx(2, abs=1), pytest.approx(5, abs=1))
    assert steps(page) == (100, 139)
    page_stays(page)


def test_one_finger_drags_and_no_finger_that_leaves_is_a_click(
    open_page: Open, fingers: Callable[[Page], Touch]
) -> None:
    page = timeline_drawn(open_page("/run/slow/timeline?from=100&to=139"))
    touch = fingers(page)
    with moved(page):
        touch(((0.75, 0.5), (0.25, 0.5)))
    assert steps(page) == (pytest.approx(120, abs=1.5), pytest.approx(159, abs=1.5))
    # One finger rests while the other moves.
    with moved(page):
        touch(((0.25, 0.5), (0.25, 0.5)), ((0.5, 0.5), (0.75, 0.5)))
    assert steps(page)[1] - steps(page)[0] == pytest.approx(19, abs=2)
    assert urlsplit(page.url).path == "/run/slow/timeline"


def test_up_and_down_one_finger_scrolls_the_page(
    open_page: Open, fingers: Callable[[Page], Touch]
) -> None:
    page = timeline_drawn(open_page("/run/thousand/timeline"))
    fingers(page)(((0.5, 0.6), (0.5, 0.1)))
    page.wait_for_function("scrollY > 20")
    assert query(page) == {}


def test_a_trackpad_zooms_the_timeline_and_never_the_page(open_page: Open) -> None:
    page = timeline_drawn(open_page("/run/slow/timeline"))
    page.evaluate(
        "() => { window.kept = []; "
        "addEventListener('wheel', event => kept.push(event.defaultPrevented)); }"
    )
    at(page, 0.5, 0.5)
    page.keyboard.down("Control")
    # Further out than the whole run there is nothing, for the page neither.
    page.mouse.wheel(0, 20)
    with moved(page):
        for _ in range(4):
            page.mouse.wheel(0, -10)
        page.wait_for_function("kept.length === 5")
    page.keyboard.up("Control")
    first, last = steps(page)
    assert last - first == pytest.approx(240 * 0.67, rel=0.1)
    assert 60 < (first + last) / 2 < 180
    assert page.evaluate("kept") == [True] * 5
    page_stays(page)


def test_every_key_does_what_its_list_says(open_page: Open) -> None:
    page = focus(timeline_drawn(open_page("/run/slow/timeline")))
    for _ in range(2):
        with moved(page):
            page.keyboard.press("+")
    first, last = steps(page)
    assert last - first < 240 / 3
    with moved(page):
        page.keyboard.press("ArrowRight")
    later, _ = steps(page)
    assert later > first
    assert query(page)["rank"] == "0"
    with moved(page):
        page.keyboard.press("ArrowLeft")
    assert steps(page)[0] < later
    for key, rank in (("ArrowDown", "1"), ("ArrowDown", "2"), ("ArrowUp", "1")):
        with moved(page):
            page.keyboard.press(key)
        assert query(page)["rank"] == rank
    with moved(page):
        page.keyboard.press("-")
    assert steps(page)[1] - steps(page)[0] > last - first
    with moved(page):
        page.keyboard.press("]")
    assert query(page)["ranks"] == "0-3"
    with moved(page):
        page.keyboard.press("PageDown")
    assert query(page)["ranks"] == "3-7"
    with moved(page):
        page.keyboard.press("s")
    assert query(page)["show"] == "lateness"
    expect(page.get_by_role("button", name="Colour by lateness")).to_have_attribute(
        "aria-pressed", "true"
    )
    with moved(page):
        page.keyboard.press("End")
    assert steps(page)[1] == 239
    with moved(page):
        page.keyboard.press("Home")
    assert set(query(page)) == {"rank", "show"}
    page.keyboard.press("?")
    expect(page.get_by_text("open the step; where a cell holds several")).to_be_visible()


def test_step_by_step_no_step_is_left_out(open_page: Open) -> None:
    page = focus(timeline_drawn(open_page("/run/slow/timeline?from=100&to=106&rank=2")))
    readout = page.locator("#timeline-readout")
    for step in range(104, 116):
        page.keyboard.press("Shift+ArrowRight")
        expect(readout).to_contain_text(f"step {step} (")
        timeline_drawn(page)


def test_the_pointer_tells_what_is_under_it(open_page: Open) -> None:
    page = timeline_drawn(open_page("/run/slow/timeline?from=100&to=109"))
    at(page, 0.5, 2.5 / 8)
    tip = page.locator(".timeline-tip")
    expect(tip).to_contain_text(re.compile(r"Rank 2, step 10[45]"))
    for words in ("alpha", "Compute", "Waiting for slow ranks", "than the reference rank"):
        expect(tip).to_contain_text(words)
    at(page, 0.5, -0.3)
    expect(tip).to_be_hidden()


def test_a_cell_and_the_saved_table_have_the_pauses_in_it(open_page: Open) -> None:
    page = timeline_drawn(open_page("/run/paused/timeline?from=40&to=41"))
    tip = page.locator(".timeline-tip")
    at(page, 0.3, 0.75)
    expect(tip).to_contain_text("Rank 1, step 40")
    expect(tip).to_contain_text("1 garbage collection, ")
    at(page, 0.3, 0.25)
    expect(tip).to_contain_text("Rank 0, step 40")
    expect(tip).not_to_contain_text("garbage collection")
    paused = {
        (line["ranks"], line["first step"])
        for line in table(saved(page, "Ranks over time", "CSV"))
        if float(line["garbage collection, ms"])
    }
    assert paused == {("rank 1", "40")}


def test_a_click_opens_the_step_and_back_leads_to_the_same_view(open_page: Open) -> None:
    page = timeline_drawn(open_page("/run/slow/timeline?from=100&to=109&rank=2"))
    at(page, 0.05, 0.5)
    page.mouse.down()
    page.mouse.up()
    expect(page).to_have_url(re.compile(r"/run/slow/step/100$"))
    expect(page.get_by_role("heading", name=re.compile("^Step 100 took "))).to_be_visible()
    page.get_by_role("link", name="Next step").click()
    expect(page).to_have_url(re.compile(r"/run/slow/step/101$"))
    page.go_back()
    page.go_back()
    timeline_drawn(page)
    assert steps(page) == (100, 109)


def test_enter_opens_the_step_and_goes_closer_to_a_cell(open_page: Open) -> None:
    page = focus(timeline_drawn(open_page("/run/slow/timeline", width=NARROW)))
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("from="))
    first, last = steps(page)
    assert last - first < 8
    timeline_drawn(page)
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/run/slow/step/\d+$"))


def test_a_slow_rank_among_a_thousand_is_one_press_away(open_page: Open) -> None:
    page = timeline_drawn(open_page("/run/thousand/timeline"))
    page.get_by_role("button", name="Slow rank 700").click()
    expect(page).to_have_url(re.compile("rank=700"))
    assert query(page)["ranks"] == "692-707"
    expect(page.locator("#timeline-readout")).to_contain_text("Rank 700, step")
    page.get_by_role("button", name="The whole run on all ranks").click()
    expect(page).not_to_have_url(re.compile("ranks="))


def test_leaving_the_page_leaves_the_next_address_alone(open_page: Open) -> None:
    page = timeline_drawn(open_page("/run/slow/timeline"))
    page.clock.install()
    at(page, 0.5, 0.5)
    page.mouse.wheel(0, -300)
    page.get_by_role("link", name="Overview").click()
    expect(page.get_by_role("heading", level=2).first).to_contain_text("Rank 2")
    # Whatever the timeline has put off until later is done now.
    page.clock.run_for(10_000)
    assert urlsplit(page.url).query == ""


def test_hostile_hosts_are_text(open_page: Open) -> None:
    page = open_page("/")
    page.get_by_role("link", name=re.compile("script")).first.click()
    page.get_by_role("link", name="Timeline", exact=True).click()
    timeline_drawn(page)
    at(page, 0.5, 0.1)
    expect(page.locator(".timeline-tip")).to_contain_text("<img src=x onerror=alert(1)>")
    assert page.locator("#timeline-card img, #timeline-card b").count() == 0


@pytest.mark.parametrize(("scheme", "width"), [("light", WIDE), ("dark", NARROW)])
def test_lanes_have_the_colours_of_the_scheme_and_fit(
    open_page: Open, scheme: str, width: int
) -> None:
    page = timeline_drawn(open_page("/run/slow/timeline?from=60&to=84", width=width, scheme=scheme))
    stages = ("compute", "wait", "allreduce", "imbalance", "validation")
    expect_colours(page, [getattr(COLOURS[name], scheme) for name in stages], more_than=50)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_switching_between_light_and_dark_draws_anew(open_page: Open) -> None:
    page = timeline_drawn(open_page("/run/slow/timeline"))
    page.get_by_role("button", name="Switch between light and dark").click()
    expect_colours(page, [COLOURS["compute"].dark], more_than=1000)
    assert COLOURS["compute"].light not in page.locator("#timeline canvas").evaluate(_COLOURS)


def test_a_refusal_of_the_server_is_reported(open_page: Open) -> None:
    page = timeline_drawn(open_page("/run/slow/timeline"))
    page.route(
        re.compile("/timeline/slow"),
        lambda route: route.fulfill(status=200, body="gone wrong", content_type="text/plain"),
    )
    at(page, 0.5, 0.5)
    page.mouse.wheel(0, -300)
    expect(page.locator("#timeline-readout")).not_to_contain_text("Point at a step")


def test_the_choice_of_a_dimension_arranges_and_labels_the_lanes(open_page: Open) -> None:
    page = timeline_drawn(open_page("/run/mesh/timeline"))

    def lanes_with(column: str) -> list[dict[str, str]]:
        # The address changes before the lanes are drawn again.
        wait_until(lambda: column in table(saved(page, LANES, "CSV"))[0], f"lanes with {column}")
        return table(saved(page, LANES, "CSV"))

    choice = page.get_by_label("Ranks by")
    expect(choice.locator("option")).to_have_text(["host", "pp", "dp"])
    with moved(page):
        choice.select_option("dp")
    assert query(page) == {"by": "dp"}
    expect(choice).to_have_value("dp")
    lanes = [(row["ranks"], row["places in dp"]) for row in lanes_with("places in dp")]
    assert list(dict.fromkeys(lanes)) == [
        *((f"rank {rank}", "dp 0") for rank in (0, 2, 4, 6)),
        *((f"rank {rank}", "dp 1") for rank in (1, 3, 5, 7)),
    ]
    with moved(page):
        choice.select_option("host")
    assert query(page) == {}
    assert [row["hosts"] for row in lanes_with("hosts")]
