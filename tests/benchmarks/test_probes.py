"""Input probes of the scorecard: the plan, its trainings, and scores that tell right from wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.benchmarks import benchmark
from support.step_logs import Job, run_of_job

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.gains.what_if import Bottleneck, Reason
from stallscope.run import Run as Recorded

plan = benchmark("probes_plan", "scorecard")
pairs_plan = benchmark("pairs_plan", "scorecard")
driver = benchmark("chapter", "scorecard")
probes = benchmark("probes", "scorecard")
scoring = benchmark("probes_scores", "scorecard")

CHAPTER = probes.Probes()
CLEAN = Job(ranks=2, steps=300, input_ms=0.5, allreduce_ms=1.0)


def options(*words: str) -> Any:
    return driver.parser(CHAPTER).parse_args(words)


def faulty(cause: str, workers: int, **changes: Any) -> Any:
    return replace(plan.Run("ddp", 2, 0, cause, workers, delay_ms=30.0), **changes)


# -- the plan ------------------------------------------------------------------------------------


def test_on_two_ranks_every_kind_occurs_once_and_on_one_rank_or_all() -> None:
    for framework, kinds in plan.KINDS.items():
        runs = plan.faulty_runs(framework, 2, 0)
        assert [(run.cause, run.workers) for run in runs] == list(kinds)
        assert {run.who for run in runs} == {"one", "all"}
        assert all(run.rank in (0, 1) for run in runs if run.who == "one")
        assert {run.rank for run in plan.faulty_runs(framework, 1, 0)} == {None}


def test_one_rank_and_four_share_the_kinds() -> None:
    for framework, kinds in plan.KINDS.items():
        some, others = (
            {(run.cause, run.workers) for run in plan.faulty_runs(framework, ranks, 0)}
            for ranks in (1, 4)
        )
        assert not some & others
        assert some | others == set(kinds)


def test_the_usual_plan_has_sixty_to_eighty_pairs_of_different_names(tmp_path: Path) -> None:
    launches = CHAPTER.missing(tmp_path, options())
    names = Counter(run.name for launch in launches for run in launch.runs if run.cause != "none")
    assert set(names.values()) == {1}
    assert 60 <= len(names) <= 80
    assert CHAPTER.counted(launches) == f"{len(names)} pairs in 12 launches"
    (look,) = CHAPTER.missing(tmp_path, options("--framework", "ddp", "--ranks", "2", "--quick"))
    assert len(look.groups) == 1


def test_a_repaired_run_comes_first_in_its_group_and_has_no_fault() -> None:
    runs = plan.faulty_runs("torch", 2, 0)
    groups = plan.groups(runs)
    assert sorted(run.name for group in groups for run in group[1:]) == sorted(
        run.name for run in runs
    )
    for repaired, *of_group in groups:
        assert {run.repaired for run in of_group} == {repaired}
        assert (repaired.cause, repaired.rank) == ("none", None)


def test_a_plan_comes_back_from_its_file(tmp_path: Path) -> None:
    wanted = plan.Plan(plan.groups(plan.faulty_runs("keras", 4, 1)), epochs=4, steps=80)
    plan.write_plan(tmp_path / "plan.json", wanted)
    assert plan.read_plan(tmp_path / "plan.json") == wanted


def test_every_cause_has_its_codes_and_its_title() -> None:
    causes = {cause for kinds in plan.KINDS.values() for cause, _ in kinds}
    assert causes == set(plan.CAUSES) == set(scoring.CODES)


def test_loaders_are_slow_where_the_fault_is_only() -> None:
    alone = faulty("storage", 0, who="one")
    assert alone.loader(alone.rank).reading_ms == 30.0
    assert alone.loader(1 - alone.rank) == plan.Loader()
    decoding = faulty("decoding", 0).loader(0)
    assert (decoding.reading_ms, decoding.decoding_ms) == (0.0, 30.0)
    # Workers hide a step's time.
    assert faulty("collating", 1).loader(0).collating_ms > 30.0
    few, enough = faulty("few_workers", 1), faulty("few_workers", 1).repaired
    assert few.loader(0).reading_ms == enough.loader(0).reading_ms
    assert (few.loader(0).workers, enough.loader(0).workers) == (1, 4)


def test_one_worker_one_shard_or_some_samples_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[int] = []
    monkeypatch.setattr(plan, "sleep", slept.append)

    def slow(cause: str, workers: int) -> Callable[[int, int], bool]:
        loader = faulty(cause, workers).loader(0)

        def is_slow(sample: int, worker: int) -> bool:
            slept.clear()
            loader.read(sample, worker)
            return bool(slept)

        return is_slow

    for cause in ("slow_worker", "slow_shard"):
        assert [slow(cause, 2)(sample, worker) for sample in (0, 5) for worker in (0, 1)] == [
            *(True, False),
            *(True, False),
        ]
    samples = slow("slow_samples", 2)
    batches = [any(samples(at * plan.BATCH + n, 0) for n in range(plan.BATCH)) for at in range(22)]
    assert [at for at, is_slow in enumerate(batches) if is_slow] == [0, 11]


# -- the trainings -------------------------------------------------------------------------------


@pytest.mark.broad
def test_the_runs_of_a_group_take_turns_of_an_epoch(tmp_path: Path) -> None:
    repaired, slow = plan.groups([faulty("storage", 0)])[0]
    wanted = plan.Plan([[repaired, slow]], epochs=2, steps=80)
    plan.write_plan(tmp_path / "plan.json", wanted)
    happened: list[tuple[str, int]] = []

    def train(run: Any, log_dir: Path, epochs: int, steps: int, pause: Callable[[], None]) -> None:
        log_dir.mkdir(parents=True, exist_ok=True)
        for epoch in range(epochs):
            happened.append((run.cause, epoch))
            pause()

    plan.Rank(tmp_path, 0, train).run(tmp_path / "plan.json")
    warm_up, *turns = happened
    assert warm_up == ("none", 0)
    assert turns == [("none", 0), ("storage", 0), ("storage", 1), ("none", 1)]
    # The other rank is missing.
    assert plan.trained_runs(tmp_path) == []
    plan.Rank(tmp_path, 1, train).run(tmp_path / "plan.json")
    assert {run.name for run in plan.trained_runs(tmp_path)} == {repaired.name, slow.name}


def test_a_group_is_trained_again_until_all_of_its_runs_are_there(tmp_path: Path) -> None:
    wanted = options("--framework", "ddp", "--ranks", "1", "--only", "storage")
    (launch,) = CHAPTER.missing(tmp_path, wanted)
    assert CHAPTER.seconds(launch, wanted) > 0
    for run in launch.runs:
        assert CHAPTER.missing(tmp_path, wanted) == [launch]
        folder = tmp_path / run.name
        folder.mkdir()
        pairs_plan.segment_path(folder).write_text('{"ranks": 1}')
        pairs_plan.rank_path(folder, 0).write_text("{}")
    assert CHAPTER.missing(tmp_path, wanted) == []


# -- scores --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return run_of_job(tmp_path_factory.mktemp("clean"), replace(CLEAN, seed=2))


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    late = {(rank, "input"): 20.0 for rank in (0, 1)}
    return run_of_job(tmp_path_factory.mktemp("slow"), replace(CLEAN, slow=late))


def named(analysis: Analysis, *codes: str, ranks: tuple[int, ...] = ()) -> Analysis:
    """Return the analysis with a verdict of slow input, with these reasons."""
    why = tuple(Reason(f"loader_{code}", "", (), (), "", "", "", 1.0, None, None) for code in codes)
    kind = "imbalance" if ranks else "input"
    verdict = Bottleneck(kind, "input", "", ranks=ranks, fault=True, why=why)
    return replace(analysis, bottleneck=verdict)


@pytest.mark.parametrize(
    ("run", "codes", "ranks", "right"),
    [
        (faulty("storage", 0), ("no_workers", "waiting"), (), True),
        (faulty("storage", 0), ("no_workers",), (), False),
        (faulty("storage", 1), ("few_workers", "waiting", "passing"), (), False),
        (faulty("storage", 1), ("few_workers", "waiting"), (1,), False),
        (faulty("slow_shard", 2), ("slow_worker",), (), True),
        (faulty("slow_samples", 2), ("slow_worker",), (), False),
        (faulty("few_workers", 1, framework="keras"), (), (), True),
        (faulty("storage", 1, ranks=1, who="all"), ("waiting",), (), True),
    ],
)
def test_a_cause_is_right_if_it_is_named_and_no_wrong_one(
    slow: Recorded, run: Any, codes: tuple[str, ...], ranks: tuple[int, ...], right: bool
) -> None:
    assert scoring.cause_right(run, named(analyse(slow), *codes, ranks=ranks)) is right


def test_the_slow_rank_has_to_be_named(slow: Recorded) -> None:
    run = faulty("storage", 0, who="one")
    codes = ("no_workers", "waiting")
    for ranks, right in (((run.rank,), True), ((1 - run.rank,), False), ((), False)):
        assert scoring.cause_right(run, named(analyse(slow), *codes, ranks=ranks)) is right


def test_another_verdict_is_wrong_whatever_its_reasons(clean: Recorded) -> None:
    analysis = analyse(clean)
    assert not scoring.cause_right(faulty("storage", 0, framework="keras"), analysis)


def test_a_gain_that_no_probe_has_measured_has_no_error(slow: Recorded, clean: Recorded) -> None:
    score = scoring.score_pair(faulty("storage", 0), slow, clean)
    assert (score["verdict"], score["measured"], score["error"], score["held"]) == (
        *("input", False),
        *(None, None),
    )
    assert (score["probed_steps"], score["refused"]) == (0, None)
    # The step logs have no figures of a loader.
    assert (score["codes"], score["cause_right"]) == ([], False)
    assert score["achieved_ms"] < score["faulty_ms"] - 15


def test_a_refused_probe_is_in_the_score(slow: Recorded, clean: Recorded) -> None:
    fact = {"input_probe": {"refused": "no memory", "probes": []}}
    logs = tuple(replace(log, facts={**log.facts, **fact}) for log in slow.logs)
    score = scoring.score_pair(faulty("storage", 0), replace(slow, logs=logs), clean)
    assert score["refused"] == "no memory"
    assert "No gain measured: no memory" in scoring.probe_bars([score])[3].misses[0]


def test_a_repaired_run_accuses_nobody_unless_input_is_the_verdict(
    slow: Recorded, clean: Recorded
) -> None:
    repaired = faulty("storage", 0).repaired
    assert scoring.score_repaired(repaired, clean)["accused"] is False
    assert scoring.score_repaired(repaired, slow)["accused"] is True


# -- the page ------------------------------------------------------------------------------------


def pair(name: str, predicted_ms: float = 20.5, **changes: Any) -> dict[str, Any]:
    known = {
        "name": name,
        **{key: getattr(faulty("storage", 1), key) for key in scoring._RUN},
        "rank": None,
        "codes": ["loader_waiting"],
        "evidence": "Batches arrive late.",
        "probed_steps": 72,
        "refused": None,
        "fix": "input",
        "faulty_ms": 50.0,
        "achieved_ms": 20.0,
        "achieved_ci95": [19.0, 21.0],
        "predicted_ms": predicted_ms,
        "predicted_ci95": [19.0, 22.0],
        "measured": True,
        "error": (predicted_ms - 20.0) / 50.0,
        "held": True,
        "cause_right": True,
    }
    return {**known, **changes}


def repaired_run(**changes: Any) -> dict[str, Any]:
    known = pair("repaired", cause="none", delay_ms=0.0)
    return {**known, "accused": False, "real_ms": 20.0, "saved_ms": 0.4, **changes}


def test_the_page_lists_the_targets_and_every_miss(tmp_path: Path) -> None:
    scores = [
        pair("a"),
        pair("b", predicted_ms=10.0, held=False),
        pair("c", measured=False, error=None, held=None, cause_right=False),
        repaired_run(),
        repaired_run(accused=True, evidence="Rank 1 is slow."),
    ]
    for score in scores:
        driver.append_score(tmp_path / "scores.jsonl", score)
    text = scoring.page(scoring.SECTION.results(tmp_path / "scores.jsonl"))
    assert "in 3 pairs of real trainings" in text
    assert "median error | ≤ 2 % of the step | 10.5 %; 2 pairs | **missed**" in text
    assert "holds | ≥ 92 % of pairs | 50.0 % of 2 pairs" in text
    assert "a probe measures the gain | ≥ 95 % of pairs | 66.7 % of 3 pairs" in text
    assert "the cause right | ≥ 90 % of pairs | 66.7 % of 3 pairs" in text
    assert "accused | ≤ 2 % of runs | 1 of 2 runs | **missed**" in text
    assert (
        "10.0 ms promised (19.0 to 22.0) after fixing input, 20.0 ms achieved, error −20.0 %"
        in text
    )
    assert "Named: `loader_waiting`. Batches arrive late." in text
    assert "DDP, 2 ranks, repaired, 1 worker. Rank 1 is slow." in text
    assert "| DDP | 1 of 2 | 2.0 % | 2.0 % |" in text


def test_without_pairs_the_page_says_so() -> None:
    assert "run `make probes`" in scoring.page({"runs": []})
    assert scoring.probe_bars([]) == []
