"""The scorecard's chapter on hangs counts right as right, late as late and false alarms as such."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.benchmarks import benchmark

plan = benchmark("hangs_plan", "scorecard")
scoring = benchmark("hangs_scores", "scorecard")

MOMENT = 1000.0
HANG = plan.Case("torch", 4, 1, 1, 0, "loader", 2, 30, 0.0)
KILL = replace(HANG, what="kill")
CLEAN = replace(HANG, what="validation", rank=None)


def look(seconds: float, ranks: tuple[int, ...] = (2,), stage: str | None = "input") -> Any:
    return scoring.Look(MOMENT + seconds, True, ranks, (stage,) * len(ranks), (0,), True, "said")


def scored(case: Any, *looks: Any) -> dict[str, Any]:
    before = scoring.Look(MOMENT - 1)
    return dict(scoring.score(case, [before, *looks], MOMENT, False))


def test_the_rank_and_its_stage_in_time_are_right() -> None:
    score = scored(HANG, scoring.Look(MOMENT + 1), look(6.0), look(11.0))
    assert scoring.right(score)
    assert scoring.in_time(score)
    assert (score["seen_s"], score["named_s"], score["alarm"]) == (6.0, 6.0, None)


def test_another_rank_is_wrong_even_if_it_is_taken_back() -> None:
    assert not scoring.right(scored(HANG, look(6.0, (1,)), look(11.0)))
    assert not scoring.right(scored(HANG, look(6.0, (1, 2))))


def test_another_stage_is_wrong() -> None:
    score = scored(HANG, look(6.0, stage="compute"))
    assert scoring.rank_right(score)
    assert not scoring.stage_right(score)


def test_a_killed_rank_has_no_stage() -> None:
    assert scoring.right(scored(KILL, look(6.0, stage=None)))
    assert not scoring.right(scored(KILL, look(6.0, stage="input")))


def test_a_missed_hang_is_wrong_and_late() -> None:
    score = scored(HANG, scoring.Look(MOMENT + 20))
    assert not scoring.right(score)
    assert not scoring.in_time(score)
    assert not scoring.in_time(scored(HANG, look(10.1)))


def test_an_alarm_is_false_in_a_clean_run_and_before_the_moment() -> None:
    assert scored(CLEAN, look(6.0))["alarm"] == "said"
    assert scored(HANG, look(-0.5), look(6.0))["alarm"] == "said"


def test_each_seed_plans_the_same_and_every_fault_on_both_numbers_of_ranks() -> None:
    cases = plan.plan(plan.FRAMEWORKS, 102, 1)
    assert cases == plan.plan(plan.FRAMEWORKS, 102, 1)
    assert cases != plan.plan(plan.FRAMEWORKS, 102, 2)
    assert len({case.name for case in cases}) == 102
    kinds = {(case.framework, case.what, case.ranks) for case in cases if not case.clean}
    assert len(kinds) == len(plan.FRAMEWORKS) * len(plan.FAULTS) * len(plan.RANKS)
    # The launcher's own host keeps its power.
    powerless = [case for case in cases if case.what == "power"]
    assert all(case.hosts == case.ranks and case.rank for case in powerless)


@pytest.mark.parametrize(("wrong", "passed"), [(0, True), (2, False)])
def test_the_bar_is_computed(wrong: int, passed: bool) -> None:
    runs = [scored(HANG, look(6.0)) for _ in range(20 - wrong)]
    runs += [scored(HANG, look(6.0, (1,))) for _ in range(wrong)]
    right, in_time, alarms = scoring.hang_bars(runs)
    assert right.passed is passed
    assert len(right.misses) == wrong
    assert in_time.passed
    assert alarms.passed
    page = scoring.page({"made_on": {"cores": 2}, "runs": runs})
    assert f"{20 - wrong} of 20" in page
    assert ("## Misses" in page) is (wrong > 0)
