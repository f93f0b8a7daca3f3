"""The store of runs, asked by many at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.step_logs import run_of_job
from support.waiting import PATIENCE_SECONDS

from stallscope.analysis import Analysis, analyse
from stallscope.dashboard import RunStore
from stallscope.dashboard.store.run_store import size_of
from stallscope.errors import NotFoundError, UnreadableError
from stallscope.run import Run

from .cases import ONE_RANK, REAL, SYNTHETIC


@pytest.fixture
def run(named_run: Callable[[str], Run]) -> Run:
    return named_run("two ranks")


def _copies(run: Run, number: int) -> list[Run]:
    return [replace(run, id=f"run-{index}") for index in range(number)]


def test_runs_are_listed_as_they_were_given(store: RunStore) -> None:
    first = store.runs()[0]
    assert (first.id, first.entry.name, first.entry.synthetic, first.entry.ranks) == (
        "real",
        "resnet on pictures",
        False,
        4,
    )


def test_ids_are_safe_in_addresses_and_differ(run: Run) -> None:
    ids = ["a", "a", "a-2", "../../etc/passwd", "<script>", "", "?#%2e"]
    store = RunStore(replace(run, id=run_id) for run_id in ids)
    run_ids = [info.id for info in store.runs()]
    assert run_ids[:3] == ["a", "a-2", "a-2-2"]
    assert run_ids[3] == "etc-passwd"
    assert len(set(run_ids)) == len(ids)
    assert all(
        run_id.replace("-", "").replace(".", "").replace("_", "").isalnum() for run_id in run_ids
    )


@pytest.mark.parametrize(("run_id", "baseline_id"), [("nobody", None), ("run-0", "nobody")])
def test_an_unknown_id_is_not_found(run: Run, run_id: str, baseline_id: str | None) -> None:
    with pytest.raises(NotFoundError, match="there is no run 'nobody' here"):
        RunStore(_copies(run, 1)).analysis(run_id, baseline_id)


def test_an_analysis_is_made_once_however_many_ask(run: Run) -> None:
    analysed: list[str] = []
    together = threading.Barrier(8)

    def slowly(run: Run, baseline: Run | None, single: Run | None) -> Analysis:
        analysed.append(run.id)
        return analyse(run, baseline, single)

    store = RunStore(_copies(run, 1), slowly)

    def ask(_: int) -> Analysis:
        together.wait(PATIENCE_SECONDS)
        return store.analysis("run-0")

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(8)))
    assert analysed == ["run-0"]
    assert all(answer is answers[0] for answer in answers)


def test_a_slow_analysis_delays_no_other_user(run: Run) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow_for_the_first(run: Run, baseline: Run | None, single: Run | None) -> Analysis:
        if run.id == "run-0":
            begun.set()
            assert go_on.wait(PATIENCE_SECONDS)
        return analyse(run, baseline, single)

    store = RunStore(_copies(run, 2), slow_for_the_first)
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(store.analysis, "run-0")
        assert begun.wait(PATIENCE_SECONDS)
        assert pool.submit(store.analysis, "run-1").result(PATIENCE_SECONDS).run.id == "run-1"
        assert not slow.done()
        go_on.set()
        assert slow.result(PATIENCE_SECONDS).run.id == "run-0"


@pytest.mark.broad
def test_the_oldest_analyses_are_dropped(run: Run) -> None:
    analysed: list[str] = []

    def counted(run: Run, baseline: Run | None, single: Run | None) -> Analysis:
        analysed.append(run.id)
        return analyse(run, baseline, single)

    room = 10 * size_of(analyse(run))
    store = RunStore(_copies(run, 20), counted, most_bytes=room)
    for index in range(20):
        store.analysis(f"run-{index}")
    store.analysis("run-19")
    store.analysis("run-12")
    assert len(analysed) == 20
    store.analysis("run-0")
    assert analysed[20:] == ["run-0"]


def test_after_a_failure_it_is_tried_again(run: Run) -> None:
    answers: list[Any] = [UnreadableError("not yet"), None]

    def at_the_second_try(run: Run, baseline: Run | None, single: Run | None) -> Analysis:
        answer = answers.pop(0)
        if answer is not None:
            raise answer
        return analyse(run, baseline, single)

    store = RunStore(_copies(run, 1), at_the_second_try)
    with pytest.raises(UnreadableError, match="not yet"):
        store.analysis("run-0")
    assert store.analysis("run-0").run.id == "run-0"


def test_the_same_job_on_one_rank_is_found_for_every_run(tmp_path: Path) -> None:
    jobs = {"real": REAL, "synthetic": SYNTHETIC, "one": ONE_RANK}
    store = RunStore([run_of_job(tmp_path / name, job) for name, job in jobs.items()])
    for run_id, baseline_id in (("real", None), ("real", "synthetic"), ("synthetic", None)):
        single = store.analysis(run_id, baseline_id).single
        assert single is not None
        assert single.run.id == "one-synthetic"
    assert store.analysis("one-synthetic").single is None
