"""Causes inside steps on the scorecard: the plan, a rank's share of faults, and scores."""

from __future__ import annotations

import functools
import gc
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from simulator import Job, simulate
from simulator.faults import EveryNth, Fault
from support.benchmarks import benchmark

from stallscope.analysis import Analysis, analyse

plan = benchmark("causes_plan", "scorecard")
pairs_plan = benchmark("pairs_plan", "scorecard")
launch = benchmark("causes_launch", "scorecard")
injection = benchmark("injection", "scorecard")
driver = benchmark("chapter", "scorecard")
causes = benchmark("causes", "scorecard")
scoring = benchmark("causes_scores", "scorecard")

CHAPTER = causes.Causes()
CLEAN_MS = 23.0


def options(*words: str) -> Any:
    return driver.parser(CHAPTER).parse_args(words)


def run_with(*faults: Any, **changes: Any) -> Any:
    return plan.Run("ddp", **{"ranks": 4, "repeat": 0, "group": 0, "faults": faults, **changes})


COLLECTIONS = plan.Fault("garbage_collection", "one", 10)
WORK = plan.Fault("unequal_work", "rotating", 30)

# -- the plan ------------------------------------------------------------------------------------


def test_the_usual_plan_has_two_hundred_causes_and_runs_without_any(tmp_path: Path) -> None:
    launches = CHAPTER.missing(tmp_path, options())
    runs = [run for work in launches for run in work.runs]
    assert len({run.name for run in runs}) == len(runs)
    assert sum(len(run.causes) for run in runs) >= 200
    assert sum(not run.causes for run in runs) >= 100
    sizes = Counter(fault.percent for run in runs for fault in run.causes)
    assert set(sizes) == {5, 10, 30}
    assert min(sizes.values()) > 60
    kinds = {(fault.cause, fault.who) for run in runs for fault in run.causes}
    assert kinds == {(cause, who) for cause, every in plan.WHO.items() for who in every}
    assert {fault.cause for run in runs for fault in run.faults} == {*plan.WHO, *plan.SLOW}
    assert any(len(run.causes) == 2 for run in runs)
    assert CHAPTER.counted(launches).endswith("causes in 8 launches")


def test_a_clean_run_comes_first_and_every_repaired_run_is_in_the_group() -> None:
    for framework, ranks in (("ddp", 4), ("torch", 2), ("keras", 2), ("trainer", 2), ("jax", 1)):
        for group in plan.groups(framework, ranks, 0):
            assert group[0].faults == ()
            for run in group:
                assert all(run.without(fault.cause) in group for fault in run.causes)


def test_a_group_has_the_same_name_in_a_look_at_one_size(tmp_path: Path) -> None:
    (whole,), (part,) = (
        CHAPTER.missing(tmp_path, options("--framework", "ddp", "--ranks", "4", *words))
        for words in ((), ("--percents", "10"))
    )
    # The last groups are about Python's lock.
    assert part.groups == [*whole.groups[3:6], whole.groups[10]]
    assert {fault.percent for run in part.runs for fault in run.causes} == {10}


def test_collections_are_repaired_in_place_and_saves_are_left_out() -> None:
    repaired = run_with(COLLECTIONS).without("garbage_collection")
    assert [(fault.who, fault.repaired) for fault in repaired.faults] == [("all", True)]
    assert repaired.causes == ()
    assert run_with(plan.Fault("saving", "all", 10)).without("saving").faults == ()
    two = run_with(COLLECTIONS, WORK)
    assert two.without("garbage_collection").faults == (WORK,)


def test_a_rank_that_has_a_cause_alone_has_it_beside_another_one() -> None:
    alone, beside = run_with(COLLECTIONS), run_with(COLLECTIONS, WORK)
    assert alone.rank_of(COLLECTIONS) == beside.rank_of(COLLECTIONS)
    assert beside.rank_of(WORK) is None


def test_a_plan_comes_back_from_its_file(tmp_path: Path) -> None:
    wanted = plan.Plan(plan.groups("keras", 4, 1), turns=3, steps=70)
    plan.write_plan(tmp_path / "plan.json", wanted)
    assert plan.read_plan(tmp_path / "plan.json") == wanted


