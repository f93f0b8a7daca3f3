"""The page of runs on several numbers of ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stallscope.analysis.published import CURVES
from stallscope.dashboard import RunStore
from stallscope.dashboard.addresses import scaling_address
from stallscope.dashboard.routing import view_at

from .cases import REAL, SCRIPT, run_of
from .content import texts


@pytest.fixture(scope="module")
def sizes(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    jobs = [
        replace(REAL, ranks=ranks, run_id=f"on-{ranks}", facts={"model": SCRIPT})
        for ranks in (1, 2, 4)
    ]
    jobs.append(replace(REAL, ranks=4, seed=9, run_id="again", facts={"model": SCRIPT}))
    jobs.append(replace(REAL, ranks=2, run_id="else", facts={"model": "another"}))
    return RunStore([run_of(tmp_path_factory.mktemp("run"), job) for job in jobs])


def said_at(store: RunStore, search: str = "") -> Any:
    return texts(view_at(store, "/scaling", search).content)


def test_all_runs_of_a_job_are_held_against_each_other(sizes: RunStore) -> None:
    said = said_at(sizes)
    assert any("efficiency on 4 ranks" in text for text in said)
    assert f"{SCRIPT}, real data" in said
    assert {"Throughput over ranks", "Efficiency over ranks", "What a step is spent on"} <= set(
        said
    )
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


def test_a_run_that_is_not_there_is_said(sizes: RunStore) -> None:
    assert view_at(sizes, "/scaling", "?runs=nobody").title == "No such run"


def test_without_several_sizes_the_page_says_so(store: RunStore) -> None:
    said = said_at(RunStore([store.analysis("real").run]))
    assert any("None of these runs" in text for text in said)


def test_of_many_runs_some_are_to_be_chosen(sizes: RunStore) -> None:
    run = sizes.analysis("on-1").run
    said = said_at(RunStore([run] * 31))
    assert "There are 31 runs here: select those to compare in the list." in said


def test_runs_of_one_size_that_have_little_in_common_are_shown(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    facts = {"model": "same"}
    jobs = [
        replace(REAL, ranks=1, run_id="one", facts=facts),
        replace(REAL, ranks=2, run_id="quick", facts=facts),
        replace(REAL, ranks=2, run_id="slow", slow={(1, "input"): 90.0}, facts=facts),
    ]
    store = RunStore([run_of(tmp_path_factory.mktemp("run"), job) for job in jobs])
    said = said_at(store)
    assert "This page cannot be shown" not in said
    assert any("± ∞" in text for text in said)
