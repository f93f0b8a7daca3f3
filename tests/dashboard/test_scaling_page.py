"""The page of runs on several numbers of ranks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect
from support.epoch_logs import EpochJob, write_keras
from support.printed_steps import written_megatron
from support.step_logs import run_of_job

from stallscope.analysis.scaling.projection import CURVES
from stallscope.dashboard import RunStore
from stallscope.dashboard.addresses import scaling_address
from stallscope.dashboard.app import view_at
from stallscope.parsers import read

from .browsing import NARROW, Open, served
from .cases import REAL, SCRIPT
from .content import of_type, texts


@pytest.fixture(scope="module")
def sizes(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    jobs = [
        replace(REAL, ranks=ranks, run_id=f"on-{ranks}", facts={"model": SCRIPT})
        for ranks in (1, 2, 4)
    ]
    jobs.append(replace(REAL, ranks=4, seed=9, run_id="again", facts={"model": SCRIPT}))
    jobs.append(replace(REAL, ranks=2, run_id="else", facts={"model": "another"}))
    return RunStore([run_of_job(tmp_path_factory.mktemp("run"), job) for job in jobs])


def said_at(store: RunStore, search: str = "") -> Any:
    return texts(view_at(store, "/scaling", search).content)


def test_all_runs_of_a_job_are_held_against_each_other(sizes: RunStore) -> None:
    said = said_at(sizes)
    assert any("efficiency on 4 ranks" in text for text in said)
    assert f"{SCRIPT}, real data" in said
    assert {"Throughput over ranks", "Efficiency over ranks", "Step time by cause"} <= set(said)
    assert {"Throughput and efficiency", "Where efficiency is lost"} <= set(said)
    for curve in CURVES:
        assert curve.source in said
    # One size is nothing to be seen without being asked for.
    assert "another, real data" not in said


def test_chosen_runs_are_shown_and_no_others(sizes: RunStore) -> None:
    address = scaling_address(["on-1", "on-2"])
    assert address == "/scaling?runs=on-1,on-2"
    said = said_at(sizes, address.partition("/scaling")[2])
    assert any("efficiency on 2 ranks" in text for text in said)
    assert "4" not in said


def test_one_size_that_was_chosen_is_shown(sizes: RunStore) -> None:
    assert "Measured on 2 ranks only" in said_at(sizes, "?runs=else")


def test_a_missing_run_is_reported(sizes: RunStore) -> None:
    assert view_at(sizes, "/scaling", "?runs=nobody").title == "No such run"


def test_without_several_sizes_the_page_says_so(store: RunStore) -> None:
    said = said_at(RunStore([store.analysis("real").run]))
    assert any("None of these runs" in text for text in said)


def test_of_many_runs_some_are_to_be_chosen(sizes: RunStore) -> None:
    run = sizes.analysis("on-1").run
    said = said_at(RunStore([run] * 31))
    assert "There are 31 runs here: select those to compare in the list." in said


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    facts = {"model": "same"}
    healthy = replace(REAL, input_ms=1.0)
    slow = {(1, "input"): 90.0}
    jobs = [
        replace(healthy, ranks=1, run_id="one", facts={**facts, "run_name": "nightly"}),
        replace(healthy, ranks=2, run_id="quick", facts={**facts, "run_name": "nightly"}),
        replace(healthy, ranks=2, run_id="slow", slow=slow, facts={**facts, "run_name": "weekly"}),
        replace(healthy, ranks=4, run_id="late", slow=slow, facts={**facts, "run_name": "weekly"}),
    ]
    return RunStore([run_of_job(tmp_path_factory.mktemp("run"), job) for job in jobs])


def test_a_run_with_a_fault_is_no_repeat_of_one_without(faulty: RunStore) -> None:
    said = said_at(faulty)
    assert "This page cannot be shown" not in said
    rows = [row for row in _rows_of(faulty) if row[0] == "2"]
    assert [row[2] for row in rows] == ["–"]
    # Beside clean runs of other sizes it says what is wrong with the only one.
    assert any("every run on 4 ranks has a fault: weekly" in text for text in said)
    assert any("slow rank 1" in row[2] for row in _rows_of(faulty) if row[0] == "4")


def test_runs_are_grouped_by_what_is_chosen(faulty: RunStore) -> None:
    said = said_at(faulty, "?by=run")
    assert "nightly, real data" in said
    assert "weekly, real data" in said
    assert any("grouped by run name" in text for text in said)
    # A fact that it is not known is left alone.
    assert "same, real data" in said_at(faulty, "?by=colour")


def test_the_choice_of_a_grouping_offers_facts(faulty: RunStore) -> None:
    (select,) = of_type(view_at(faulty, "/scaling", "?by=model").content, "Select")
    assert select.value == "model"
    assert {"run", "model", "data", "framework"} <= {option["value"] for option in select.data}


def test_logs_of_epochs_scale_and_those_without_ranks_are_named(tmp_path: Path) -> None:
    runs = [read(str(write_keras(tmp_path, EpochJob(ranks, 40.0))))[0] for ranks in (1, 2)]
    unnamed = write_keras(tmp_path, EpochJob(4, 40.0)).rename(tmp_path / "stdout.txt")
    said = said_at(RunStore([*runs, *read(str(unnamed))]))
    assert "50.0% efficiency on 2 ranks" in said
    assert any("stdout.txt: the log does not contain the number of ranks" in text for text in said)


def _rows_of(store: RunStore) -> list[list[str]]:
    """The lines of the tables of runs: ranks, run, fault."""
    content = view_at(store, "/scaling", "").content
    return [
        cells
        for table in of_type(content, "Table")
        if texts(table)[:3] == ["Ranks", "Run", "Fault"]
        for row in of_type(table, "TableTr")
        if (cells := texts(row))[0] != "Ranks"
    ]


@pytest.fixture(scope="module")
def address(sizes: RunStore) -> Iterator[str]:
    with served(sizes) as url:
        yield url


@pytest.mark.browser
def test_names_of_curves_leave_most_of_a_narrow_page_to_the_curves(open_page: Open) -> None:
    page = open_page("/scaling", width=NARROW)
    figure = page.get_by_role("img", name="Efficiency over ranks")
    expect(figure.get_by_text("this job")).to_be_visible()
    plot, card = figure.locator(".nsewdrag").bounding_box(), figure.bounding_box()
    assert plot is not None
    assert card is not None
    assert plot["width"] > card["width"] / 2
    # Whole, in two lines where they are long.
    names = figure.locator(".annotation").all_text_contents()
    assert not any("…" in name for name in names)
    assert any("HorovodRunner" in name for name in names)


@pytest.mark.browser
def test_lines_of_ideal_rates_do_not_reach_over_the_next_bars_on_a_phone(open_page: Open) -> None:
    page = open_page("/scaling", width=NARROW)
    figure = page.get_by_role("img", name="Throughput over ranks")
    lines = figure.locator(".scatterlayer .trace").first.locator(".point")
    expect(lines.nth(1)).to_be_attached()
    boxes = [box for line in lines.all() if (box := line.bounding_box()) is not None]
    assert len(boxes) > 1
    for left, right in pairwise(sorted(boxes, key=lambda box: box["x"])):
        assert left["x"] + left["width"] < right["x"]


@pytest.mark.browser
def test_an_axis_that_starts_at_zero_shows_it_on_a_phone(open_page: Open) -> None:
    page = open_page("/scaling", width=NARROW)
    figure = page.get_by_role("img", name="Step time by cause")
    ticks = figure.locator(".xtick text")
    expect(ticks.first).to_have_text("0")
    assert ticks.count() >= 2


def test_printed_logs_of_unknown_jobs_are_in_no_curve(tmp_path: Path) -> None:
    """Names say nothing: one program's jobs are numbered one after another."""
    for layers in ((None, None), (12, 24)):
        logs = [
            written_megatron(tmp_path / f"slurm-{n}.out", n, layers=deep)
            for n, deep in zip((8, 64), layers, strict=True)
        ]
        said = said_at(RunStore([run for log in logs for run in read(str(log))]))
        assert "Throughput over ranks" not in said
        (reason,) = said[said.index("Left out") + 1 :]
        assert re.fullmatch(
            r"\S*slurm-8.out and \S*slurm-64.out: in no curve, as nothing in these .*", reason
        )


def test_printed_logs_with_the_same_settings_are_a_curve(tmp_path: Path) -> None:
    slower = {8: 1600.0, 64: 2000.0}
    names = {8: "before.log", 64: "after.log"}
    logs = [written_megatron(tmp_path / names[n], n, ms, 24) for n, ms in slower.items()]
    said = said_at(RunStore([run for log in logs for run in read(str(log))]))
    # As many samples of all ranks together, in a step that is a quarter longer.
    assert any(
        re.fullmatch(r"10(\.\d+)?% of the throughput per rank that 8 ranks have, on 64", text)
        for text in said
    )
    assert "Left out" not in said
    assert "TimeHistory" not in " ".join(said)