@pytest.mark.parametrize(
    ("who", "ranks"), [("one", 1), ("rotating", 1), ("all", 4)], ids=["one", "in-turn", "all"]
)
def test_pauses_come_in_one_of_ten_steps(who: str, ranks: int) -> None:
    fault = replace(COLLECTIONS, who=who)
    run = run_with(fault)
    paused = [[rank for rank in range(4) if run.is_due(fault, step, rank)] for step in range(80)]
    assert [step for step, on in enumerate(paused) if on] == list(range(9, 80, 10))
    assert {len(on) for on in paused if on} == {ranks}
    assert len({tuple(on) for on in paused if on}) == (4 if who == "rotating" else 1)


def test_saves_in_the_background_last_for_a_fourth_of_the_steps() -> None:
    fault = plan.Fault("background_saving", "all", 10)
    beside = [run_with(fault).goes_on_beside(fault, step, 3) for step in range(90)]
    assert [step for step, on in enumerate(beside) if on] == [*range(10, 20), *range(50, 60)]


def lengths(run: Any) -> Any:
    """Return the lengths of many batches, steps × ranks."""
    return np.array(
        [[run.batch(step, rank, CLEAN_MS).length for rank in range(4)] for step in range(400)]
    )


def test_batches_are_alike_on_all_ranks_unless_work_is_unequal() -> None:
    usual = lengths(run_with())
    assert (usual == usual[:, :1]).all()
    assert usual.std() > 0
    assert usual.mean() == pytest.approx(plan.LENGTH, rel=0.02)
    assert (lengths(run_with(COLLECTIONS)) == usual).all()


@pytest.mark.parametrize("who", ["one", "rotating"])
def test_the_largest_batch_takes_so_much_longer_than_the_mean_one(who: str) -> None:
    fault = plan.Fault("unequal_work", who, 30)
    run = run_with(fault)
    unequal = lengths(run)
    assert unequal.mean() == pytest.approx(plan.LENGTH, rel=0.02)
    longer = (unequal.max(axis=1) - unequal.mean(axis=1)).mean()
    assert longer / plan.LENGTH * plan.DEVICE_MS == pytest.approx(0.3 * CLEAN_MS, rel=0.1)
    # Batches that hardly differ may be equal once they are rounded.
    differ = unequal.max(axis=1) > unequal.min(axis=1)
    largest = set(unequal[differ].argmax(axis=1).tolist())
    assert largest == ({run.rank_of(fault)} if who == "one" else {0, 1, 2, 3})


def test_padding_is_added_to_the_same_tokens() -> None:
    padded, usual = run_with(plan.Fault("padding", "all", 30)), run_with()
    shares = []
    for step in range(200):
        batch, same = (run.batch(step, 1, CLEAN_MS) for run in (padded, usual))
        assert sum(batch.lengths) == batch.tokens
        assert max(batch.lengths) == batch.length
        assert abs(batch.tokens - same.tokens) <= plan.BATCH
        assert same.tokens == plan.BATCH * same.length
        shares.append(batch.length / same.length - 1)
    assert np.mean(shares) == pytest.approx(0.3 * CLEAN_MS / plan.DEVICE_MS, rel=0.02)


# -- one rank's share ----------------------------------------------------------------------------


def trained(run: Any, steps: int, rank: int = 0, turns: int = 1) -> Any:
    """Return the causes of a rank after steps of almost no time."""
    share = launch.Causes(run, rank, clean_ms=0.1)
    for _ in range(turns):
        share.begin_turn()
        for _ in range(steps):
            share.compiled()
            share.next_batch()
            share.compute(1)
            share.end_of_step()
        share.end_turn()
    return share


def delayed_steps(share: Any, cause: str) -> list[int]:
    return [step for step, ns in enumerate(share.measured["delays"][cause]) if ns]


def test_collections_look_at_objects_in_their_steps_only() -> None:
    fault = replace(COLLECTIONS, who="all")
    collected: list[str] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if info["generation"] == 2:
            collected.append(phase)

    gc.callbacks.append(note)
    try:
        share = trained(run_with(fault), 30)
    finally:
        gc.callbacks.remove(note)
    assert delayed_steps(share, "garbage_collection") == [9, 19, 29]
    assert collected.count("stop") >= 3


def test_a_rank_without_the_fault_is_not_delayed() -> None:
    run = run_with(COLLECTIONS)
    others = [rank for rank in range(4) if rank != run.rank_of(COLLECTIONS)]
    assert delayed_steps(trained(run, 30, others[0]), "garbage_collection") == []


