"""The scorecard counts right answers as right, trains what is missing, and writes its pages."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
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
driver = benchmark("chapter", "scorecard")
real = benchmark("real_scores", "scorecard")
scorecard = benchmark("scorecard", "scorecard")


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
    driver.append_score(file, asdict(slow))
    driver.append_score(file, asdict(quiet))
    assert [scoring.score_of(content) for content in driver.read_scores(file)] == [slow, quiet]


def test_the_page_has_shares_and_medians(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, replace(CLEAN, slow={(1, "compute"): 6.0}))
    right = scored(analysis, "one", "compute", 1)
    wrong = replace(right, cause_right=False, found_ms=None, cv=())
    quiet = scored(analysis_of(tmp_path / "clean", CLEAN), "none", None)
    cell = {"framework": "keras", "ranks": 4, "percent": 30.0, "way": "sleep", "misplaced": 0}
    for score in (right, wrong, quiet):
        driver.append_score(tmp_path / "scores.jsonl", asdict(replace(score, cell=cell)))
    text = real.SECTION.text(real.SECTION.results(tmp_path / "scores.jsonl"))
    # Own logs are right on the slow rank alone, and the median size is of what was found.
    size = f"{right.recovered:.2f}"
    assert f"| one rank, 30 % | 2 | 50 % | 0 % | 100 % | {size} | 25 % | 100 % |" in text
    assert "| keras, compute, sleep | 2 | 50 % | – | – |" in text
    assert "In 0 of 1 clean runs a rank was named; the latest-arrival rule named one in 0." in text
    assert f"step times in the clean run: {max(quiet.cv) * 100:.0f} to " in text


# -- the driver ----------------------------------------------------------------------------------


class Numbers(driver.Chapter):  # type: ignore[misc, name-defined]
    """A chapter whose runs are numbers: each leaves a file, and its score is its double."""

    name = "numbers"
    about = "Double numbers."
    section = driver.Section(
        "doubles",
        "Doubles",
        lambda content: [],
        lambda content: f"doubles: {sorted(run['double'] for run in content['runs'])}",
    )
    broken = -1

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--numbers", type=driver.numbers(int), default=(1, 2, 3))

    def missing(self, out: Path, options: argparse.Namespace) -> list[int]:
        return [number for number in options.numbers if not (out / f"{number}").exists()]

    def counted(self, missing: Sequence[int]) -> str:
        return f"{len(missing)} numbers"

    def seconds(self, work: int, options: argparse.Namespace) -> float:
        return 60.0

    def train(self, out: Path, work: int, options: argparse.Namespace) -> list[dict[str, Any]]:
        if work == self.broken:
            raise ZeroDivisionError
        (out / f"{work}").touch()
        return [] if self.scored_last else [{"double": 2 * work}]

    def answer(self, out: Path, work: int, scores: Sequence[dict[str, Any]]) -> str:
        return f"doubled {work}"

    def score_trained(self, out: Path, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
        for path in sorted(out.glob("[0-9]")):
            yield {"double": 2 * int(path.name)}


class ScoredAtOnce(Numbers):
    scored_last = False


def doubles(out: Path) -> list[int]:
    return [score["double"] for score in driver.read_scores(out / driver.SCORES)]


@pytest.mark.parametrize("kind", [Numbers, ScoredAtOnce])
def test_only_what_is_missing_is_trained(
    tmp_path: Path, kind: type[Numbers], capsys: pytest.CaptureFixture[str]
) -> None:
    driver.run(kind(), ["--out", str(tmp_path), "--numbers", "2"])
    assert doubles(tmp_path) == [4]
    driver.run(kind(), ["--out", str(tmp_path), "--estimate"])
    assert capsys.readouterr().out.endswith("2 numbers, about 2 minutes\n")
    assert doubles(tmp_path) == [4]
    driver.run(kind(), ["--out", str(tmp_path)])
    assert sorted(doubles(tmp_path)) == [2, 4, 6]
    printed = capsys.readouterr().out
    assert "2/2 doubled 3; about 0 minutes left" in printed
    assert printed.endswith("doubles: [2, 4, 6]\n")


def test_what_was_scored_before_an_error_is_kept(tmp_path: Path) -> None:
    chapter = ScoredAtOnce()
    chapter.broken = 2
    with pytest.raises(ZeroDivisionError):
        driver.run(chapter, ["--out", str(tmp_path)])
    assert doubles(tmp_path) == [2]


def test_trained_runs_are_scored_again_without_training(tmp_path: Path) -> None:
    (tmp_path / "3").touch()
    (tmp_path / driver.SCORES).write_text('{"double": 0}\n')
    driver.run(ScoredAtOnce(), ["score", str(tmp_path)])
    assert doubles(tmp_path) == [6]
    (tmp_path / "3").unlink()
    with pytest.raises(SystemExit, match="nothing that can be scored is trained in"):
        driver.run(ScoredAtOnce(), ["--again", "--out", str(tmp_path)])
    assert doubles(tmp_path) == [6]
    with pytest.raises(SystemExit, match="name the folder"):
        driver.run(ScoredAtOnce(), ["score"])


# -- the pages -----------------------------------------------------------------------------------


def test_the_pages_are_those_of_the_kept_scores() -> None:
    results = {chapter.name: scorecard.results_of(chapter) for chapter in scorecard.CHAPTERS}
    for name, text in scorecard.pages(results).items():
        if name.endswith(".md"):
            assert text == (scorecard.PAGE.parent / name).read_text(), "scorecard.py page writes it"


@pytest.mark.broad
def test_cells_that_are_simulated_are_not_simulated_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (chapter,) = (chapter for chapter in scorecard.CHAPTERS if chapter.name == "simulated")
    # Other processes cannot import what is on no path.
    monkeypatch.setattr(chapter, "pool", lambda options: None)
    options = ["--only", "^8-one-compute-30-cv10$", "--out", str(tmp_path)]
    driver.run(chapter, [*options, "--runs", "1"])
    (path,) = tmp_path.glob("*.jsonl")
    _, record = path.read_text().splitlines()
    assert json.loads(record)["cause_right"]
    driver.run(chapter, [*options, "--runs", "2", "--estimate"])
    assert capsys.readouterr().out.splitlines()[-1].startswith("1 runs in 1 cells, about 0 min")
    with pytest.raises(SystemExit, match="no cell is called nonsense"):
        driver.run(chapter, ["--only", "nonsense", "--out", str(tmp_path)])
