"""What the page of log health says."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from playwright.sync_api import expect
from support.late_timestamps import made_late
from support.step_logs import run_of_job, write_job

from stallscope.analysis.views.log_health import missing_timestamps, rank_logs, timestamps_measured
from stallscope.dashboard import RunStore
from stallscope.dashboard.app import view_at
from stallscope.dashboard.pages.health_page import ranks_card
from stallscope.parsers import read
from stallscope.run import Problem, Run

from .browsing import NARROW, WIDE, Open
from .cases import IMAGE, JOBS, REAL, SCRIPT, SLOW_RANK
from .content import assert_known_components, of_type, table_rows, texts


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Of 16 ranks, 5 and 6 left no log, 9 was killed within a line, and 12 has a line of nonsense."""
    folder = tmp_path_factory.mktemp("damaged")
    logs = write_job(folder, replace(SLOW_RANK, ranks=16))
    for log in logs[5:7]:
        log.unlink()
    lines = logs[9].read_text().splitlines(keepends=True)
    logs[9].write_text("".join(lines[:-60]) + lines[-60][:7])
    lines = logs[12].read_text().splitlines(keepends=True)
    lines[80] = "no,step,at,all\n"
    logs[12].write_text("".join(lines))
    return read(str(folder))[0]


def _page(store: RunStore, run_id: str) -> Any:
    return view_at(store, f"/run/{run_id}/health", "").content


def test_whole_logs_are_reported_as_whole(store: RunStore) -> None:
    said = texts(_page(store, "real"))
    assert "These logs are whole" in said
    assert any(
        text.startswith(
            "4 of 4 ranks on 1 host left 4 logs with 240 steps. Every rank has every step"
        )
        for text in said
    )
    assert "All 4 ranks left whole logs." in said
    # What is whole needs no box that says so again.
    assert not {"Missing data", "Findings", "Problems while reading"} & set(said)


def test_what_is_missing_is_listed_the_gravest_first(damaged: Run) -> None:
    said = texts(_page(RunStore([damaged]), "slow"))
    assert "These logs are not whole" in said
    missing = said[said.index("Missing data") + 1 :]
    assert missing[0] == "No log of ranks 5 and 6: 12.5% of the ranks."
    assert re.match(
        r"Steps that other ranks have are missing on ranks 9 and 12; most of them on rank 9, \d+ steps",
        missing[1],
    )
    assert missing[2] == "The last log of rank 9 has no end: running, or killed."
    assert missing[3] == "2 lines of ranks 9 and 12 could not be read."
    assert "Logs of some ranks are missing" in said


def test_ranks_with_problems_come_first(damaged: Run) -> None:
    head, *rows = table_rows(_page(RunStore([damaged]), "slow"), "What was read")
    assert head[:3] == ["Rank", "Host", "State"]
    assert [row[0] for row in rows[:6]] == ["5", "6", "9", "12", "0", "1"]
    assert rows[0][1:] == ["–", "no log", "0", "–", "–", "–", "–"]
    assert rows[2][2] == "no end: running, or killed"
    assert rows[2][-1] == "1"
    assert rows[3][5:] == ["239", "1", "1"]
    assert rows[4][4].endswith(" kB")


@pytest.mark.parametrize("whole", [True, False])
def test_ranks_are_folded_if_all_logs_are_whole(
    whole: bool, damaged: Run, named_run: Callable[[str], Run]
) -> None:
    store = RunStore([named_run("a slow rank") if whole else damaged])
    (fold,) = of_type(_page(store, "slow"), "Details")
    assert texts(fold)[0] == ("All 8 ranks" if whole else "All 16 ranks")
    assert getattr(fold, "open", False) is not whole


def test_the_rank_that_lacks_most_comes_first(damaged: Run) -> None:
    nothing_lacks = next(logs for logs in rank_logs(damaged) if logs.whole)
    lacking = [
        replace(nothing_lacks, rank=0, torn=1),
        replace(nothing_lacks, rank=1, missing_steps=2),
        replace(nothing_lacks, rank=2, missing_steps=300),
        replace(nothing_lacks, rank=3, ended=False),
        replace(nothing_lacks, rank=4, files=0),
        replace(nothing_lacks, rank=5),
    ]
    _, *rows = table_rows(ranks_card(lacking), "What was read")
    assert [row[0] for row in rows] == ["4", "2", "1", "3", "0", "5"]
    assert "5 ranks of 6 lack something; the most comes first." in texts(ranks_card(lacking))


def test_late_timestamps_are_counted_with_the_rank_that_has_most(
    named_run: Callable[[str], Run],
) -> None:
    run = named_run("four ranks")
    late = made_late(run, 3, "ready", range(20, 44), 500_000_000)
    said = " ".join(texts(_page(RunStore([late]), "real")))
    assert "A timestamp came late in 10.0% of steps, most often on rank 3 (10.0%)" in said
    assert "No timestamp is known to be late." in " ".join(texts(_page(RunStore([run]), "real")))


