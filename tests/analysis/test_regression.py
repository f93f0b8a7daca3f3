"""A job that is repeated: changes are found with their run, noise is not, few runs are marked."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import numpy as np
import pytest
import simulator
from simulator import Job, Noise
from support.simulated import padded

from stallscope.analysis import ENTRIES, Analysis, analyse
from stallscope.analysis.ledger.ledger_figures import StepTime
from stallscope.analysis.regression import (
    FEWEST_FOR_A_CHANGE,
    FEWEST_FOR_A_TREND,
    Figure,
    History,
    regression,
)

JOB = Job(ranks=2, steps=80, noise=Noise(cv=0.05))
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


@cache
def analysed(number: int, compute_ms: float = 150.0, **more: Any) -> Analysis:
    """Analyse the run of one night; start-up varies between jobs, independently of their steps."""
    luck = 1 + 0.015 * np.random.default_rng(number).standard_normal()
    wall = (BEGAN + timedelta(days=number)).timestamp() * 1e9
    facts = {"model": "made", "anchor": {"wall_ns": int(wall), "monotonic_ns": 10**9}}
    job = replace(JOB, seed=number, run_id=f"night-{number}", compute_ms=compute_ms * luck, **more)
    run = simulator.simulate(job).run
    logs = tuple(replace(log, facts={**log.facts, **facts}) for log in run.logs)
    return analyse(replace(run, logs=logs))


def with_facts(analysis: Analysis, **facts: Any) -> Analysis:
    logs = tuple(replace(log, facts={**log.facts, **facts}) for log in analysis.run.logs)
    return replace(analysis, run=replace(analysis.run, logs=logs))


@cache
def slower_from_the_eighth() -> History:
    runs = [analysed(number, 150.0 if number < 7 else 172.0) for number in range(12)]
    runs[7:] = [with_facts(run, versions={"torch": "2.5"}) for run in runs[7:]]
    (history,) = regression(runs[::-1])
    return history


def test_a_lasting_change_is_found_with_its_run_and_what_changed_there() -> None:
    history = slower_from_the_eighth()
    for name in ("step", "compute", "samples_per_second"):
        figure = history.figure(name)
        assert figure.status == "change", name
        (change,) = figure.changes
        assert change.run == 7
        assert change.by.ci95 is not None
        assert change.by.ci95[0] <= change.after - change.before <= change.by.ci95[1]
        assert change.p < 0.01
    (step,) = history.figure("step").changes
    assert step.by.ci95 is not None
    assert step.by.ci95[0] < 22.0 < step.by.ci95[1]
    assert {name for name in ENTRIES if history.figure(name).status == "change"} == {"compute"}
    (difference,) = [
        difference
        for difference in history.runs[7].differences
        if difference.name == "versions.torch"
    ]
    assert (difference.first, difference.second) == (None, "2.5")
    assert all(not run.differences for at, run in enumerate(history.runs) if at != 7)


@pytest.mark.broad
def test_runs_with_other_sequence_lengths_are_compared_for_the_same_work() -> None:
    lengths = [10_000 if number < 7 else 20_000 for number in range(12)]
    runs = [
        analyse(padded(analysed(number, steps=200).run, 1 - tokens / 40_000))
        for number, tokens in enumerate(lengths)
    ]
    (history,) = regression(runs)
    for run, step, tokens in zip(runs, history.figure("step").values, lengths, strict=True):
        assert run.step is not None
        assert step is not None
        assert step.value == pytest.approx(run.step.mean * 10_000 / tokens)
    for name in ("step", "tokens_per_second"):
        (change,) = history.figure(name).changes
        assert change.run == 7
    # Each step took as long, with as many samples.
    assert history.figure("samples_per_second").status == "steady"
    assert any("10,000 tokens on each rank, as in night-0" in text for text in history.warnings)
    assert regression([analysed(1), analysed(2)])[0].warnings == ()


def test_runs_are_in_order_of_their_start() -> None:
    names = [run.analysis.run.id for run in slower_from_the_eighth().runs]
    assert names == [f"night-{number}" for number in range(12)]


def test_a_drift_is_a_trend_and_not_a_change() -> None:
    runs = [analysed(number, 150.0 + 4 * number) for number in range(14)]
    (history,) = regression(runs)
    for name in ("step", "compute"):
        figure = history.figure(name)
        assert figure.status == "trend", name
        assert figure.changes == ()
        assert figure.trend is not None
        assert figure.trend.per_run.ci95 is not None
        assert figure.trend.per_run.ci95[0] < 4.0 < figure.trend.per_run.ci95[1]


def test_repeats_give_the_spread_that_steps_do_not_show() -> None:
    (history,) = regression([analysed(number) for number in range(10)])
    step = history.figure("step")
    assert step.status == "steady"
    assert step.spread is not None
    assert step.spread.ci95 is not None
    assert step.spread.ci95[0] < 0.015 * 150 < step.spread.ci95[1]


@pytest.mark.parametrize("runs", range(1, FEWEST_FOR_A_CHANGE))
def test_few_runs_are_marked(runs: int) -> None:
    (history,) = regression([analysed(number, 150.0 + 40 * number) for number in range(runs)])
    for figure in history.figures:
        assert figure.status == "insufficient_data"
        counted = "1 run has it" if runs == 1 else f"{runs} runs have it"
        assert figure.why.startswith(f"{counted}, and {FEWEST_FOR_A_CHANGE} are needed")
        assert figure.changes == ()
        assert figure.trend is None


def test_other_jobs_are_named_with_their_differences() -> None:
    runs = [analysed(number) for number in range(2)]
    larger = with_facts(analysed(2), model="larger", batch_size=64)
    same, changed = regression([larger, *runs])
    assert same.warnings == ()
    assert changed.warnings == (
        "not the same job as the first one here: another model, batch size",
    )


def _step_history(values: list[float]) -> Figure:
    """Return the history of runs with these mean steps."""
    bare = analysed(0)
    runs = [
        replace(
            bare,
            run=replace(bare.run, id=f"run-{number}"),
            step=StepTime(value, value, value, value, None),
            entries=(),
            samples_per_second=None,
        )
        for number, value in enumerate(values)
    ]
    (history,) = regression(runs)
    return history.figure("step")


@pytest.mark.any_versions
@pytest.mark.slow
@pytest.mark.parametrize("runs", [FEWEST_FOR_A_CHANGE, FEWEST_FOR_A_TREND, 12, 300])
def test_noise_from_run_to_run_hardly_ever_counts_as_a_change(runs: int) -> None:
    random = np.random.default_rng(runs)
    tries = 200 if runs < 100 else 20
    statuses = [
        _step_history((100 + 2 * random.standard_normal(runs)).tolist()).status
        for _ in range(tries)
    ]
    assert np.mean([status != "steady" for status in statuses]) <= 0.03


def test_the_latest_run_alone_can_be_another_one() -> None:
    figure = _step_history([100.0, 101.0, 99.5, 100.4, 99.1, 100.2, 101.1, 99.8, 110.0])
    assert figure.status == "change"
    (change,) = figure.changes
    assert change.run == 8


def test_several_changes_are_found_one_by_one() -> None:
    noise = np.random.default_rng(1).standard_normal(24).tolist()
    levels = [100.0] * 8 + [130.0] * 8 + [110.0] * 8
    figure = _step_history(
        [level + deviation for level, deviation in zip(levels, noise, strict=True)]
    )
    assert [change.run for change in figure.changes] == [8, 16]


def test_changes_next_to_each_other_are_both_found() -> None:
    noise = np.random.default_rng(2).standard_normal(17).tolist()
    levels = [100.0] * 8 + [200.0] + [300.0] * 8
    figure = _step_history(
        [level + deviation for level, deviation in zip(levels, noise, strict=True)]
    )
    assert [change.run for change in figure.changes] == [8, 9]
    assert all(0 <= change.p < 0.01 for change in figure.changes)


def test_a_small_difference_is_not_a_change() -> None:
    figure = _step_history(
        [100.0, 100.01, 100.0, 99.99, 100.0, 100.5, 100.51, 100.5, 100.49, 100.5]
    )
    assert figure.status == "steady"


def test_equal_values_are_steady() -> None:
    assert _step_history([100.0] * 8).status == "steady"


def test_other_jobs_have_separate_histories() -> None:
    runs = [analysed(number) for number in range(3)]
    others = [
        analysed(10, ranks=3),
        analysed(11, synthetic=True),
        with_facts(analysed(12), batch_size=64),
    ]
    assert [len(history.runs) for history in regression([*others, *runs])] == [3, 1, 1, 1]


def test_runs_left_out_of_a_history_are_reported() -> None:
    runs = [analysed(0), analysed(1), analysed(1), analysed(2, steps=0)]
    (history,) = regression(runs)
    assert [run.analysis.run.id for run in history.runs] == ["night-0", "night-1"]
    assert any("night-1 is left out: it was given twice" in text for text in history.warnings)
    assert any("night-2 is left out: it has no measured steps" in text for text in history.warnings)


def test_runs_without_a_start_time_stay_in_the_given_order() -> None:
    runs = [with_facts(analysed(number), anchor=None) for number in (2, 0, 1)]
    (history,) = regression(runs)
    assert [run.analysis.run.id for run in history.runs] == ["night-2", "night-0", "night-1"]
    assert any("in the order in which they were given" in text for text in history.warnings)


def test_runs_without_stages_have_gaps_in_entries_and_not_in_the_step() -> None:
    runs = [analysed(number, stamps=number != 2) for number in range(8)]
    (history,) = regression(runs)
    assert history.figure("compute").values[2] is None
    assert history.figure("step").values[2] is not None
    assert history.figure("compute").status == "steady"


def test_a_run_left_out_of_another_job_is_reported_too() -> None:
    runs = [analysed(0), analysed(1), analysed(2, ranks=3, steps=0)]
    (history,) = regression(runs)
    assert any("night-2 is left out: it has no measured steps" in text for text in history.warnings)
