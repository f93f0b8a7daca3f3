"""Every page of a run of any size is there, is small enough to be sent at once, and fits its window."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from dash import Dash
from playwright.sync_api import Page
from simulator import Fault, Job, simulate, write_logs
from support.epoch_logs import WRITERS, EpochJob
from support.printed_steps import written_megatron

from stallscope.dashboard import RunStore, create_app
from stallscope.dashboard.app import view_at
from stallscope.dashboard.components.notices import TABS
from stallscope.parsers import read
from stallscope.reports.run.run_tables import epochs_table
from stallscope.run import Run
from stallscope.text.job_words import epoch_figures

from .browsing import NARROW, Open, drawn, served
from .content import charts, of_type, table_rows, texts
from .test_communication_page import timeline_of

SAMPLES = Path(__file__).parents[2] / "sample_logs"
SLOW = Fault("compute", 60, ranks=(0,))
MOST_BYTES = 1_000_000
PATHS = [*TABS.values(), "step/20"]
MANY = Job(ranks=64, steps=120, epochs=3, validation_ms=200, faults=(SLOW,), run_id="many")
WIDE = 1400
ADDRESSES = [
    "/",
    *(f"/run/many/{path}?baseline=many-baseline" for path in PATHS if path != "live"),
    "/run/many/baseline",
    "/run/clean",
    "/run/recording/live",
    "/run/printed",
    "/run/printed/health",
    "/compare?runs=many,again",
    "/compare?runs=many,again,recording",
    "/compare?runs=many,thousand",
    "/scaling?runs=few,many",
    "/scaling?runs=few,many,thousand",
]

# Tables of few rows that scroll sideways, cards and stacked tables that cut their contents, labels
# below a chart that touch each other, and texts in a chart that overlap.
_CROWDED = """() => {
    const tables = [...document.querySelectorAll("#page .scroller")].filter((frame) =>
        !frame.closest("details:not([open])") &&
        frame.querySelectorAll("tbody tr").length <= 12 && frame.scrollWidth > frame.clientWidth + 1);
    const touching = (axis) => {
        const texts = [...axis.querySelectorAll(".xtick text")];
        const labels = texts.map((text) => text.getBoundingClientRect());
        labels.sort((first, second) => first.left - second.left);
        return labels.some((label, at) => at > 0 && label.left < labels[at - 1].right);
    };
    const overlap = (first, second) =>
        Math.min(first.right, second.right) - Math.max(first.left, second.left) > 1 &&
        Math.min(first.bottom, second.bottom) - Math.max(first.top, second.top) > 1;
    const overlapping = [...document.querySelectorAll("#page .js-plotly-plot")].filter((chart) => {
        const texts = [...chart.querySelectorAll(".annotation-text-g")];
        const boxes = texts.map((text) => text.getBoundingClientRect());
        return boxes.some((box, at) => boxes.slice(at + 1).some((next) => overlap(box, next)));
    });
    const cards = [...document.querySelectorAll("#page .mantine-Card-root")].filter((card) =>
        card.scrollWidth > card.clientWidth + 1);
    const stacked = [...document.querySelectorAll("#page .stacked")].filter((frame) =>
        getComputedStyle(frame.querySelector("thead")).position === "absolute" &&
        frame.scrollHeight > frame.clientHeight + 1);
    const axes = [...document.querySelectorAll("#page .xaxislayer-above")].filter(touching);
    return [...[...tables, ...stacked].map((table) => table.getAttribute("aria-label")),
        ...cards.map((card) => card.textContent),
        ...axes.map((axis) => axis.textContent),
        ...overlapping.map((chart) => chart.textContent)];
}"""


@cache
def app_of(ranks: int) -> Dash:
    steps = 2000 if ranks >= 1000 else 60
    return create_app(RunStore([simulate(Job(ranks=ranks, steps=steps, faults=(SLOW,))).run]))


def answer(app: Dash, path: str) -> Any:
    """What the browser gets when it goes to an address."""
    asked = {
        "output": "..page.children...loaded-page.data..",
        "outputs": [
            {"id": "page", "property": "children"},
            {"id": "loaded-page", "property": "data"},
        ],
        "inputs": [
            {"id": "address", "property": "pathname", "value": path},
            {"id": "address", "property": "search", "value": ""},
        ],
        "changedPropIds": ["address.pathname"],
    }
    return app.server.test_client().post("/_dash-update-component", json=asked).get_data()


@pytest.mark.broad
@pytest.mark.parametrize("ranks", [1, 4, 1000])
@pytest.mark.parametrize("path", PATHS)
def test_every_page_is_there_at_every_size(path: str, ranks: int) -> None:
    data = answer(app_of(ranks), f"/run/run-a/{path}".rstrip("/"))
    title = json.loads(data)["response"]["loaded-page"]["data"]["title"]
    assert "simulated" in title or "run-a" in title
    assert "cannot be shown" not in title
    assert len(data) < MOST_BYTES


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve a run of 64 ranks, its baseline, the same again, one of two ranks, one of a thousand, and
    a growing one.
    """
    folder = tmp_path_factory.mktemp("recording")
    for log in write_logs(simulate(replace(MANY, run_id="recording")), folder):
        lines = log.read_text().splitlines(keepends=True)
        log.write_text("".join(line for line in lines if not line.startswith("end,")))
    jobs = (MANY, MANY.baseline(), replace(MANY, run_id="again", seed=2))
    few = replace(MANY, ranks=2, run_id="few", seed=3)
    thousand = replace(MANY, ranks=1000, steps=60, run_id="thousand", seed=4)
    # Its advice has lines to copy.
    clean = replace(read(str(SAMPLES / "clean"))[0], id="clean")
    log = written_megatron(tmp_path_factory.mktemp("printed") / "train.log")
    printed = replace(read(str(log))[0], id="printed")
    several = (simulate(job).run for job in (*jobs, few, thousand))
    runs = [*several, *read(str(folder)), clean, printed]
    with served(RunStore(runs)) as url:
        yield url


