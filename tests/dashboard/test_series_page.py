"""The page of a job that was run again and again: three runs of it, and thirty."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect
from simulator import Job, Noise, simulate

from stallscope.arrays.stats import Mean
from stallscope.charts import COLOURS
from stallscope.charts.curves import Level, OverRuns, RunDot
from stallscope.dashboard import RunStore
from stallscope.dashboard.addresses import compare_address
from stallscope.dashboard.app import view_at
from stallscope.dashboard.components.chart_csv import chart_csv
from stallscope.run import Run

from .browsing import NARROW, WIDE, Open, served, tab_stops
from .cases import SCRIPT
from .content import charts, of_type, texts

NIGHT = Job(ranks=2, steps=120, noise=Noise(cv=0.05, phi=0), facts={"model": "resnet50"})
SLOWER_FROM = 21
NIGHTS = [f"night-{night:02}" for night in range(1, 31)]
FEW = ["a", "b", "c"]


def a_run(run_id: str, seed: int, **changed: object) -> Run:
    return simulate(replace(NIGHT, run_id=run_id, seed=seed, **changed)).run  # type: ignore[arg-type]


def night(number: int) -> Run:
    slower = number >= SLOWER_FROM
    versions = {"keras": "3.1" if slower else "3.0"}
    name = f"night {number}" if number != SLOWER_FROM else SCRIPT
    facts = {**NIGHT.facts, "versions": versions}
    compute = 165.0 if slower else 150.0
    return a_run(NIGHTS[number - 1], number, run_name=name, compute_ms=compute, facts=facts)


@pytest.fixture(scope="module")
def series() -> RunStore:
    runs = [night(number) for number in range(1, 31)]
    runs += [a_run(name, 100 + seed) for seed, name in enumerate(FEW)]
    runs += [a_run("other", 200, ranks=3), a_run("nothing", 201, steps=0)]
    return RunStore(runs)


def said_of(store: RunStore, *ids: str) -> list[str]:
    return texts(view_at(store, *compare_address(*ids).split("?")).content)


@pytest.mark.broad
def test_the_page_says_since_when_steps_are_longer_and_what_changed_there(
    series: RunStore,
) -> None:
    view = view_at(series, *compare_address(*NIGHTS).split("?"))
    said = texts(view.content)
    assert view.title == "resnet50: compare 30 runs"
    (headline,) = [text for text in said if text.startswith("Steps are ")]
    assert headline.endswith(f"% longer since {SCRIPT}")
    assert f"At run 21 ({SCRIPT}): versions keras 3.0 → 3.1." in said
    drawn = charts(view.content)
    assert list(drawn) == ["over-runs-0-step", "over-runs-0-compute", "ledgers-0"]
    assert len(drawn["over-runs-0-step"].data[0].x) == 30
    assert {"Over the runs", "Since when", "The runs"} <= set(said)


def test_a_single_run_of_a_job_has_no_empty_chart_over_the_runs(series: RunStore) -> None:
    content = view_at(series, *compare_address(*FEW, "other").split("?")).content
    drawn = charts(content)
    assert {name for name in drawn if name.startswith("over-runs-0")}
    assert not {name for name in drawn if name.startswith("over-runs-1")}
    tables = [getattr(part, "aria-label", "") for part in of_type(content, "Div")]
    assert tables.count("Over the runs") == 1
    assert "ledgers-1" in drawn


def test_every_run_of_the_table_leads_to_its_own_page(series: RunStore) -> None:
    content = view_at(series, *compare_address(*NIGHTS).split("?")).content
    links = {anchor.href: anchor.children for anchor in of_type(content, "Anchor")}
    assert list(links) == [f"/run/{run_id}" for run_id in NIGHTS]
    assert links["/run/night-21"] == SCRIPT


def test_three_runs_are_too_few_to_tell_and_shown_all_the_same(series: RunStore) -> None:
    said = said_of(series, *FEW)
    assert "Compare 3 runs" in said
    assert any(text.startswith("Too few runs to tell: ") for text in said)
    assert "Step over the runs" in said
    assert "Since when" not in said


def test_runs_of_another_size_are_a_job_of_their_own(series: RunStore) -> None:
    said = said_of(series, *FEW, "other")
    assert "resnet50, 2 ranks, real data: 3 runs" in said
    assert "resnet50, 3 ranks, real data: 1 run" in said
    assert "not the same job as the first one here: another number of ranks" in said


def test_runs_of_different_jobs_are_shown_side_by_side(series: RunStore) -> None:
    content = view_at(series, *compare_address("a", "other", "night-01").split("?")).content
    assert "Different jobs" not in texts(content)
    jobs = RunStore([a_run(name, 1, ranks=ranks) for ranks, name in enumerate(FEW, 1)])
    content = view_at(jobs, *compare_address(*FEW).split("?")).content
    assert "Different jobs" in texts(content)
    assert len(charts(content)["ledgers"].layout.yaxis.ticktext) == 3
    links = [anchor.href for anchor in of_type(content, "Anchor")]
    assert links == [f"/run/{name}" for name in FEW]


def test_a_run_that_is_named_twice_counts_once(series: RunStore) -> None:
    assert "Compare two runs" in said_of(series, "a", "b", "a")


def test_a_run_without_steps_is_left_out_with_a_message(series: RunStore) -> None:
    said = said_of(series, *FEW, "nothing")
    assert "nothing is left out: it has no measured steps" in said


def test_runs_without_anything_to_compare_are_reported() -> None:
    store = RunStore([a_run(name, seed, steps=0) for seed, name in enumerate(FEW)])
    assert "None of these runs has steps that could be timed: there is nothing to compare." in (
        said_of(store, *FEW)
    )


def test_an_unknown_run_among_them_is_named(series: RunStore) -> None:
    assert view_at(series, *compare_address("a", "b", "nobody").split("?")).title == "No such run"


def test_the_numbers_of_a_figure_over_the_runs() -> None:
    dots = (
        RunDot("=one", Mean(10.0, (9.0, 11.0))),
        RunDot("two", None),
        RunDot("b", Mean(20, None)),
    )
    levels = (Level(1, 2, 10.0, 12.0), Level(3, 3, 20.0, 20.0))
    text = chart_csv(OverRuns("Step over the runs", "", "ms", dots, levels, ((3, "+100%"),)))
    assert isinstance(text, str)
    head, *rows = csv.reader(io.StringIO(text, newline=""))
    assert head == [
        *("number", "run", "Mean, ms", "Mean 95% low, ms", "Mean 95% high, ms", "Level, ms"),
        "Change",
    ]
    assert rows == [
        ["1", "'=one", "10.0", "9.0", "11.0", "10.0", ""],
        ["2", "two", "", "", "", "12.0", ""],
        ["3", "b", "20", "", "", "20.0", "'+100%"],
    ]


# In a browser


@pytest.fixture(scope="module")
def address(series: RunStore) -> Iterator[str]:
    with served(series) as url:
        yield url


@pytest.mark.browser
@pytest.mark.parametrize(
    ("ids", "scheme", "width"),
    [(FEW, "light", WIDE), (NIGHTS, "dark", NARROW)],
    ids=["three", "thirty"],
)
def test_a_series_is_drawn_and_accessible(
    open_page: Open, ids: list[str], scheme: str, width: int
) -> None:
    page = open_page(compare_address(*ids), scheme=scheme, width=width)
    figure = page.get_by_role("img", name="Step over the runs")
    dots = figure.locator(".scatterlayer .trace").first.locator(".points path")
    expect(dots).to_have_count(len(ids))
    colour = bytes.fromhex(getattr(COLOURS["steps"], scheme)[1:])
    expect(dots.first).to_have_css("fill", f"rgb({', '.join(map(str, colour))})")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    violations = Axe().run(page).response["violations"]
    assert [
        violation["help"]
        for violation in violations
        if violation["impact"] in ("serious", "critical")
    ] == []


@pytest.mark.browser
def test_a_series_is_walked_by_keyboard_and_its_numbers_are_saved(open_page: Open) -> None:
    page = open_page(compare_address(*NIGHTS))
    buttons = page.get_by_role("group", name="Save: Step over the runs")
    buttons.get_by_role("button", name="Save as SVG").focus()
    assert tab_stops(page, 1) == ["Save as CSV"]
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    rows = list(csv.reader(io.StringIO(Path(download.value.path()).read_text("utf-8-sig"))))
    assert len(rows) == 31
    assert rows[SLOWER_FROM][1] == SCRIPT
    assert rows[SLOWER_FROM][6].endswith("%")
    page.get_by_role("link", name="night 30").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("night 30")


def test_runs_that_are_not_shown_are_named_with_their_pages_on_top() -> None:
    """The third run has no steps, and is of another job than the others."""
    runs = [
        a_run("a", 1),
        a_run("b", 2),
        a_run("nothing", 3, ranks=3, steps=0),
        a_run("other", 4, ranks=4),
    ]
    store = RunStore([*runs, a_run("b", 2)])
    for ids in (["a", "b", "nothing"], ["a", "other", "nothing"]):
        content = view_at(store, *compare_address(*ids).split("?")).content
        said = texts(content)
        assert said.index("2 of 3 runs are shown") == 1
        assert " has no measured steps: its own page shows what its logs have." in said
        assert "/run/nothing" in [anchor.href for anchor in of_type(content, "Anchor")]
    said = said_of(store, "a", "b", "b-2")
    assert "2 of 3 runs are shown" in said
    assert " is a copy of another of these runs: compare the two alone to see both." in said
    assert not any("runs are shown" in text for text in said_of(store, "a", "b", "other"))
