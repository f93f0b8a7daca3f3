"""The steps as a series: change points, slow places in the epoch, periodic work."""

from __future__ import annotations

import io
from dataclasses import replace

import pyarrow as pa
import pytest
from rich.console import Console
from simulator import Between, EveryNth, Fault, Job, Noise, simulate
from support.reports import summary
from support.simulated import analysis_of_job

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.findings.finding import Finding

JOB = Job(ranks=4, steps=600, noise=Noise(cv=0.05))


def finding(analysis: Analysis, code: str) -> Finding | None:
    return next((finding for finding in analysis.findings if finding.code == code), None)


def printed(analysis: Analysis) -> str:
    console = Console(width=80, file=io.StringIO(), color_system=None)
    console.print(summary(analysis))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_change_of_the_step_time_is_found_with_what_changed() -> None:
    fault = Fault("compute", 40, ranks=(2,), when=Between(300, 599))
    analysis = analysis_of_job(replace(JOB, faults=(fault,)))
    (change,) = analysis.changes
    assert change.step == pytest.approx(300, abs=3)
    assert (change.entry, change.rank) == ("imbalance", 2)
    assert change.after_ms - change.before_ms == pytest.approx(32, abs=6)
    reported = finding(analysis, "step_time_changed")
    assert reported is not None
    assert reported.severity == "warning"
    assert "rank 2 last in most steps" in reported.evidence


def test_faster_steps_are_reported_without_a_warning() -> None:
    analysis = analysis_of_job(replace(JOB, faults=(Fault("input", 40, when=Between(0, 249)),)))
    (change,) = analysis.changes
    assert change.step == pytest.approx(250, abs=3)
    assert (change.entry, change.rank) == ("input", None)
    reported = finding(analysis, "step_time_changed")
    assert reported is not None
    assert reported.severity == "info"
    # A terminal says where that was.
    assert f"From step {change.step} on" in " ".join(printed(analysis).split())


def test_a_few_slow_steps_are_not_a_change() -> None:
    analysis = analysis_of_job(replace(JOB, faults=(Fault("other", 400, when=Between(300, 309)),)))
    assert analysis.changes == ()


@pytest.mark.broad
@pytest.mark.any_versions
@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
def test_a_run_without_a_change_has_none(phi: float) -> None:
    changes = 0
    for seed in range(25):
        job = replace(JOB, noise=Noise(cv=0.05, phi=phi), seed=seed + 1)
        changes += len(analysis_of_job(job).changes)
    assert changes <= 1


def test_epochs_that_start_slowly_are_a_finding() -> None:
    job = replace(JOB, epochs=6, faults=(Fault("input", 300, when=EveryNth(100)),))
    reported = finding(analysis_of_job(job), "slow_first_steps")
    assert reported is not None
    assert reported.evidence.startswith("Step 1 of an epoch takes")
    assert finding(analysis_of_job(replace(job, faults=())), "slow_first_steps") is None


def test_steps_of_an_epoch_are_not_counted_from_those_that_are_left() -> None:
    job = replace(JOB, epochs=6, faults=(Fault("input", 300, when=EveryNth(100, phase=4)),))
    whole = simulate(job).run
    step = whole.steps["step"].to_numpy() % 100
    gapped, headless = (
        replace(whole, steps=whole.steps.filter(pa.array(kept)))
        for kept in ((step < 1) | (step > 2), step > 2)
    )
    for run in (whole, gapped):
        reported = finding(analyse(run), "slow_first_steps")
        assert reported is not None
        assert reported.evidence.startswith("Step 5 of an epoch takes")
    assert finding(analyse(headless), "slow_first_steps") is None


def test_work_every_so_many_steps_is_a_finding() -> None:
    job = replace(JOB, faults=(Fault("other", 250, when=EveryNth(20, phase=7)),))
    reported = finding(analysis_of_job(job), "slow_every_nth_step")
    assert reported is not None
    assert "One step in every 20 takes" in reported.evidence
    assert "most of it in other" in reported.evidence
    assert finding(analysis_of_job(replace(job, faults=())), "slow_every_nth_step") is None


@pytest.mark.parametrize("ranks", [(0, 1, 2, 3), (2, 3), (1,)])
@pytest.mark.parametrize("stage", ["input", "compute"])
def test_the_verdict_is_on_the_steps_since_they_became_slower(
    ranks: tuple[int, ...], stage: str
) -> None:
    fault = Fault(stage, 90, ranks=ranks, when=Between(300, 599))
    analysis = analysis_of_job(replace(JOB, faults=(fault,)))
    (change,) = analysis.changes
    verdict = analysis.bottleneck
    if len(ranks) == 4 and stage == "compute":
        # Without a baseline, compute may be as long as that.
        assert not verdict.fault
        return
    assert verdict.fault
    assert verdict.cause == stage
    assert verdict.ranks == (() if len(ranks) == 4 else ranks)
    # One rank is named from all steps: it is late in half of them.
    assert verdict.evidence.startswith("Since step") is (len(ranks) > 1)
    if len(ranks) > 1:
        assert verdict.evidence.startswith(f"Since step {change.step}: ")
        assert any(f"since step {change.step}" in warning for warning in analysis.warnings)
        assert analysis.what_if[0].saved_ms.value == pytest.approx(90, rel=0.1)
        assert analysis.what_if[0].saved_ms.ci95 is not None


def test_steps_that_recovered_have_no_verdict_of_their_own() -> None:
    fault = Fault("input", 90, when=Between(100, 299))
    verdict = analysis_of_job(replace(JOB, faults=(fault,))).bottleneck
    assert not verdict.evidence.startswith("Since")