def test_problems_are_shown_where_they_are(damaged: Run) -> None:
    rows = table_rows(_page(RunStore([damaged]), "slow"), "Problems while reading")
    assert [row[0] for row in rows[1:]] == ["rank-00009.0.0.steps.csv", "rank-00012.0.0.steps.csv"]
    problems = tuple(Problem(f"log {n}", SCRIPT) for n in range(2000))
    # Logs in a folder would be read again, because the run has not ended.
    many = replace(damaged, problems=problems, source="elsewhere")
    content = _page(RunStore([many]), "slow")
    assert len(table_rows(content, "Problems while reading")) == 501
    assert any("1,500 more are not shown" in text for text in texts(content))


def test_every_step_is_missed_that_another_rank_of_the_generation_has(damaged: Run) -> None:
    logs = {rank.rank: rank for rank in rank_logs(damaged)}
    assert len(logs) == 16
    assert (logs[5].files, logs[5].host, logs[5].whole) == (0, None, False)
    assert logs[0].whole
    assert logs[9].steps + logs[9].missing_steps == 240


def test_numbers_far_apart_cost_no_memory(damaged: Run) -> None:
    step = damaged.steps["step"].to_numpy().copy()
    step[-1] = 2**52
    at = damaged.steps.schema.get_field_index("step")
    steps = damaged.steps.set_column(at, damaged.steps.schema.field(at), pa.array(step))
    logs = rank_logs(replace(damaged, steps=steps))
    assert logs[0].missing_steps == 1


def test_a_rank_of_two_generations_misses_nothing_of_the_one_it_was_not_in(tmp_path: Path) -> None:
    write_job(tmp_path, replace(REAL, steps=50))
    run = run_of_job(tmp_path, replace(REAL, ranks=2, steps=50, generation=1, first_step=50))
    logs = rank_logs(run)
    assert {rank.missing_steps for rank in logs} == {0}
    assert [rank.files for rank in logs] == [2, 2, 1, 1]


def test_clocks_and_stages_say_what_they_rest_on(store: RunStore) -> None:
    content = _page(store, "slow")
    assert table_rows(content, "Clocks")[1:] == [["alpha", "0"], ["beta", "7,000"]]
    assert any("Aligned by the completions of allreduces; " in text for text in texts(content))
    assert [row[1] for row in table_rows(content, "Stages")[1:]] == ["100% of steps"] * 3


def test_stamps_that_were_not_placed_have_their_reason(store: RunStore) -> None:
    content = _page(store, "without-stamps")
    said = texts(content)
    assert "These logs are whole, but hold no stages" in said
    assert any(f"ranks 0, 1, 2 and 3: the model runs eagerly {SCRIPT}" in text for text in said)
    assert [row[1] for row in table_rows(content, "Stages")[1:]] == ["0.0% of steps"] * 3
    run = store.analysis("without-stamps").run
    assert missing_timestamps(run)[0].ranks == (0, 1, 2, 3)
    assert set(timestamps_measured(run).values()) == {0.0}


def test_what_the_logs_do_not_say_of_the_recorder_is_not_made_up(store: RunStore) -> None:
    rows = dict(table_rows(_page(store, "real"), "How it was recorded")[1:])
    assert rows["Framework"] == "tensorflow"
    assert rows["Recorder's version"] == "not recorded"
    assert rows["Recorder's own cost"] == "not in these logs: recorders write it at the end"


def test_what_recording_cost_is_shown_where_logs_say_it(tmp_path: Path) -> None:
    cost = {"host_us_median": 12.5, "host_us_mean": 14.0, "turns": 60, "bytes": 2_000}
    run = run_of_job(
        tmp_path, replace(SLOW_RANK, facts={"recorder": "1.2.3", "recorder_cost": cost})
    )
    rows = dict(table_rows(_page(RunStore([run]), run.id), "How it was recorded")[1:])
    assert rows["Recorder's version"] == "1.2.3"
    assert rows["Recorder's own cost"] == (
        "12.5 µs of the training thread per step, at most 12.5 µs on a rank; 16.0 kB written"
    )


@pytest.mark.parametrize("name", JOBS)
def test_every_kind_of_run_has_the_page(name: str, named_run: Callable[[str], Run]) -> None:
    run = named_run(name)
    store = RunStore([run])
    content = _page(store, store.runs()[0].id)
    assert "This page cannot be shown" not in texts(content)
    assert len(table_rows(content, "What was read")) == 1 + run.size


def test_missing_steps_are_reported_first(named_run: Callable[[str], Run]) -> None:
    said = texts(_page(RunStore([named_run("no steps")]), "none"))
    assert "There is no step in these logs" in said


def test_hostile_names_are_text(named_run: Callable[[str], Run]) -> None:
    store = RunStore([named_run("hostile names")])
    content = _page(store, store.runs()[0].id)
    assert IMAGE in [row[1] for row in table_rows(content, "What was read")]
    assert_known_components(content)


@pytest.mark.browser
@pytest.mark.parametrize(("scheme", "width"), [("light", WIDE), ("dark", NARROW)])
def test_the_page_fits_every_screen(open_page: Open, scheme: str, width: int) -> None:
    page = open_page("/run/slow/health", scheme=scheme, width=width)
    expect(page.get_by_role("heading", level=2).first).to_have_text("These logs are whole")
    page.get_by_text("All 8 ranks", exact=True).click()
    page.get_by_role("region", name="What was read").focus()
    expect(page.get_by_role("region", name="What was read")).to_be_focused()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
