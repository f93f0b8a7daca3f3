"""Recorded steps of which only input is known: the rest is one time, and no rank is named for it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.step_logs import Job, forget_stages, write_job

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.ledger.printed_steps import PrintedSteps
from stallscope.parsers import read
from stallscope.reports.run.run_tables import printed_ranks_table, printed_steps_table
from stallscope.text.summary_words import six_lines

REASON = "the compiled step reduces its gradients where no timestamp can be taken"
EXPOSED = {"stamps": {"placed": ["data"], "reason": REASON, "input_exposed": True}}
JOB = Job(ranks=3, steps=200, tracing_ms=2000.0, facts=EXPOSED)


def analysed(folder: Path, job: Job) -> Analysis:
    write_job(folder, job)
    forget_stages(folder)
    (run,) = read(str(folder))
    return analyse(run)


def series_of(analysis: Analysis) -> PrintedSteps:
    assert analysis.printed is not None
    return analysis.printed


def test_input_and_the_rest_add_up_to_the_step(tmp_path: Path) -> None:
    analysis = analysed(tmp_path, replace(JOB, slow={(1, "input"): 30}))
    series = series_of(analysis)
    # The first step traces; it is no part of these means.
    assert series.warm_up_steps >= 1
    assert series.step.mean == pytest.approx(55, rel=0.05)
    assert series.input_ms is not None
    assert series.input_ms.value == pytest.approx((1 + 31 + 1) / 3, rel=0.05)
    figures = dict(printed_steps_table(analysis).rows)  # type: ignore[union-attr]
    assert figures["Waiting for data"].endswith("20.0% of the step; mean over ranks")
    assert "80.0% of the step: compute, waiting for other ranks" in figures["Not measured apart"]
    assert "the rest was not measured apart" in "\n".join(six_lines(analysis, "logs"))


def test_input_is_known_for_each_rank_and_nobody_is_named(tmp_path: Path) -> None:
    analysis = analysed(tmp_path, replace(JOB, slow={(1, "input"): 30}))
    waits = [rank.input_ms for rank in analysis.ranks]
    assert waits == [pytest.approx(wait, abs=0.3) for wait in (1, 31, 1)]
    assert [rank.compute_ms for rank in analysis.ranks] == [None] * 3
    table = printed_ranks_table(analysis)
    assert table is not None
    assert [row[0] for row in table.rows] == ["0", "1", "2"]
    verdict = analysis.bottleneck
    assert (verdict.kind, verdict.ranks, verdict.fault) == ("insufficient_data", (), False)
    assert REASON in verdict.evidence
    assert "rank 1 31.0 ms" in verdict.evidence
    assert analysis.what_if == ()
    assert analysis.stragglers == ()


def test_a_slow_rank_without_slow_input_is_not_told_from_the_others(tmp_path: Path) -> None:
    analysis = analysed(tmp_path, replace(JOB, input_ms=0.1, slow={(1, "compute"): 30}))
    assert analysis.bottleneck.kind == "insufficient_data"
    assert "no rank more than" in analysis.bottleneck.evidence


def test_ranks_that_all_wait_for_data_have_slow_input(tmp_path: Path) -> None:
    analysis = analysed(tmp_path, replace(JOB, input_ms=30, slow={(1, "input"): 10}))
    verdict = analysis.bottleneck
    assert (verdict.kind, verdict.ranks, verdict.fault) == ("input", (), True)
    assert verdict.evidence.startswith("All ranks wait at least 29")
    assert not any("Train with StepLogger" in advice.action for advice in verdict.advice)
    (gain,) = analysis.what_if
    # Whether the longest wait costs all of its time is not known.
    assert gain.bound
    assert gain.saved_ms.value == pytest.approx(40, rel=0.05)


def test_where_the_host_runs_ahead_of_a_device_nothing_is_said_of_input(tmp_path: Path) -> None:
    facts = {"stamps": {"placed": ["data"], "reason": REASON}}
    analysis = analysed(tmp_path, replace(JOB, input_ms=30, facts=facts))
    assert analysis.printed is None
    assert [rank.input_ms for rank in analysis.ranks] == [None] * 3


def test_pauses_are_in_no_step(tmp_path: Path) -> None:
    with_pauses = replace(JOB, epochs=4, validation_ms=5_000.0, checkpoint_ms=3_000.0)
    series = series_of(analysed(tmp_path, with_pauses))
    assert series.epochs == 4
    assert max(float(rank.ms[3:].max()) for rank in series.ranks) < 200
