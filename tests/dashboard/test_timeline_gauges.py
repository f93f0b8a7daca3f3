"""What machines measured, below the lanes of the timeline and on the same axis."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect

from stallscope.analysis import analyse
from stallscope.analysis.gains.what_if import Reason
from stallscope.analysis.views.lanes import Lanes
from stallscope.dashboard import RunStore
from stallscope.dashboard.app import view_at
from stallscope.dashboard.timeline import gauges_of, head
from stallscope.run import Run, Series

from .browsing import Open, served, timeline_drawn
from .cases import IMAGE
from .content import texts
from .timeline_answers import ask, read

S = 10**9
KEY = "gpu_utilization/%"


def wall_at(run: Run, lanes: Lanes, at: int) -> int:
    """Wall time of a place before the first gap of the axis, by the clock of rank 0."""
    first = int(lanes.generations[0].ledger.reduced[0]) - int(lanes.end[0])
    return first + at + run.logs[0].wall_minus_monotonic


def measured(run: Run, lanes: Lanes) -> Run:
    """Two GPUs whose values are the tenths of seconds on the axis, and what is beside them."""
    tenths = np.arange(1, 1 + lanes.span * 10 // S, dtype=np.int64)
    walls = wall_at(run, lanes, 0) + tenths * (S // 10)
    values = tenths % 100 + 0.0
    measured_series = [
        Series(f"gpu_{n}_utilization", "%", "node_0", None, "m.json", walls, values + 0.0 * n)
        for n in range(2)
    ]
    hostile = Series(f"{IMAGE}_x", "MB", IMAGE, None, IMAGE, walls, 1000.0 * values)
    elsewhere = Series("cpu_utilization", "%", None, None, "m.json", walls + 3600 * S, values)
    return replace(run, series=(*measured_series, hostile, elsewhere))


@pytest.fixture(scope="module")
def store(slow: tuple[Run, Lanes]) -> RunStore:
    return RunStore([measured(*slow)])


@pytest.fixture(scope="module")
def address(store: RunStore) -> Iterator[str]:
    with served(store) as url:
        yield url


def test_those_on_the_axis_can_be_chosen_the_most_telling_first(
    slow: tuple[Run, Lanes],
) -> None:
    run, lanes = measured(*slow), slow[1]
    analysis = analyse(run)
    gauges = gauges_of(analysis, lanes)
    told = head(analysis, lanes, "slow", None, {}, (), gauges)
    assert [gauge["label"] for gauge in told["gauges"]] == [
        "GPU utilization, % (2 GPUs)",
        f"{IMAGE} x, MB ({IMAGE})",
        "GPU 0 utilization, % (node_0)",
        "GPU 1 utilization, % (node_0)",
    ]
    assert (told["gauges"][0]["top"], told["gauges"][0]["factor"]) == (100, 1)
    assert (told["gauges"][1]["unit"], told["gauges"][1]["loggedUnit"]) == ("GB", "MB")
    assert told["shownGauge"] == 0
    chosen = {"gauge": "node_0/gpu_1_utilization/%"}
    assert head(analysis, lanes, "slow", None, chosen, (), gauges)["shownGauge"] == 3
    assert head(analysis, lanes, "slow", None, {"gauge": "x"}, (), gauges)["shownGauge"] == 0


def test_what_explains_the_verdict_is_shown_first(slow: tuple[Run, Lanes]) -> None:
    run, lanes = slow
    walls = wall_at(run, lanes, 0) + np.arange(1, 1 + lanes.span // S, dtype=np.int64) * S
    pressure = [
        Series("cgroup_io_pressure", "%", "alpha", rank, "m.json", walls, np.full(len(walls), 9.0))
        for rank in range(2)
    ]
    run = replace(run, series=(*measured(run, lanes).series, *pressure))
    analysis = analyse(run)
    reason = Reason("disk", "…", (1,), (), "", "%", "cgroup_io_pressure", 61.0, 2.0, (50.0, 70.0))
    explained = replace(analysis, bottleneck=replace(analysis.bottleneck, why=(reason,)))
    labels = [
        gauge["label"]
        for gauge in head(explained, lanes, "slow", None, {}, (), gauges_of(explained, lanes))[
            "gauges"
        ]
    ]
    assert labels[:3] == [
        "IO pressure in the cgroup, % (rank 1 on alpha)",
        "IO pressure in the cgroup, % (2 ranks)",
        "IO pressure in the cgroup, % (rank 0 on alpha)",
    ]
    assert labels[3] == "GPU utilization, % (2 GPUs)"


def test_values_stand_where_the_wall_clock_puts_them(
    store: RunStore, slow: tuple[Run, Lanes]
) -> None:
    answer = read(ask(store, "slow", begin="1", end="2", columns="10", gauge=KEY))
    assert answer["gauge"] == KEY
    # The value at 1.1 s is about the tenth of a second before it.
    assert answer["mean"].tolist() == [11, 12, 13, 14, 15, 16, 17, 18, 19, 20]
    closer = read(ask(store, "slow", begin="1.01", end="1.09", columns="200", gauge=KEY))
    assert set(closer["mean"].tolist()) == {11}


def test_what_is_between_steps_has_its_values_too(store: RunStore, slow: tuple[Run, Lanes]) -> None:
    _, lanes = slow
    (gap, *_) = lanes.gaps(0, lanes.span)
    begin, end = gap.begin / S, (gap.begin + sum(gap.parts)) / S
    answer = read(ask(store, "slow", begin=str(begin), end=str(end), columns="16", gauge=KEY))
    assert answer["mean"][0] == pytest.approx(begin * 10 % 100, abs=1.5)
    assert answer["mean"][-1] == pytest.approx(end * 10 % 100, abs=1.5)


def test_no_more_is_sent_than_a_screen_shows(store: RunStore) -> None:
    for columns in (90, 1100, 4096):
        answer = read(ask(store, "slow", columns=str(columns), gauge=KEY))
        assert [len(answer[name]) for name in ("low", "mean", "high")] == [columns] * 3
    few = read(ask(store, "slow", columns="16", gauge=KEY))
    assert (few["low"] < few["mean"]).all()
    assert (few["mean"] < few["high"]).all()


def test_what_is_not_there_is_refused_in_a_sentence(store: RunStore) -> None:
    response = ask(store, "slow", gauge="cpu_utilization/%")
    assert response.status_code == 404
    assert "no machine measured 'cpu_utilization/%'" in response.get_json()["error"]
    assert "mean" not in read(ask(store, "slow"))


def test_without_a_wall_clock_no_place_is_made_up(slow: tuple[Run, Lanes]) -> None:
    run = measured(*slow)
    bare = [{k: v for k, v in log.facts.items() if k != "anchor"} for log in run.logs]
    logs = tuple(
        replace(log, facts=log_facts) for log, log_facts in zip(run.logs, bare, strict=True)
    )
    assert gauges_of(analyse(replace(run, logs=logs)), slow[1]) == []


def test_without_stages_a_picture_shows_them(named_run: Callable[[str], Run]) -> None:
    run = named_run("without stamps")
    assert run.started_at is not None
    walls = round(run.started_at.timestamp() * S) + S * np.arange(3)
    utilization = Series(
        "cpu_utilization", "%", None, None, "m.json", walls, np.array([1.0, 2.0, 3.0])
    )
    shown = view_at(
        RunStore([replace(run, series=(utilization,))]), "/run/without-stamps/timeline", ""
    )
    assert "CPU utilization over the run" in texts(shown.content)


def test_without_series_nothing_is_to_be_chosen(named_run: Callable[[str], Run]) -> None:
    said = texts(view_at(RunStore([named_run("two ranks")]), "/run/two/timeline", "").content)
    assert "Below the lanes: " not in said


@pytest.mark.browser
def test_keys_and_the_list_choose_and_the_readout_tells(open_page: Open) -> None:
    page = timeline_drawn(open_page("/run/slow/timeline?from=40&to=60"))
    choice = page.get_by_label("Below the lanes")
    expect(choice).to_have_value(KEY)
    page.locator("#timeline").focus()
    page.keyboard.press("ArrowRight")
    readout = page.locator("#timeline-readout")
    expect(readout).to_contain_text("GPU utilization of 2 GPUs: ")
    page.keyboard.press("m")
    expect(choice).to_have_value(f"{IMAGE}/{IMAGE}_x/MB")
    expect(readout).to_contain_text(f"{IMAGE} x of {IMAGE}: ")
    expect(readout).to_contain_text(" GB.")
    page.keyboard.press("Shift+M")
    page.keyboard.press("Shift+M")
    expect(readout).to_contain_text("GPU 1 utilization of node_0: ")
    expect(page).to_have_url(re.compile("gauge=node_0%2Fgpu_1_utilization%2F%25"))
    page.reload()
    expect(page.get_by_label("Below the lanes")).to_have_value("node_0/gpu_1_utilization/%")
    page.get_by_label("Below the lanes").select_option(KEY)
    expect(page).not_to_have_url(re.compile("gauge="))


@pytest.mark.browser
def test_pointing_tells_what_was_measured(open_page: Open) -> None:
    page = timeline_drawn(open_page("/run/slow/timeline?from=40&to=40"))
    page.locator("#timeline-readout").scroll_into_view_if_needed()
    box = page.locator("#timeline canvas").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 170 + 0.5 * (box["width"] - 170), box["y"] + box["height"] - 50)
    expect(page.locator(".timeline-tip")).to_contain_text("GPU utilization of 2 GPUs: ")
    page.mouse.move(box["x"] + 20, box["y"] + box["height"] - 50)
    expect(page.locator(".timeline-tip")).to_be_hidden()


@pytest.mark.browser
def test_it_is_saved_with_the_numbers_and_the_drawing(open_page: Open) -> None:
    page = timeline_drawn(open_page("/run/slow/timeline"))
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as CSV").click()
    text = Path(download.value.path()).read_text("utf-8-sig")
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    gauge_rows = [row for row in rows if row["GPU utilization mean, %"]]
    assert {row["ranks"] for row in gauge_rows} == {"2 GPUs"}
    for row in gauge_rows[10:20]:
        low, mean, high = (
            float(row[f"GPU utilization {which}, %"]) for which in ("least", "mean", "greatest")
        )
        assert low <= mean <= high
        assert float(row["end, s"]) * 10 % 100 == pytest.approx(mean, abs=1.5)
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as SVG").click()
    drawing = Path(download.value.path()).read_text()
    assert "GPU utilization" in drawing
    assert "100%" in drawing