def test_a_new_length_is_compiled_for_in_one_of_thirty_steps() -> None:
    share = launch.Causes(run_with(plan.Fault("compilation", "all", 10)), 0, clean_ms=0.1)
    asked: list[int] = []
    share.compile = lambda length, seconds: asked.append(length)
    for _ in range(70):
        share.compiled()
        share.end_of_step()
    assert Counter(asked) == {2: 29, 3: 30, 4: 11}
    assert delayed_steps(share, "compilation") == [29, 59]


def test_saves_within_steps_and_in_the_background_reach_the_disk() -> None:
    for cause, delayed, number in (
        ("saving", [9, 19, 29, 39, 49, 59], 6),
        ("background_saving", [*range(10, 20), *range(50, 60)], 2),
    ):
        share = launch.Causes(run_with(plan.Fault(cause, "all", 10)), 0, clean_ms=0.1)
        flushed: list[Any] = []

        def save(sink: Any, flushed: list[Any] = flushed) -> None:
            sink.write(b"model")
            sink.flush()
            flushed.append(sink)

        share.save = save
        for _ in range(60):
            share.compute(1)
            share.end_of_step()
        share.end_turn()
        assert len(flushed) == number
        assert delayed_steps(share, cause) == delayed


def test_slow_runs_are_slow_on_their_ranks() -> None:
    run = run_with(plan.Fault("slow_input", "one", 10))
    slow = [rank for rank in range(4) if delayed_steps(trained(run, 3, rank), "slow_input")]
    assert slow == [run.rank_of(run.faults[0])]


def test_the_clean_run_of_a_group_decides_how_large_faults_are(tmp_path: Path) -> None:
    group = [run_with(ranks=1), run_with(plan.Fault("padding", "all", 10), ranks=1)]
    plan.write_plan(tmp_path / "plan.json", plan.Plan([group], turns=2, steps=40))
    seen: list[tuple[str, float]] = []

    def train(share: Any, log_dir: Path, turns: int, steps: int, pause: Callable[[], None]) -> None:
        log_dir.mkdir(parents=True, exist_ok=True)
        for _ in range(turns):
            seen.append((share.run.name, share.clean_ms))
            for _ in range(steps):
                share.end_of_step()
            pause()

    launch.Rank(tmp_path, 0, train, agree=lambda _: 25.0).run(tmp_path / "plan.json")
    clean, padded = (run.name for run in group)
    assert seen == [(clean, 0.0), (clean, 0.0), (padded, 25.0), (padded, 25.0), (clean, 0.0)]
    assert sorted(run.name for run in plan.trained_runs(tmp_path)) == sorted((clean, padded))


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells how long a thread has no core")
def test_time_without_a_core_is_no_wait_for_the_lock() -> None:
    fault = plan.Fault("interpreter", "all", 300)
    share, cores = launch.Causes(run_with(fault), 0, clean_ms=100.0), os.sched_getaffinity(0)
    busy = [sys.executable, "-c", "while True: pass"]
    os.sched_setaffinity(0, {min(cores)})
    processes = [subprocess.Popen(busy) for _ in range(3)]
    try:
        share.begin_turn()
        began, without_core = time.perf_counter_ns(), injection.own_wait_ns()
        share.compute(plan.BATCH * plan.LENGTH)
        without_core = injection.own_wait_ns() - without_core
        took = time.perf_counter_ns() - began
        share.end_turn()
    finally:
        os.sched_setaffinity(0, cores)
        for process in processes:
            process.kill()
            process.wait()
    assert without_core > 0
    (delay,) = share.measured["delays"]["interpreter"]
    assert 0 <= delay <= took - without_core


# -- scores --------------------------------------------------------------------------------------

JOB = Job(ranks=4, steps=600, compute_ms=20.0, input_ms=0.5, other_ms=0.5)


@functools.cache
def simulated(*faults: Fault) -> tuple[Analysis, Any]:
    """Return the analysis of a simulated run, and by how much its compute is delayed."""
    noted = {"interruptions": ["garbage_collection", "compilation"]}
    result = simulate(replace(JOB, faults=faults, facts=noted))
    delays = result.truth.extra["compute"] if faults else np.zeros((JOB.steps, JOB.ranks))
    return analyse(result.run), delays.astype(np.float64)


