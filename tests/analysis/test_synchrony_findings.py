"""Findings on ranks that do not wait for each other, and on unequal epochs, steps and shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.findings import (
    CLEAN,
    TWO_HOSTS,
    Row,
    codes,
    finding_of,
    with_facts,
    with_intervals,
    with_steps,
)
from support.step_logs import MS, Job, run_of_job

from stallscope.analysis.gains.what_if import in_words
from stallscope.run import Run


def stretched(run: Run, ranks: Sequence[int], factor: float) -> Run:
    """Return the run in which these ranks wait for no others, and take ``factor`` times as long."""
    origin = min(row["begin"] for row in run.steps.to_pylist())

    def change(row: Row) -> Row:
        if row["rank"] not in ranks:
            return row
        times = {
            name: None if row[name] is None else int((row[name] - origin) * factor) + origin
            for name in ("begin", "data", "ready", "reduced", "end")
        }
        return {**row, **times}

    return with_steps(run, change)


def shortened(run: Run, rank: int, steps: int) -> Run:
    """Return the run in which one rank had so many fewer steps in every epoch of 100.

    Its steps are reduced together with those of the same number, and end before the others' do.
    """
    length = 100 - steps

    def step(row: Row) -> Row | None:
        if row["rank"] != rank:
            return row
        return {**row, "epoch": row["step"] // length} if row["step"] < 2 * length else None

    def interval(row: Row) -> Row:
        return {**row, "step": row["step"] // 100 * length} if row["rank"] == rank else row

    return with_intervals(with_steps(run, step), interval)


# -- ranks apart ---------------------------------------------------------------------------------


@pytest.mark.parametrize("column", ["reduced", "end"])
def test_ranks_that_do_not_wait_for_each_other_are_apart(tmp_path: Path, column: str) -> None:
    job = replace(CLEAN, steps=1000, epochs=50, stamps=column == "reduced")
    run = stretched(run_of_job(tmp_path, job), [2], 1.25)
    moments = np.array(
        [
            [row[column] for row in run.steps.to_pylist() if row["rank"] == rank]
            for rank in range(job.ranks)
        ]
    )
    # How many steps ahead the first rank was when the last one had completed a step.
    apart = [
        int((moments.min(axis=0) < moments[:, step].max()).sum()) - 1 - step for step in range(1000)
    ]
    most, share = max(apart), np.mean(np.array(apart) >= (3 if column == "reduced" else 21))
    finding = finding_of(run, "ranks_apart")
    assert finding.severity == "error"
    assert finding.evidence.startswith("When rank 2 ")
    assert f"they are {most} steps and {most // 20} epochs apart" in finding.evidence
    assert "ranks 0–3 are at least" in finding.evidence
    assert finding.evidence.endswith(f"apart in {share:.0%} of steps.")


def test_a_whole_epoch_apart_is_apart_even_without_timestamps(tmp_path: Path) -> None:
    job = replace(CLEAN, steps=200, epochs=20, stamps=False)
    assert "ranks_apart" in codes(stretched(run_of_job(tmp_path / "far", job), [1], 1.3))
    # Hosts launch steps on their devices ahead of time: a few steps mean nothing then.
    near = stretched(run_of_job(tmp_path / "near", job), [1], 1.02)
    assert "ranks_apart" not in codes(near)


def test_hosts_that_move_apart_are_apart_with_any_clocks(tmp_path: Path) -> None:
    job = replace(CLEAN, steps=1000, epochs=1, **TWO_HOSTS)
    together = run_of_job(tmp_path, job)
    assert codes(together) == []
    finding = finding_of(stretched(together, [2, 3], 1.5), "ranks_apart")
    assert "ranks 2 and 3 had fallen" in finding.evidence
    assert "behind ranks 0 and 1 on another host" in finding.evidence
    # Half as long again: at step 999 about 500 steps of the faster host.
    steps = float(finding.evidence.partition("about ")[2].split()[0].replace(",", ""))
    assert steps == pytest.approx(500, rel=0.15)


def test_clocks_that_jump_or_drift_are_not_a_fault(tmp_path: Path) -> None:
    job = replace(CLEAN, steps=1000, epochs=1, **TWO_HOSTS)
    run = run_of_job(tmp_path, job)
    assert codes(stretched(run, [2, 3], 1.0005)) == []

    def jumped(row: Row) -> Row:
        late = 30_000 * MS * (row["step"] // 400) if row["rank"] > 1 else 0
        return {**row, **{name: row[name] + late for name in ("begin", "ready", "reduced", "end")}}

    assert codes(with_steps(run, jumped)) == []


# -- epochs and steps ----------------------------------------------------------------------------


def test_epochs_of_different_lengths_are_reported_with_both(tmp_path: Path) -> None:
    run = shortened(run_of_job(tmp_path, CLEAN), rank=2, steps=10)
    epochs = finding_of(run, "epochs_of_different_lengths")
    assert "In epoch 0 rank 2 made 90 steps and rank 3 100" in epochs.evidence
    assert "in 2 of 2 epochs" in epochs.evidence
    steps = finding_of(run, "unequal_steps")
    assert steps.evidence.startswith("At its end rank 2 had made 180 steps and rank 0 200")
    assert "hvd.join()" in in_words(steps.advice)


def test_an_epoch_that_is_not_over_has_no_length_yet(tmp_path: Path) -> None:
    run = shortened(run_of_job(tmp_path, CLEAN), rank=2, steps=10)
    logs = tuple(replace(log, ended=log.rank != 2) for log in run.logs)
    running = with_intervals(
        replace(run, logs=logs), lambda row: None if row["kind"] in ("epoch", "end") else row
    )
    assert codes(running) == ["not_ended"]


def test_as_many_steps_as_one_rank_makes_are_not_divided(tmp_path: Path) -> None:
    run = run_of_job(tmp_path / "run", CLEAN)
    single = run_of_job(tmp_path / "single", replace(CLEAN, ranks=1))
    finding = finding_of(run, "steps_not_divided", single=single)
    assert finding.evidence.startswith("4 ranks make 100 steps in an epoch, and one rank 100 ")
    assert "batch size of 32" in finding.evidence
    assert "seen 4 times" in finding.evidence
    assert codes(run) == []


@pytest.mark.parametrize(
    "job",
    [
        replace(CLEAN, ranks=1, steps=800),
        replace(CLEAN, ranks=1, batch_size=64),
        replace(CLEAN, ranks=1, facts={"model": "another"}),
        replace(CLEAN, ranks=1, facts={"synthetic": True}),
        replace(CLEAN, ranks=2),
    ],
)
def test_another_job_is_no_evidence_on_how_steps_are_divided(tmp_path: Path, job: Job) -> None:
    single = run_of_job(tmp_path / "single", job)
    assert codes(run_of_job(tmp_path / "run", CLEAN), single=single) == []


# -- shares of the work --------------------------------------------------------------------------


def with_samples(run: Run, rank: int, samples: int) -> Run:
    return with_steps(run, lambda row: {**row, "samples": samples} if row["rank"] == rank else row)


def test_uneven_batches_and_shards_are_reported_with_both_sizes(tmp_path: Path) -> None:
    run = with_samples(run_of_job(tmp_path, CLEAN), rank=1, samples=40)
    batches = finding_of(run, "uneven_batches")
    assert "Rank 1 processes 40.0 samples per step and rank 0 32.0" in batches.evidence
    assert "rank 1 has 25.0% more to compute" in batches.evidence
    shards = finding_of(run, "uneven_shards")
    assert "Rank 1 processes 4,000 samples in an epoch and rank 0 3,200" in shards.evidence
    assert [finding.severity for finding in (batches, shards)] == ["warning", "warning"]


def test_slightly_different_last_batches_are_not_a_finding(tmp_path: Path) -> None:
    def last_is_smaller(row: Row) -> Row:
        return {**row, "samples": 10} if row["rank"] == 1 and row["step"] % 100 == 99 else row

    assert codes(with_steps(run_of_job(tmp_path, CLEAN), last_is_smaller)) == []


def test_batch_sizes_count_if_samples_were_not_counted(tmp_path: Path) -> None:
    run = with_steps(run_of_job(tmp_path, CLEAN), lambda row: {**row, "samples": None})
    assert codes(run) == []
    finding = finding_of(with_facts(run, {"batch_size": 64}, [3]), "uneven_batches")
    assert "Rank 3 processes 64.0 samples per step and rank 0 32.0" in finding.evidence
    assert "uneven_shards" not in codes(with_facts(run, {"batch_size": 64}, [3]))


def test_shards_are_uneven_if_epochs_have_different_lengths(tmp_path: Path) -> None:
    run = shortened(run_of_job(tmp_path, CLEAN), rank=2, steps=10)
    finding = finding_of(run, "uneven_shards")
    assert "processes 3,200 samples in an epoch and rank 2 2,880" in finding.evidence
    assert "uneven_batches" not in codes(run)