@pytest.mark.browser
@pytest.mark.parametrize("path", ADDRESSES)
def test_every_page_fits_its_window(open_page: Open, path: str) -> None:
    """Errors in the browser's console fail the test, too."""
    for width, scheme in ((WIDE, "light"), (NARROW, "dark")):
        page = open_page(path, width=width, scheme=scheme)
        if "/live" not in path:  # which never comes to rest
            drawn(page)
        assert _too_wide(page) == [], width
        page.evaluate(
            "document.querySelectorAll('#page details').forEach((fold) => (fold.open = true))"
        )
        assert _too_wide(page) == [], width


def _too_wide(page: Page) -> list[str]:
    """Return what does not fit: the document, tables, and labels of charts."""
    sideways = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    crowded: list[str] = page.evaluate(_CROWDED)
    return ["the page", *crowded] if page.evaluate(sideways) else crowded


@pytest.mark.parametrize("path", TABS.values())
def test_every_page_of_a_run_without_steps_says_so(
    named_run: Callable[[str], Run], path: str
) -> None:
    data = answer(create_app(RunStore([named_run("no steps")])), f"/run/none/{path}".rstrip("/"))
    title = json.loads(data)["response"]["loaded-page"]["data"]["title"]
    assert "cannot be shown" not in title
    assert "No such" not in title


def test_pages_of_a_printed_log_have_nothing_that_its_lines_lack(tmp_path: Path) -> None:
    run = replace(read(str(written_megatron(tmp_path / "train.log")))[0], id="printed")
    store = RunStore([run])
    overview, health = (
        view_at(store, f"/run/printed{page}", "").content for page in ("", "/health")
    )
    for content in (overview, health):
        said = " ".join(texts(content))
        assert not re.search("not recorded|not measured|no end|killed|Recorder|Perfetto", said)
        tabs = texts(of_type(content, "Nav"))
        assert tabs == ["Overview", "Baseline", "Log health"]
    assert "64 ranks · 600 steps · lines about steps of Megatron-LM" in texts(overview)
    assert "Step time by printed timers" in texts(overview)
    assert set(charts(overview)) == {"by-cause", "step-time"}
    # One rank prints for all: that the others left no log is no fault.
    assert "Missing data" not in texts(health)
    (head, row) = table_rows(health, "What was read")
    assert head == ["File", "Lines of", "Size"]
    assert row[:2] == ["train.log", "rank 0"]
    facts = dict(table_rows(health, "How it was read")[1:])
    assert facts["Lines"].startswith("60 lines with the mean of 10 steps")
    assert facts["Ranks"] == "64 (from what the log says)"
    assert "0" not in facts.values()


def test_a_horovod_timeline_beside_a_printed_log_has_its_page(tmp_path: Path) -> None:
    run = replace(read(str(written_megatron(tmp_path / "train.log")))[0], id="printed")
    (tmp_path / "timeline.json").write_text(timeline_of(4))
    content = view_at(RunStore([run]), "/run/printed", "").content
    assert "Communication" in texts(of_type(content, "Nav"))


# Logs of TimeHistory have step times as well.
@pytest.mark.parametrize("writer", sorted({*WRITERS} - {"time-history"}))
def test_a_run_of_epochs_shows_the_figures_of_the_report(writer: str, tmp_path: Path) -> None:
    """No page has a box or a table of figures that were not measured."""
    WRITERS[writer](tmp_path, EpochJob(ranks=4, epoch_s=20.0, epochs=5))
    (run,) = read(str(tmp_path))
    store = RunStore([run])
    (listed,) = store.runs()
    overview = view_at(store, f"/run/{listed.id}", "").content
    analysis = store.analysis(listed.id)
    means = epoch_figures(analysis)
    assert "Mean epoch" in dict(means)
    assert {text for figure in means for text in figure} <= set(texts(overview))
    table = epochs_table(analysis)
    assert table is not None
    assert table_rows(overview, "Epochs") == [list(table.columns), *map(list, table.rows)]
    for page in ("", "/communication", "/stragglers", "/timeline"):
        assert "not measured" not in texts(view_at(store, f"/run/{listed.id}{page}", "").content)


def test_an_unknown_number_of_ranks_is_no_rank(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.log").write_text("Epoch 1/1\n78/78 - 16s - 205ms/step\n")
    runs = [replace(read(str(tmp_path / f"{name}.log"))[0], id=name) for name in ("a", "b")]
    store = RunStore(runs)
    compared = view_at(store, "/compare", "?runs=a,b").content
    assert texts(compared).count("ranks not known") == 2
    with_baseline = view_at(store, "/run/a/baseline", "?baseline=b").content
    facts = {row[0]: row[1:] for row in table_rows(with_baseline, "Are they the same job?")}
    assert facts["Ranks"][:2] == ["–", "–"]


def test_the_overview_of_a_run_without_steps_has_no_empty_boxes(
    named_run: Callable[[str], Run],
) -> None:
    assert "Slow steps" not in texts(
        view_at(RunStore([named_run("no steps")]), "/run/none", "").content
    )