def collections(rank: int) -> Fault:
    return Fault("compute", 40.0, ranks=(rank,), when=EveryNth(10), cause="garbage_collection")


def test_a_cause_is_right_with_its_ranks_its_size_and_its_gain() -> None:
    run = run_with(COLLECTIONS)
    rank = run.rank_of(COLLECTIONS)
    analysis, delays = simulated(collections(rank))
    score = scoring.score_cause(
        run, COLLECTIONS, analysis, simulated()[0], {"garbage_collection": delays}
    )
    assert score["right"]
    assert score["ranks_named"] == [rank]
    assert score["injected_ms"] == pytest.approx(4.0, rel=0.05)
    assert score["size"] == pytest.approx(1.0, abs=0.1)
    assert abs(score["error"]) < 0.03


def test_another_rank_another_cause_or_none_is_wrong() -> None:
    run = run_with(COLLECTIONS)
    rank = run.rank_of(COLLECTIONS)
    clean, _ = simulated()
    accusing, delays = simulated(collections((rank + 1) % 4))
    measured = {"garbage_collection": delays}
    assert not scoring.score_cause(run, COLLECTIONS, accusing, clean, measured)["right"]
    missed = scoring.score_cause(run, COLLECTIONS, clean, clean, measured)
    assert (missed["right"], missed["size"], missed["error"]) == (False, None, None)
    compiled, _ = simulated(replace(collections(rank), cause="compilation"))
    assert not scoring.score_cause(run, COLLECTIONS, compiled, clean, measured)["right"]


def test_a_delay_of_all_ranks_costs_its_length_and_the_same_work_on_all_ranks_nothing() -> None:
    analysis, _ = simulated()
    delays = np.full((JOB.steps, JOB.ranks), 2e6)
    assert scoring.injected_ms(analysis, {"saving": delays}, "saving") == pytest.approx(2.0)
    equal = scoring.injected_ms(analysis, {"unequal_work": delays}, "unequal_work")
    assert equal == pytest.approx(0.0)


def test_runs_without_a_cause_must_name_none() -> None:
    analysis, _ = simulated(collections(1))
    quiet, alarm = (scoring.score_clean(run_with(), each) for each in (simulated()[0], analysis))
    assert (quiet["what"], quiet["named"]) == ("clean", {})
    assert list(alarm["named"]) == ["garbage_collection"]
    repaired = run_with(COLLECTIONS).without("garbage_collection")
    assert scoring.score_clean(repaired, analysis)["what"] == "repaired"
    slow = run_with(plan.Fault("slow_rank", "one", 10))
    assert scoring.score_clean(slow, analysis)["what"] == "slow_rank"


def test_the_page_lists_the_targets_and_every_miss(tmp_path: Path) -> None:
    run = run_with(COLLECTIONS)
    rank = run.rank_of(COLLECTIONS)
    analysis, delays = simulated(collections(rank))
    clean, _ = simulated()
    measured = {"garbage_collection": delays}
    halved = {"garbage_collection": delays / 2}
    scores = [
        scoring.score_cause(run, COLLECTIONS, analysis, clean, measured),
        scoring.score_cause(run, COLLECTIONS, analysis, clean, halved),
        scoring.score_cause(run, COLLECTIONS, clean, clean, measured),
        scoring.score_clean(run_with(), clean),
        scoring.score_clean(run_with(), analysis),
    ]
    for score in scores:
        driver.append_score(tmp_path / "scores.jsonl", score)
    text = scoring.page(scoring.SECTION.results(tmp_path / "scores.jsonl"))
    assert "with 3 injected causes" in text
    assert "cause and ranks right | ≥ 90 % of causes | 66.7 % of 3 causes" in text
    assert "size within 15 % | ≥ 90 % of causes | 50.0 % of 2 causes" in text
    assert "a cause named | ≤ 2 % of runs | 1 of 2 runs | **missed**" in text
    assert re.search(r"\d\.\d\d ms per step injected, \d\.\d\d ms found", text)
    assert f"garbage collection of 10 % on rank {rank}. No cause inside the step is named." in text
    assert "| no fault | 1 of 2 |" in text


def test_without_runs_the_page_says_so() -> None:
    assert "run `make causes`" in scoring.page({"runs": []})
    assert scoring.cause_bars([]) == []
