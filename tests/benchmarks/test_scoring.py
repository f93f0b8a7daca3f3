"""The scorecard counts right answers as right and wrong ones as wrong."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from support.benchmarks import benchmark
from support.step_logs import Job, write_job

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.stragglers.lateness import Straggler
from stallscope.arrays.stats import Mean
from stallscope.parsers import read

CLEAN = Job(ranks=4, steps=300, allreduce_ms=1.0)


scoring = benchmark("scoring", "scorecard")
lines = benchmark("score_lines", "scorecard")


def analysis_of(folder: Path, job: Job) -> Analysis:
    """Analyse a job against a clean one like it, which has other noise."""
    clean = replace(job, slow={}, seed=job.seed + 1, run_id="base", facts={"synthetic": True})
    write_job(folder / "run", job)
    write_job(folder / "base", clean)
    return analyse(read(str(folder / "run"))[0], read(str(folder / "base"))[0])


def scored(analysis: Analysis, who: str, stage: str | None, rank: int | None = None) -> Any:
    injected = scoring.Injected(stage, who, rank, mean_ms=6.0, step_ms=23.0)
    return scoring.score(analysis, injected, {"ranks": len(analysis.ranks)})


def straggler(pattern: str, stage: str, *ranks: int) -> Straggler:
    return Straggler(pattern, ranks, (), stage, Mean(3.0, None), 0.5, Mean(1.0, None))


@pytest.mark.parametrize("stage", ["input", "compute", "other"])
def test_one_slow_rank_is_right_with_its_stage_and_size(tmp_path: Path, stage: str) -> None:
    score = scored(analysis_of(tmp_path, replace(CLEAN, slow={(1, stage): 6.0})), "one", stage, 1)
    assert (score.cause_right, score.rank_right, score.verdict_right) == (True, True, True)
    assert (score.named, score.stage, score.verdict) == ((1,), stage, "imbalance")
    assert score.recovered == pytest.approx(1.0, abs=0.1)
    # The culprit's own log shows its stage; on the three waiting ranks it looks like allreduce.
    assert score.own_log_right == 0.25
    assert score.latest == (1, stage)
    assert (score.latest_cause_right, score.latest_rank_right) == (True, True)


def test_cause_and_rank_are_scored_apart(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, replace(CLEAN, slow={(1, "compute"): 6.0}))
    wrong_rank = scored(analysis, "one", "compute", 2)
    assert (wrong_rank.cause_right, wrong_rank.rank_right) == (True, False)
    assert (wrong_rank.verdict_right, wrong_rank.recovered) == (False, None)
    assert (wrong_rank.latest_cause_right, wrong_rank.latest_rank_right) == (True, False)
    wrong_stage = scored(analysis, "one", "input", 1)
    assert (wrong_stage.cause_right, wrong_stage.rank_right) == (False, True)
    assert wrong_stage.verdict_right is False
    one_too_many = replace(
        analysis, stragglers=(*analysis.stragglers, straggler("bursts", "input", 3))
    )
    assert scored(one_too_many, "one", "compute", 1).rank_right is False


def test_a_rank_that_is_late_at_times_is_not_persistent(tmp_path: Path) -> None:
    bursts = replace(analysis_of(tmp_path, CLEAN), stragglers=(straggler("bursts", "compute", 1),))
    score = scored(bursts, "one", "compute", 1)
    assert (score.named, score.cause_right, score.rank_right) == ((1,), False, False)


@pytest.mark.parametrize("stage", ["input", "compute", "other"])
def test_all_slow_ranks_are_right_when_no_rank_is_named(tmp_path: Path, stage: str) -> None:
    job = replace(CLEAN, slow={(rank, stage): 6.0 for rank in range(4)})
    analysis = analysis_of(tmp_path, job)
    score = scored(analysis, "all", stage)
    assert (score.cause_right, score.rank_right, score.stage, score.named) == (
        True,
        True,
        stage,
        (),
    )
    assert score.recovered == pytest.approx(1.0, abs=0.1)
    assert score.own_log_right == 1.0
    assert score.latest is None
    assert (score.latest_cause_right, score.latest_rank_right) == (False, True)
    wrong = next(candidate for candidate in ("input", "compute", "other") if candidate != stage)
    assert scored(analysis, "all", wrong).cause_right is False
    named = replace(analysis, stragglers=(straggler("persistent", stage, 0),))
    assert scored(named, "all", stage).rank_right is False


def test_an_excess_within_the_noise_is_not_a_cause(tmp_path: Path) -> None:
    score = scored(analysis_of(tmp_path, replace(CLEAN, noise=0.1)), "all", "compute")
    assert (score.stage, score.cause_right) == (None, False)


def test_rotating_needs_the_pattern_and_the_stage(tmp_path: Path) -> None:
    clean = analysis_of(tmp_path, CLEAN)
    rotating = replace(clean, stragglers=(straggler("rotating", "input"),))
    right = scored(rotating, "rotating", "input")
    assert (right.cause_right, right.rank_right, right.recovered) == (True, True, 0.5)
    assert scored(rotating, "rotating", "compute").cause_right is False
    assert scored(clean, "rotating", "input").cause_right is False
    named = replace(clean, stragglers=(straggler("persistent", "input", 2),))
    wrong = scored(named, "rotating", "input")
    assert (wrong.cause_right, wrong.rank_right) == (False, False)


def test_naming_any_rank_in_a_clean_run_is_a_false_alarm(tmp_path: Path) -> None:
    clean = analysis_of(tmp_path, CLEAN)
    quiet = scored(clean, "none", None)
    assert (quiet.rank_right, quiet.latest_rank_right, quiet.verdict_right) == (True, True, True)
    assert (quiet.cause_right, quiet.own_log_right, quiet.recovered) == (None, None, None)
    for alarm in (
        straggler("bursts", "input", 3),
        replace(straggler("ramp", "other"), hosts=("a",)),
    ):
        assert scored(replace(clean, stragglers=(alarm,)), "none", None).rank_right is False


def test_of_two_ranks_the_latest_is_named_above_three_quarters(tmp_path: Path) -> None:
    slow = replace(CLEAN, ranks=2, slow={(1, "other"): 6.0})
    assert scoring.latest_arrival(analysis_of(tmp_path / "slow", slow).steady) == (1, "other")
    clean = replace(CLEAN, ranks=2)
    assert scoring.latest_arrival(analysis_of(tmp_path / "clean", clean).steady) is None


def test_the_variation_of_own_step_times_is_the_clean_runs(tmp_path: Path) -> None:
    job = replace(CLEAN, noise=0.05, input_ms=0.0, other_ms=0.0, slow={(1, "compute"): 20.0})
    cv = scored(analysis_of(tmp_path, job), "one", "compute", 1).cv
    assert cv == pytest.approx((0.05,) * 4, rel=0.2)


def test_scores_come_back_from_the_file(tmp_path: Path) -> None:
    slow = scored(
        analysis_of(tmp_path, replace(CLEAN, slow={(1, "input"): 6.0})), "one", "input", 1
    )
    quiet = scored(analysis_of(tmp_path / "clean", CLEAN), "none", None)
    file = tmp_path / "scores.jsonl"
    lines.append_score(file, asdict(slow))
    lines.append_score(file, asdict(quiet))
    assert scoring.scores_in(file) == [slow, quiet]


def test_rows_contain_shares_and_medians(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, replace(CLEAN, slow={(1, "compute"): 6.0}))
    right = scored(analysis, "one", "compute", 1)
    wrong = replace(right, cause_right=False, found_ms=None, cv=())
    quiet = scored(analysis_of(tmp_path / "clean", CLEAN), "none", None)
    rows = {row.cell: row for row in scoring.table([right, wrong, quiet], ("who", "ranks"))}
    slow = rows["one", 4]
    assert (slow.n, slow.cause_right, slow.rank_right) == (2, 0.5, 1.0)
    assert slow.recovered == right.recovered
    assert slow.cv == pytest.approx(sum(right.cv) / 4)
    assert (slow.own_log_right, slow.latest_rank_right) == (0.25, 1.0)
    clean = rows["none", 4]
    assert (clean.n, clean.cause_right, clean.recovered, clean.rank_right) == (1, None, None, 1.0)
