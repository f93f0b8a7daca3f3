"""Findings on validation and checkpoints between the steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from support.findings import CLEAN, TWO_HOSTS, codes, finding_of, only
from support.step_logs import MS, run_of_job, write_job

from stallscope.analysis.gains.what_if import in_words
from stallscope.parsers import read
from stallscope.run import INTERVALS_SCHEMA, Run


def seconds_of(run: Run) -> float:
    anchor = min(log.anchor for log in run.logs)
    return (max(row["end"] for row in run.intervals.to_pylist()) - anchor) / 1e9


def test_validation_on_all_ranks_is_reported_with_its_cost(tmp_path: Path) -> None:
    versions = {"versions": {"horovod": "0.28.1"}}
    run = run_of_job(tmp_path, replace(CLEAN, validation_ms=400, facts=versions))
    finding = finding_of(run, "validation_on_all_ranks")
    assert finding.severity == "info"
    assert finding.evidence.startswith("All 4 ranks validate for about the same time: ")
    assert f"0.8 s on every rank, {0.8 / seconds_of(run):.1%} of the job" in finding.evidence
    assert "MetricAverageCallback" in in_words(finding.advice)
    assert "2 of 4 ranks (ranks 1 and 2)" in (
        finding_of(only(run, "validation", [1, 2]), "validation_on_all_ranks").evidence
    )


def test_checkpoints_of_several_ranks_on_a_host(tmp_path: Path) -> None:
    run = run_of_job(tmp_path, replace(CLEAN, checkpoint_ms=30))
    finding = finding_of(run, "checkpoint_on_all_ranks")
    assert finding.severity == "warning"
    assert "Ranks 0–3, 4 of them on host alpha, wrote 8 checkpoints in all:" in finding.evidence
    assert codes(only(run, "checkpoint", [0])) == []


@pytest.mark.parametrize("kind", ["fully_shard", "Megatron-Core"])
def test_ranks_that_share_a_model_all_write_checkpoints(tmp_path: Path, kind: str) -> None:
    facts = {"sharding": {"kind": kind}}
    run = run_of_job(tmp_path, replace(CLEAN, checkpoint_ms=30, facts=facts))
    assert "checkpoint_on_all_ranks" not in codes(run)


def test_checkpoints_of_one_rank_per_host_are_fine_unless_all_ranks_write(tmp_path: Path) -> None:
    run = run_of_job(tmp_path / "four", replace(CLEAN, checkpoint_ms=30, **TWO_HOSTS))
    assert codes(only(run, "checkpoint", [0, 2])) == []
    assert codes(only(run, "checkpoint", [0, 1])) == ["checkpoint_on_all_ranks"]
    two = run_of_job(tmp_path / "two", replace(CLEAN, ranks=2, checkpoint_ms=30, **TWO_HOSTS))
    evidence = finding_of(two, "checkpoint_on_all_ranks").evidence
    assert "Ranks 0 and 1 wrote 4 checkpoints in all:" in evidence


@pytest.mark.parametrize("rank", [0, 2])
def test_one_rank_that_works_while_the_others_wait(tmp_path: Path, rank: int) -> None:
    job = replace(CLEAN, epochs=4, validation_ms=400, checkpoint_ms=100)
    run = run_of_job(tmp_path, job)
    assert "rank_0_alone" not in codes(run)
    alone = only(only(run, "validation", [rank]), "checkpoint", [rank])
    finding = finding_of(alone, "rank_0_alone")
    assert finding.severity == "info"
    assert finding.title == f"Rank {rank} works while the others wait"
    assert f"Only rank {rank} did 4 checkpoints and 4 validations;" in finding.evidence
    # After the last epoch no rank waits any more.
    cost = float(finding.evidence.partition("waited ")[2].split()[0])
    assert cost == pytest.approx(3 * 0.5, abs=0.1)
    assert f"{cost / seconds_of(run):.0%}"[:-1] in finding.evidence


def test_one_ranks_extra_work_is_counted_without_the_common_work(tmp_path: Path) -> None:
    job = replace(CLEAN, epochs=4, validation_ms=400, checkpoint_ms=100)
    finding = finding_of(only(run_of_job(tmp_path, job), "checkpoint", [0]), "rank_0_alone")
    assert "Only rank 0 did 4 checkpoints;" in finding.evidence
    cost = float(finding.evidence.partition("waited ")[2].split()[0])
    assert cost == pytest.approx(3 * 0.1, abs=0.1)


def test_work_that_no_rank_waits_for_costs_nothing(tmp_path: Path) -> None:
    run = run_of_job(tmp_path, CLEAN)
    rows = run.intervals.to_pylist()
    begins = {row["step"]: row["begin"] for row in run.steps.to_pylist() if row["rank"] == 0}
    in_the_background = [
        {**rows[0], "kind": "checkpoint", "step": step, "begin": begins[step] - 300 * MS}
        | {"end": begins[step]}
        for step in range(20, 200, 20)
    ]
    table = pa.Table.from_pylist(rows + in_the_background, INTERVALS_SCHEMA)
    assert codes(replace(run, intervals=table)) == []


def test_no_rank_works_alone_if_a_rank_left_no_log(tmp_path: Path) -> None:
    paths = write_job(tmp_path, replace(CLEAN, epochs=4, validation_ms=400))
    paths[3].unlink()
    (run,) = read(str(tmp_path))
    assert codes(only(run, "validation", [0])) == ["missing_ranks"]
