"""The timeline of an elastic job: every generation with its own ranks, one after the other."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from playwright.sync_api import Page, expect
from support.generations import GROWN_AND_SHRUNK, write_generations

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.views.lanes import Lanes
from stallscope.dashboard import RunStore
from stallscope.dashboard.app import view_at
from stallscope.dashboard.pages.timeline_page import GENERATION_KEY
from stallscope.dashboard.store.cache import lanes_of
from stallscope.dashboard.timeline import head
from stallscope.dashboard.timeline.answer import end_of, names, row_of, start_of
from stallscope.parsers import read
from stallscope.run import Run

from .browsing import NARROW, WIDE, Open, served, timeline_drawn
from .content import of_type, texts

# The lanes in the order of rows, and the generations that have them.
ALPHA_0, BETA_1, GAMMA_1, GAMMA_2 = range(4)
MEMBERS = {ALPHA_0: (0, 1, 2), BETA_1: (0, 1), GAMMA_1: (2,), GAMMA_2: (1,)}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("generations")
    write_generations(folder, GROWN_AND_SHRUNK)
    (elastic_run,) = read(str(folder))
    return elastic_run


@pytest.fixture(scope="module")
def analysis(run: Run) -> Analysis:
    return analyse(run)


@pytest.fixture(scope="module")
def lanes(analysis: Analysis) -> Lanes:
    timeline = lanes_of(analysis)
    assert timeline is not None
    return timeline


@pytest.fixture(scope="module")
def address(run: Run) -> Iterator[str]:
    with served(RunStore([run])) as url:
        yield url


def test_the_page_has_every_generation_with_its_size(analysis: Analysis, lanes: Lanes) -> None:
    contents = head(analysis, lanes, "elastic", None, {})
    assert [
        (generation["number"], generation["size"]) for generation in contents["generations"]
    ] == [
        (0, 2),
        (1, 3),
        (2, 2),
    ]
    begins = [generation["begin"] for generation in contents["generations"]]
    assert begins == pytest.approx([0, 12, 60], abs=0.1)
    assert contents["generations"][1]["words"].startswith(
        "Generation 1: 3 ranks on 3 hosts, 70 steps"
    )
    assert contents["ranks"] == (0, 1, 1, 2)
    assert [contents["hosts"][host] for host in contents["hostOf"]] == [
        "alpha",
        "beta",
        "gamma",
        "gamma",
    ]
    assert contents["rowNames"] == ["0", "1g1", "1", "2"]
    assert contents["count"] == 210


def test_a_run_of_one_generation_marks_none(slow: tuple[Run, Lanes]) -> None:
    run, lanes = slow
    contents = head(analyse(run), lanes, "slow", None, {})
    assert contents["generations"] == []
    assert contents["rowNames"] == [str(rank) for rank in range(8)]
    said = texts(view_at(RunStore([run]), "/run/slow/timeline", "").content)
    assert GENERATION_KEY[0] not in said


def test_a_place_names_its_generation_and_is_found_again(lanes: Lanes) -> None:
    for low, high, named in (
        (0, 59, ("0g0", "59g0")),
        (52, 57, ("52g0", "57g0")),
        (62, 67, ("52g1", "57g1")),
        (55, 65, ("55g0", "55g1")),
    ):
        begin, end = int(lanes.begin[low]), int(lanes.end[high])
        assert names(lanes, begin, end) == named
        assert (start_of(lanes, named[0]), end_of(lanes, named[1])) == (begin, end)
    assert start_of(lanes, "52.25g1") == pytest.approx(
        lanes.begin[62] + (lanes.end[62] - lanes.begin[62]) / 4, abs=1
    )
    assert start_of(lanes, "52g7") is None
    # Without a generation, as in addresses of runs with one.
    assert (start_of(lanes, "52"), end_of(lanes, "52")) == (lanes.begin[52], lanes.end[62])


def test_a_rank_names_the_generation_that_had_it(lanes: Lanes) -> None:
    assert [row_of(lanes, text) for text in ("1", "1g2", "1g1", "1g0", "2", "2g1")] == [
        GAMMA_1,
        GAMMA_1,
        BETA_1,
        BETA_1,
        GAMMA_2,
        GAMMA_2,
    ]
    assert [row_of(lanes, text) for text in ("2g2", "1g9", "3", "g1", "1g", "1w1")] == [None] * 6


def test_an_address_with_generations_is_the_first_view(analysis: Analysis, lanes: Lanes) -> None:
    query = {"from": "50g1", "to": "54g1", "rank": "1g1", "ranks": "1g1-2"}
    contents = head(analysis, lanes, "elastic", None, query)
    assert contents["view"] == pytest.approx([lanes.begin[60] / 1e9, lanes.end[64] / 1e9])
    assert (contents["row"], contents["rows"]) == (BETA_1, [BETA_1, GAMMA_2 + 1])


def test_the_page_says_what_generations_there_are(run: Run) -> None:
    store = RunStore([run])
    said = texts(view_at(store, f"/run/{run.id}/timeline", "").content)
    assert any(text.startswith("3 generations of 2, 3 and 2 ranks, 210 steps in ") for text in said)
    assert GENERATION_KEY[0] in said


def links(run: Run, page: str, search: str = "") -> tuple[list[str], dict[str, str]]:
    content = view_at(RunStore([run]), f"/run/{run.id}/{page}", search).content
    return texts(content), {anchor.children: anchor.href for anchor in of_type(content, "Anchor")}


def test_a_step_of_each_generation_has_its_page(run: Run) -> None:
    step = f"/run/{run.id}/step"
    said, hrefs = links(run, "step/59", "?generation=0")
    assert any(text.startswith("Step 59 of generation 0 (2 ranks) took ") for text in said)
    assert any("Generations 0 and 1 trained this step." in text for text in said)
    assert hrefs["‹ Previous step"] == f"{step}/58?generation=0"
    assert hrefs["Next step ›"] == f"{step}/50?generation=1"
    assert hrefs["In generation 1"] == f"{step}/59?generation=1"
    assert hrefs["In the timeline"].startswith(f"/run/{run.id}/timeline?from=55g0&to=63g0&rank=")
    said, _ = links(run, "step/59")
    assert any(text.startswith("Step 59 of generation 1 (3 ranks) took ") for text in said)
    said, _ = links(run, "step/59", "?generation=2")
    assert "Generation 2 has no step 59" in said
    said, _ = links(run, "step/59", "?generation=7")
    assert "Generation 7 is not known" in said


def query(page: Page) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}


def point(page: Page, lanes: Lanes, row: int, position: int) -> None:
    """Move the pointer to the middle of a step of the whole run."""
    box = page.locator("#timeline canvas").bounding_box()
    assert box is not None
    left, top, below = 170.0, 102.0, 24.0
    middle = int(lanes.begin[position] + lanes.end[position]) / 2 / lanes.span
    page.mouse.move(
        box["x"] + left + middle * (box["width"] - left),
        box["y"] + top + (row + 0.5) / 4 * (box["height"] - top - below),
    )


@pytest.mark.browser
def test_each_lane_has_the_steps_of_the_generations_with_its_rank(
    open_page: Open, lanes: Lanes
) -> None:
    page = timeline_drawn(open_page("/run/run-a/timeline"))
    tip = page.locator(".timeline-tip")
    hosts = ("alpha", "beta", "gamma", "gamma")
    for row, generations in MEMBERS.items():
        for generation in range(3):
            # The first step takes longer than a pixel.
            point(page, lanes, row, int(lanes.starts[generation]))
            sizes = (2, 3, 2)
            expect(tip).to_contain_text(
                f"Rank {lanes.ranks[row]}, step {lanes.steps[lanes.starts[generation]]}"
            )
            expect(tip).to_contain_text(
                f"{hosts[row]}, generation {generation} ({sizes[generation]} ranks)"
            )
            if generation in generations:
                expect(tip).to_contain_text("Compute")
            else:
                expect(tip).to_contain_text("not in this generation")


@pytest.mark.browser
def test_the_key_goes_from_generation_to_generation_and_the_address_follows(
    open_page: Open,
) -> None:
    page = timeline_drawn(open_page("/run/run-a/timeline"))
    readout = page.locator("#timeline-readout")
    page.locator("#timeline").focus()
    for key, number, first, last in (("g", 1, 50, 119), ("g", 2, 115, 194), ("G", 1, 50, 119)):
        page.keyboard.press(key)
        expect(readout).to_contain_text(f"Generation {number}: ")
        timeline_drawn(page)
        assert (
            query(page).items() >= {"from": f"{first}g{number}", "to": f"{last}g{number}"}.items()
        )
    page.keyboard.press("ArrowDown")
    timeline_drawn(page)
    page.keyboard.press("ArrowDown")
    timeline_drawn(page)
    assert query(page)["rank"] == "1g1"
    page.reload()
    timeline_drawn(page)
    expect(readout).to_contain_text(
        re.compile(r"^Rank 1, steps? .* \(beta, generation 1 \(3 ranks\)")
    )
    assert query(page)["rank"] == "1g1"


@pytest.mark.browser
@pytest.mark.parametrize("opened", ["click", "Enter"])
def test_a_step_is_opened_in_its_generation(open_page: Open, opened: str) -> None:
    page = timeline_drawn(open_page("/run/run-a/timeline?from=52g0&to=54g0&rank=1g0"))
    if opened == "click":
        box = page.locator("#timeline canvas").bounding_box()
        assert box is not None
        page.mouse.click(box["x"] + (box["width"] + 170) / 2, box["y"] + 102 + 5)
    else:
        page.locator("#timeline").focus()
        page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"/step/53\?generation=0$"))
    heading = page.get_by_role("heading", level=2).first
    expect(heading).to_contain_text("Step 53 of generation 0 (2 ranks) took ")
    page.get_by_role("link", name="In generation 1").click()
    expect(page).to_have_url(re.compile(r"/step/53\?generation=1$"))
    expect(heading).to_contain_text("Step 53 of generation 1 (3 ranks) took ")
    page.get_by_role("link", name="In the timeline").click()
    timeline_drawn(page)
    assert query(page).items() >= {"from": "50g1", "to": "57g1"}.items()


@pytest.mark.browser
def test_a_generations_name_tells_of_it_and_shows_all_of_it(open_page: Open, lanes: Lanes) -> None:
    page = timeline_drawn(open_page("/run/run-a/timeline"))
    box = page.locator("#timeline canvas").bounding_box()
    assert box is not None
    share = int(lanes.begin[60]) / lanes.span
    at = (box["x"] + 170 + share * (box["width"] - 170) + 30, box["y"] + 102 - 46)
    page.mouse.move(*at)
    expect(page.locator(".timeline-tip")).to_have_text(
        re.compile("^Generation 1: 3 ranks on 3 hosts")
    )
    page.mouse.click(*at)
    expect(page).to_have_url(re.compile("from=50g1&to=119g1"))
    # The name of the last one starts before its lanes, because it is longer than they are.
    page.get_by_role("button", name="The whole run on all ranks").click()
    expect(page).not_to_have_url(re.compile("from="))
    page.mouse.move(box["x"] + box["width"] - 100, at[1])
    expect(page.locator(".timeline-tip")).to_have_text(
        re.compile("^Generation 2: 2 ranks on 2 hosts")
    )


@pytest.mark.browser
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_the_saved_picture_names_generations_and_their_sizes(open_page: Open, width: int) -> None:
    page = timeline_drawn(open_page("/run/run-a/timeline", width=width))
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as SVG").click()
    drawn = Path(download.value.path()).read_text()
    names = ("generation 0: 2 ranks", "generation 1: 3 ranks", "generation 2: 2 ranks")
    for name in names if width == WIDE else ("0: 2", "generation 1: 3 ranks", "2: 2 ranks"):
        assert f">{name}<" in drawn
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.browser
def test_saved_numbers_name_the_generation_and_leave_out_other_ranks(
    open_page: Open, lanes: Lanes
) -> None:
    page = timeline_drawn(open_page("/run/run-a/timeline"))
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as CSV").click()
    text = Path(download.value.path()).read_text("utf-8-sig")
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    saved = {(row["hosts"], row["ranks"], int(row["generation"])) for row in rows}
    hosts = ("alpha", "beta", "gamma", "gamma")
    assert saved == {
        (hosts[row], f"rank {lanes.ranks[row]}", generation)
        for row, generations in MEMBERS.items()
        for generation in generations
    }
    assert np.isfinite([float(row["Compute, ms"]) for row in rows]).all()
