"""Pairs of trainings: which are trained, which gain answers a fault, and which predictions hold."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.benchmarks import benchmark
from support.step_logs import Job, write_job

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.gains.what_if import Bottleneck, WhatIf
from stallscope.arrays.stats import Mean
from stallscope.parsers import read
from stallscope.words import Fix

plan = benchmark("pairs_plan", "scorecard")
launch = benchmark("pairs_launch", "scorecard")
driver = benchmark("chapter", "scorecard")
scoring = benchmark("pairs_scores", "scorecard")

CLEAN = Job(ranks=4, steps=300, allreduce_ms=1.0)


def analysed(folder: Path, job: Job) -> Analysis:
    write_job(folder, job)
    return analyse(read(str(folder))[0])


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    return analysed(tmp_path_factory.mktemp("clean"), replace(CLEAN, seed=2))


def gain(fix: str, saved: float, ci95: tuple[float, float] | None = None) -> WhatIf:
    return WhatIf(Fix.parse(fix), Mean(saved, ci95), 1.0, None)


def offering(
    analysis: Analysis, verdict: str, *gains: WhatIf, cause: str | None = None
) -> Analysis:
    faulty = Bottleneck(verdict, cause, "", fault=verdict != "insufficient_data")
    return replace(analysis, bottleneck=faulty, what_if=gains)


def prediction(**changed: Any) -> Any:
    values: dict[str, Any] = {
        "verdict": "input",
        "fix": "input",
        "led": True,
        "reason": None,
        "faulty_ms": 40.0,
        "achieved_ms": 20.0,
        "predicted_ms": 22.0,
        "predicted_ci95": (21.0, 23.0),
        "achieved_ci95": (19.0, 21.0),
    }
    return scoring.Prediction(**{**values, **changed})


def where(name: str = "a", **changed: Any) -> dict[str, Any]:
    values = {
        "name": name,
        "mode": "baseline",
        "framework": "keras",
        "ranks": 2,
        "repeat": 0,
        "stage": "input",
        "way": "sleep",
        "who": "all",
        "percent": 100,
        "prefetched": False,
        "rank": None,
        "half": "check",
        "baseline": "base-0",
        "baseline_ms": 20.0,
    }
    return {**values, **changed}


# -- the plan ------------------------------------------------------------------------------------


def test_every_kind_of_fault_occurs_once_per_launch() -> None:
    pairs = plan.pairs("keras", 2, 0)
    kinds = {(pair.stage, pair.prefetched, pair.way, pair.who) for pair in pairs}
    assert len(pairs) == len(kinds) == 16
    assert len({pair.name for pair in pairs}) == 16
    assert {pair.who for pair in plan.pairs("keras", 1, 0)} == {"all"}


def test_sizes_are_mixed_and_differ_between_repeats() -> None:
    sizes = Counter(
        pair.percent
        for framework in plan.FRAMEWORKS
        for ranks in (1, 2, 4)
        for pair in plan.pairs(framework, ranks, 0)
    )
    assert set(sizes) == set(plan.PERCENTS)
    assert max(sizes.values()) - min(sizes.values()) <= 12
    first, second = (
        {replace(pair, repeat=0) for pair in plan.pairs("ddp", 4, repeat)} for repeat in (0, 1)
    )
    assert not first & second


def test_a_prefetched_loader_is_slower_by_the_hidden_time() -> None:
    pair = plan.Pair("keras", 2, 0, "input", "sleep", "all", 50)
    assert pair.fault_ms(20.0) == 10.0
    assert replace(pair, prefetched=True).fault_ms(20.0) == 30.0


def test_one_faulty_rank_is_a_rank_of_the_run() -> None:
    ranks = {pair.rank for pair in plan.pairs("torch", 4, 0) if pair.who == "one"}
    assert ranks <= {0, 1, 2, 3}
    assert len(ranks) > 1
    assert {pair.rank for pair in plan.pairs("torch", 4, 0) if pair.who == "all"} == {None}


def test_both_halves_get_about_as_many_pairs() -> None:
    halves = Counter(
        pair.half
        for framework in plan.FRAMEWORKS
        for ranks in (1, 2, 4)
        for pair in plan.pairs(framework, ranks, 0)
    )
    assert set(halves) == {"calibration", "check"}
    assert min(halves.values()) > 40


def test_a_group_is_a_baseline_and_pairs_in_changing_order() -> None:
    group = plan.groups(plan.pairs("ddp", 2, 0))[1]
    assert group[0].role == "baseline"
    assert [member.role for member in group[1:5]] == ["fixed", "faulty", "faulty", "fixed"]
    assert {member.baseline for member in group} == {group[0].name}
    assert group[1].pair == group[2].pair
    assert group[2].fixed == group[1].name


def test_a_plan_comes_back_from_its_file(tmp_path: Path) -> None:
    wanted = plan.Plan(plan.groups(plan.pairs("torch", 1, 0)), turns=6, steps=40)
    plan.write_plan(tmp_path / "plan.json", wanted)
    assert plan.read_plan(tmp_path / "plan.json") == wanted


def test_every_segment_of_a_group_trains_in_the_middle_of_the_group_on_average() -> None:
    group = plan.groups(plan.pairs("ddp", 2, 0))[0]
    orders = [plan.in_turns(group, turn) for turn in range(6)]
    assert orders[0][0] is group[0]
    for segment in group:
        places = [order.index(segment) for order in orders]
        assert sum(places) / len(places) == (len(group) - 1) / 2


def test_only_one_training_runs_at_a_time() -> None:
    happened: list[str] = []

    def steps(name: str) -> Callable[[Callable[[], None]], None]:
        def train(pause: Callable[[], None]) -> None:
            for step in range(2):
                happened.append(f"{name}{step}")
                pause()
            happened.append(f"{name} ends")

        return train

    a, b = (launch.Training(steps(name)) for name in "ab")
    for training in (a, b, b, a):
        training.take_turn()
    b.finish()
    a.finish()
    assert happened == ["a0", "b0", "b1", "a1", "b ends", "a ends"]


def test_a_trainings_error_is_raised_in_its_turn() -> None:
    def train(pause: Callable[[], None]) -> None:
        pause()
        raise ZeroDivisionError

    training = launch.Training(train)
    training.take_turn()
    with pytest.raises(ZeroDivisionError):
        training.take_turn()


def test_a_training_that_pauses_after_its_last_turn_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(launch, "END_SECONDS", 0.1)
    training = launch.Training(lambda pause: pause())
    with pytest.raises(RuntimeError, match="has not ended"):
        training.finish()


def finish(out: Path, segment: Any, ranks: int) -> None:
    folder = out / segment.name
    folder.mkdir()
    content = plan.segment_content(segment, ranks, 12.0)
    plan.segment_path(folder).write_text(json.dumps(content))
    for rank in range(ranks):
        plan.rank_path(folder, rank).write_text("{}")


def test_a_pair_is_trained_when_all_ranks_have_finished_all_three_runs(tmp_path: Path) -> None:
    baseline, fixed, faulty, *_ = plan.groups(plan.pairs("torch", 2, 0))[0]
    finish(tmp_path, baseline, 2)
    finish(tmp_path, faulty, 2)
    assert plan.trained_pairs(tmp_path) == []
    finish(tmp_path, fixed, 2)
    assert plan.trained_pairs(tmp_path) == [faulty]
    plan.rank_path(tmp_path / fixed.name, 1).unlink()
    assert not plan.is_trained(tmp_path, fixed)
    assert plan.trained_pairs(tmp_path) == []


# -- which gain answers a fault ------------------------------------------------------------------


def test_a_fault_on_all_ranks_is_answered_by_its_stage(clean: Analysis) -> None:
    faulty = offering(clean, "imbalance", gain("imbalance", 5.0), gain("input", 3.0))
    predicted = scoring.predict(faulty, clean, "input", "all")
    assert (predicted.fix, predicted.led, predicted.verdict) == ("input", False, "imbalance")
    assert predicted.predicted_ms == pytest.approx(clean.step.mean - 3.0)


def test_fixing_one_rank_does_not_answer_a_fault_on_all(clean: Analysis) -> None:
    faulty = offering(clean, "imbalance", gain("imbalance", 5.0), gain("input", 0.0), cause="input")
    assert scoring.predict(faulty, clean, "input", "all").fix == "input"
    compute = offering(clean, "imbalance", gain("imbalance", 5.0), cause="compute")
    assert scoring.predict(compute, clean, "compute", "all").fix is None


def test_a_fault_on_one_rank_is_answered_as_the_report_does(clean: Analysis) -> None:
    gains = (gain("imbalance", 5.0), gain("rank:1", 4.0), gain("input", 3.0))
    by_stage = scoring.predict(offering(clean, "input", *gains), clean, "input", "one")
    assert (by_stage.fix, by_stage.led) == ("input", True)
    by_ranks = scoring.predict(offering(clean, "imbalance", *gains), clean, "input", "one")
    assert (by_ranks.fix, by_ranks.led) == ("imbalance", True)
    undecided = scoring.predict(offering(clean, "allreduce", *gains), clean, "input", "one")
    assert (undecided.fix, undecided.led) == ("imbalance", False)
    alone = scoring.predict(offering(clean, "balanced", *gains[1:]), clean, "input", "one")
    assert alone.fix == "rank:1"


def test_without_a_gain_there_is_a_reason_and_no_error(clean: Analysis) -> None:
    predicted = scoring.predict(offering(clean, "balanced"), clean, "compute", "all")
    assert (predicted.fix, predicted.predicted_ms, predicted.error, predicted.held) == (None,) * 4
    assert predicted.reason == "no gain is offered for compute on all ranks without a baseline"


def test_a_fault_of_known_size_is_predicted_with_a_baseline(
    tmp_path: Path, clean: Analysis
) -> None:
    job = replace(CLEAN, slow={(rank, "input"): 6.0 for rank in range(4)})
    write_job(tmp_path / "run", job)
    write_job(tmp_path / "base", replace(CLEAN, seed=3, run_id="b", facts={"synthetic": True}))
    faulty = analyse(read(str(tmp_path / "run"))[0], read(str(tmp_path / "base"))[0])
    predicted = scoring.predict(faulty, clean, "input", "all")
    assert (predicted.fix, predicted.led, predicted.held) == ("input", True, True)
    assert predicted.error == pytest.approx(0.0, abs=0.01)


def test_a_run_without_steps_cannot_be_scored(clean: Analysis) -> None:
    with pytest.raises(ValueError, match="no steps"):
        scoring.predict(clean, replace(clean, step=None), "input", "all")


# -- errors, and what holds ----------------------------------------------------------------------


def test_errors_are_shares_of_the_faulty_step() -> None:
    assert prediction().error == pytest.approx(0.05)
    assert prediction(predicted_ms=18.0).error == pytest.approx(-0.05)


def test_a_prediction_holds_within_both_intervals_together() -> None:
    assert prediction(predicted_ms=21.4, predicted_ci95=(20.4, 22.4)).held is True
    assert prediction(predicted_ms=21.5, predicted_ci95=(20.5, 22.5)).held is False
    assert prediction(predicted_ms=18.5, predicted_ci95=(17.5, 19.5)).held is False
    assert prediction(predicted_ms=18.7, predicted_ci95=(17.7, 19.7)).held is True
    assert prediction(predicted_ci95=None).held is None
    assert prediction(predicted_ms=21.4, achieved_ci95=None).held is False


def test_a_bound_holds_if_the_fix_gains_no_more() -> None:
    slower = prediction(predicted_ms=10.0, predicted_ci95=(9.0, 11.0), bound=True)
    assert (slower.held, slower.error) == (True, None)
    faster = prediction(predicted_ms=30.0, predicted_ci95=(29.0, 31.0), bound=True)
    assert faster.held is False


def test_rows_count_predictions() -> None:
    scores = [
        scoring.line(prediction(predicted_ms=20.4, predicted_ci95=(20.0, 21.0)), where()),
        scoring.line(prediction(predicted_ms=28.0, predicted_ci95=(27.0, 29.0)), where("b")),
        scoring.line(prediction(fix=None, predicted_ms=None, predicted_ci95=None), where("c")),
        scoring.line(prediction(predicted_ms=10.0, bound=True), where("d", ranks=4)),
    ]
    rows = scoring.rows(scores, ("ranks",))
    assert list(rows) == [(2,), (4,)]
    two = rows[2,]
    assert (two.n, two.predicted, two.bounds, two.with_interval) == (3, 2, 0, 2)
    assert (two.median, two.held) == (pytest.approx(0.105), 0.5)
    assert two.p90 == pytest.approx(0.01 + 0.9 * 0.19)
    four = rows[4,]
    assert (four.predicted, four.bounds, four.median) == (0, 1, None)
    assert (two.bounds_held, four.bounds_held) == (None, 1.0)
    assert (four.with_interval, four.held) == (0, None)


def test_equal_fixed_runs_show_how_much_trainings_differ() -> None:
    scores = [
        scoring.line(prediction(achieved_ms=20.0), where("a")),
        scoring.line(prediction(achieved_ms=22.0), where("b")),
        scoring.line(prediction(achieved_ms=30.0), where("c", prefetched=True)),
        scoring.line(prediction(achieved_ms=90.0), where("d", baseline="base-1")),
    ]
    assert scoring.repeat_differences(scores) == [pytest.approx(0.05)]


def test_scores_come_back_from_the_file(tmp_path: Path) -> None:
    scores = [scoring.line(prediction(), where(name)) for name in "ab"]
    for score in scores:
        driver.append_score(tmp_path / "scores.jsonl", score)
    again = driver.read_scores(tmp_path / "scores.jsonl")
    assert again == json.loads(json.dumps(scores))


# -- the page ------------------------------------------------------------------------------------


def content(tmp_path: Path, *scores: dict[str, Any]) -> dict[str, Any]:
    for score in scores:
        driver.append_score(tmp_path / "scores.jsonl", score)
    scoring.SECTION.bring_together(tmp_path / "scores.jsonl", tmp_path / "pairs.json")
    return dict(json.loads((tmp_path / "pairs.json").read_text()))


def test_the_page_lists_the_targets_and_every_miss(tmp_path: Path) -> None:
    good = scoring.line(prediction(predicted_ms=20.1, predicted_ci95=(19.5, 20.7)), where("a"))
    bad = scoring.line(prediction(predicted_ms=30.0, predicted_ci95=(29.0, 31.0)), where("b"))
    text = scoring.page(content(tmp_path, good, bad))
    assert "2 pairs of real trainings" in text
    assert "with a baseline: holds | ≥ 90 % of pairs | 50.0 %; 2 pairs | **missed**" in text
    assert "without a baseline: holds | ≥ 90 % of pairs | – | not measured" in text
    miss = "30.0 ms predicted (29.0 to 31.0) after fixing input, 20.0 ms achieved, error +25.0 %"
    assert text.count(miss) == 2
    assert "20.1 ms predicted" not in text


def test_without_pairs_the_page_says_so() -> None:
    assert "Not trained yet" in scoring.page({"pairs": []})
    assert [bar.passed for bar in scoring.pair_bars([])] == [None] * 9


def test_bounds_are_judged_per_framework_and_not_as_predictions(tmp_path: Path) -> None:
    holds = prediction(predicted_ms=10.0, predicted_ci95=None, bound=True)
    exceeded = prediction(predicted_ms=30.0, predicted_ci95=None, bound=True)
    text = scoring.page(
        content(
            tmp_path,
            scoring.line(holds, where("a")),
            scoring.line(exceeded, where("b", mode="alone")),
            scoring.line(holds, where("c", framework="ddp")),
        )
    )
    assert (
        "Keras + Horovod: the fix gains no more | ≥ 97 % of pairs | 50.0 %; 2 pairs | **mis" in text
    )
    assert "DDP: the fix gains no more | ≥ 97 % of pairs | 100 %; 1 pair | passed" in text
    assert "PyTorch + Horovod: the fix gains no more | ≥ 97 % of pairs | – | not measured" in text
    assert "at least 30.0 ms predicted after fixing input, 20.0 ms achieved" in text
    assert "with a baseline: holds | ≥ 90 % of pairs | – | not measured" in text
