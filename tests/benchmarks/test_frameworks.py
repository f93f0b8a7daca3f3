"""Frameworks of the scorecard: what is trained, and that scores and page tell right from wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.benchmarks import benchmark
from support.step_logs import Job, forget_stages, write_job

cells = benchmark("cells", "scorecard")
injection = benchmark("injection", "scorecard")
driver = benchmark("chapter", "scorecard")
frameworks = benchmark("frameworks", "scorecard")

CHAPTER = frameworks.Frameworks()

RANKS, STEPS = 2, 240
CLEAN = Job(ranks=RANKS, steps=STEPS, allreduce_ms=1.0)
FAULT_MS = 20.0


def launch() -> list[Any]:
    """The cells of one launch of a framework that names ranks."""
    options = ["--framework", "fsdp", "--ranks", str(RANKS), "--sizes", "100", "--repeats", "1"]
    (planned,) = CHAPTER.launches(driver.parser(CHAPTER).parse_args(options))
    return list(planned)


def trained(out: Path, cell: Any, job: Job) -> None:
    """Pretend that a cell has been trained."""
    folder = out / cell.name
    (folder / "logs").mkdir(parents=True)
    write_job(folder / "logs", replace(job, run_id=cell.name))
    cells.write_cell(folder, cell)
    for rank in range(RANKS):
        faulty = FAULT_MS * 1e6 if rank == cell.rank else 0
        content = {"step_ns": 2e7, "cpu_wait_ns": 0, "injected_ns": [faulty] * STEPS}
        cells.truth_path(folder, rank).write_text(json.dumps(content))


def test_each_launch_has_both_faults_and_clean_runs() -> None:
    planned = launch()
    assert planned[0].synthetic
    assert sorted((cell.stage or "") for cell in planned[1:]) == ["", "", "compute", "input"]
    assert all(cell.rank in range(RANKS) for cell in planned if cell.stage)
    for framework in frameworks.FRAMEWORKS:
        assert (Path(frameworks.HERE) / frameworks.program(framework)).exists()


def test_each_batch_of_a_step_gets_its_part_of_the_fault() -> None:
    cell = cells.Cell("accumulate", 1, 0, 0, "input", "all", 100, "sleep")
    fault = injection.Injection(cell, rank=0, steps=3, clean_step_ns=4e6, batches=2)
    for _ in range(6):
        fault.here("input")
    assert all(ns >= 4e6 for ns in fault.injected[:3])
    assert fault.injected[3] == 0
    # A step lasts from its first batch to the next one's.
    assert len(fault._requested) == 3


@pytest.mark.parametrize("right", [True, False])
def test_a_slow_rank_is_scored_against_what_was_injected(tmp_path: Path, right: bool) -> None:
    planned = launch()
    for cell in planned:
        rank = cell.rank if right or cell.rank is None else 1 - cell.rank
        slow = {} if rank is None else {(rank, cell.stage): FAULT_MS}
        trained(tmp_path, cell, replace(CLEAN, slow=slow))
    driver.run(CHAPTER, ["score", str(tmp_path)])
    scores = driver.read_scores(tmp_path / driver.SCORES)
    for cell_score in scores:
        assert cell_score["right"] is (right or cell_score["stage"] is None)
        if cell_score["stage"] is not None:
            assert cell_score["named"] == [cell_score["rank"] if right else 1 - cell_score["rank"]]
            assert cell_score["error"] == pytest.approx(0, abs=0.02)
    assert len(scores) == len(planned) - 1


def test_jax_is_right_if_it_names_no_rank(tmp_path: Path) -> None:
    facts = {"stamps": {"placed": ["data"], "reason": "compiled", "input_exposed": True}}
    slow = cells.Cell("jax", RANKS, 0, 0, "input", "one", 100, "sleep")
    baseline = cells.Cell("jax", RANKS, 0, 0, synthetic=True)
    job = replace(CLEAN, facts=facts)
    trained(tmp_path, baseline, job)
    trained(tmp_path, slow, replace(job, slow={(slow.rank, "input"): FAULT_MS}))
    for cell in (baseline, slow):
        forget_stages(tmp_path / cell.name / "logs")
    jax_score = frameworks.score_cell(tmp_path, slow)
    assert (jax_score["right"], jax_score["named"]) == (True, [])
    assert jax_score["recovered"] == pytest.approx(1, abs=0.05)


def run(**changed: Any) -> dict[str, Any]:
    known: dict[str, Any] = {
        "framework": "ray",
        "ranks": 2,
        "repeat": 0,
        "stage": "input",
        "rank": 1,
        "percent": 30.0,
        "named": [1],
        "found": "input",
        "right": True,
        "recovered": 1.0,
        "verdict_right": True,
        "injected_ms": 10.0,
        "allreduce_ms": 1.0,
        "step_ms": 30.0,
        "cpu_wait_ms": 12.0,
        "error": 0.01,
        "held": True,
        "evidence": "Rank 1 is late.",
    }
    return {**known, **changed}


CLEAN_RUN = run(stage=None, rank=None, named=[], found=None, error=None, recovered=None)


def test_the_page_has_the_misses() -> None:
    jax = run(framework="jax", named=[], found=None, error=None, verdict_right=None)
    good = [run(), CLEAN_RUN, {**CLEAN_RUN, "step_ms": 33.0}, jax]
    bad = [run(named=[0], right=False), {**CLEAN_RUN, "named": [1]}, {**jax, "right": False}]
    assert [bar.passed for bar in frameworks.framework_bars(good)] == [True] * 3
    assert [bar.passed for bar in frameworks.framework_bars(good + bad)] == [False] * 3
    text = frameworks.page({"made_on": {"cores": 2}, "runs": good + bad})
    assert "input of rank 1 +30 %. Found: ranks [0], input, 1.00 times its size. Rank 1 is" in text
    assert "A rank waited 12 ms of each 30 ms step for a core." in text
    assert "Ray Train, 2 ranks, no fault. Found: ranks [1]" in text
    assert "10 % in the median" in text
    assert "make frameworks" in frameworks.page({"made_on": {}, "runs": []})


def test_an_answer_that_is_not_first_is_listed() -> None:
    text = frameworks.page({"made_on": {"cores": 2}, "runs": [run(verdict_right=False), CLEAN_RUN]})
    assert "## Other verdicts" in text
    # Where allreduce costs as much, it may be the first answer.
    small = run(verdict_right=False, allreduce_ms=9.0)
    assert "## Other verdicts" not in frameworks.page({"made_on": {"cores": 2}, "runs": [small]})
