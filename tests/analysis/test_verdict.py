"""The verdict names the largest cost, and no rank without evidence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from simulator import Fault, Noise, simulate
from simulator import Job as SimulatedJob
from simulator.faults import Between, Bursts, EveryNth
from support.step_logs import Job, write_job

from stallscope.analysis import Analysis, analyse
from stallscope.parsers import read

CLEAN = Job(ranks=4, steps=300, allreduce_ms=0.5)


def analysis_of(folder: Path, job: Job, baseline: Job | None = None) -> Analysis:
    write_job(folder / "run", job)
    run = read(str(folder / "run"))[0]
    if baseline is None:
        return analyse(run)
    write_job(folder / "base", replace(baseline, facts={"synthetic": True}))
    return analyse(run, read(str(folder / "base"))[0])


@pytest.mark.parametrize("stage", ["input", "compute", "other"])
@pytest.mark.parametrize("ranks", [2, 4, 40])
def test_one_slow_rank_is_named_with_its_cause(tmp_path: Path, stage: str, ranks: int) -> None:
    job = replace(CLEAN, ranks=ranks, slow={(1, stage): 6.0})
    analysis = analysis_of(tmp_path, job, replace(CLEAN, ranks=ranks))
    assert (analysis.bottleneck.kind, analysis.bottleneck.cause) == ("imbalance", stage)
    assert analysis.bottleneck.ranks == (1,)
    gain = next(gain for gain in analysis.what_if if str(gain.fix) == "rank:1")
    healthy = analysis_of(tmp_path / "healthy", replace(job, slow={}))
    assert analysis.step is not None
    assert healthy.step is not None
    assert gain.saved_ms.value == pytest.approx(analysis.step.mean - healthy.step.mean, rel=0.05)
    assert gain.ci95 is not None
    assert gain.ci95[0] < gain.speedup < gain.ci95[1]


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_a_slow_loader_on_all_ranks_is_input_and_names_no_rank(tmp_path: Path, ranks: int) -> None:
    slow = replace(CLEAN, ranks=ranks, input_ms=13.0)
    analysis = analysis_of(tmp_path, slow, replace(CLEAN, ranks=ranks))
    assert (analysis.bottleneck.kind, analysis.bottleneck.cause) == ("input", "input")
    assert analysis.bottleneck.ranks == ()
    entry = analysis.entry("input")
    assert entry is not None
    assert entry.excess_ms == pytest.approx(12.0, rel=0.05)


def test_without_a_baseline_the_assumption_is_stated(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, replace(CLEAN, input_ms=13.0))
    assert analysis.bottleneck.kind == "input"
    assert "A synthetic baseline would show" in analysis.bottleneck.evidence
    assert "no_baseline" in [finding.code for finding in analysis.findings]


def test_slow_communication_is_allreduce(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, replace(CLEAN, allreduce_ms=15.0), CLEAN)
    assert analysis.bottleneck.kind == "allreduce"


def test_work_between_steps_on_all_ranks_is_other(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, replace(CLEAN, other_ms=9.0), CLEAN)
    assert (analysis.bottleneck.kind, analysis.bottleneck.ranks) == ("other", ())


def test_a_run_like_its_baseline_is_compute(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, replace(CLEAN, seed=2), CLEAN)
    assert analysis.bottleneck.kind == "compute"
    assert analysis.gap == pytest.approx(0, abs=0.01)


def test_a_clean_run_without_baseline_is_balanced(tmp_path: Path) -> None:
    assert analysis_of(tmp_path, CLEAN).bottleneck.kind == "balanced"


@pytest.mark.any_versions
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("noise", [0.02, 0.2])
def test_no_rank_is_blamed_in_a_clean_run(tmp_path: Path, seed: int, noise: float) -> None:
    analysis = analysis_of(tmp_path, replace(CLEAN, noise=noise, seed=seed))
    assert analysis.bottleneck.ranks == ()
    assert not any(straggler.ranks or straggler.hosts for straggler in analysis.stragglers)
    # With varying ranks, waiting for the last one is a large part of the step.
    assert analysis.bottleneck.kind != "imbalance" or noise > 0.02


def test_a_slow_host_is_named(tmp_path: Path) -> None:
    slow = {(rank, "compute"): 5.0 for rank in (4, 5, 6, 7)}
    job = replace(CLEAN, ranks=12, hosts=("a", "b", "c"), clock_offset_ms=(0, 9000, 70), slow=slow)
    analysis = analysis_of(tmp_path, job)
    assert analysis.bottleneck.hosts == ("b",)
    assert analysis.bottleneck.ranks == (4, 5, 6, 7)
    assert "host:b" in [str(gain.fix) for gain in analysis.what_if]


@pytest.mark.parametrize("hosts", [("a", "b"), ("a", "b", "c")])
def test_a_slow_rank_does_not_make_its_hosts_other_rank_slow(
    tmp_path: Path, hosts: tuple[str, ...]
) -> None:
    job = replace(CLEAN, ranks=2 * len(hosts), hosts=hosts, slow={(2, "compute"): 5.0})
    analysis = analysis_of(tmp_path, replace(job, clock_offset_ms=(0, 70, 9000)))
    assert (analysis.bottleneck.ranks, analysis.bottleneck.hosts) == ((2,), ())


def test_a_slow_host_next_to_a_single_rank_is_named(tmp_path: Path) -> None:
    slow = {(0, "compute"): 5.0, (1, "compute"): 5.0}
    job = replace(CLEAN, ranks=3, hosts=("a", "b"), clock_offset_ms=(0, 70), slow=slow)
    analysis = analysis_of(tmp_path, job)
    assert (analysis.bottleneck.ranks, analysis.bottleneck.hosts) == ((0, 1), ("a",))


def test_one_log_of_many_ranks_is_not_enough(tmp_path: Path) -> None:
    paths = write_job(tmp_path, CLEAN)
    for path in paths[1:]:
        path.unlink()
    analysis = analyse(read(str(tmp_path))[0])
    assert analysis.bottleneck.kind == "insufficient_data"
    assert "Only rank 0's log is here" in analysis.bottleneck.evidence
    assert "callback" not in analysis.bottleneck.evidence
    assert analysis.findings[0].code == "one_rank_only"


def test_with_a_missing_rank_communication_is_not_blamed(tmp_path: Path) -> None:
    paths = write_job(tmp_path, replace(CLEAN, allreduce_ms=15.0))
    paths[2].unlink()
    analysis = analyse(read(str(tmp_path))[0])
    assert analysis.bottleneck.kind == "insufficient_data"
    assert "rank 2" in analysis.bottleneck.evidence
    assert "missing_ranks" in [finding.code for finding in analysis.findings]


def test_logs_without_timestamps_have_step_times_and_no_stages(tmp_path: Path) -> None:
    facts = {"stamps": {"placed": [], "reason": "jit_compile=True: XLA has no clock"}}
    analysis = analysis_of(tmp_path, replace(CLEAN, stamps=False, facts=facts))
    assert analysis.bottleneck.kind == "insufficient_data"
    assert "XLA" in analysis.bottleneck.evidence
    assert analysis.entries == ()
    assert all(rank.input_ms is None for rank in analysis.ranks)
    assert analysis.step is not None
    assert analysis.step.mean == pytest.approx(22.7, rel=0.05)
    assert analysis.samples_per_second == pytest.approx(4 * 32 / (analysis.step.mean / 1000))


def test_a_few_steps_are_too_few_for_a_verdict(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, replace(CLEAN, steps=8, slow={(1, "input"): 30.0}))
    assert analysis.bottleneck.kind == "insufficient_data"
    assert "too few" in analysis.bottleneck.evidence


def test_another_kind_of_baseline_is_reported(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, CLEAN, replace(CLEAN, ranks=2, batch_size=64))
    assert analysis.match is not None
    assert {text.split(":")[0] for text in analysis.match.differs} == {"ranks", "batch_size"}
    assert any("batch_size: 32 here, 64 in the baseline" in text for text in analysis.warnings)


def test_a_restart_with_other_ranks_is_analysed_over_the_last_ones(tmp_path: Path) -> None:
    write_job(tmp_path, CLEAN)
    write_job(tmp_path, replace(CLEAN, generation=1, ranks=3, slow={(2, "input"): 9.0}))
    analysis = analyse(read(str(tmp_path))[0])
    assert [rank.rank for rank in analysis.ranks] == [0, 1, 2]
    assert analysis.bottleneck.ranks == (2,)
    assert analysis.steps == 600
    assert any("2 generations" in warning for warning in analysis.warnings)


def test_a_restart_without_a_complete_step_changes_nothing(tmp_path: Path) -> None:
    write_job(tmp_path, replace(CLEAN, slow={(3, "input"): 9.0}))
    write_job(tmp_path, replace(CLEAN, generation=1, ranks=3, steps=1, stamps=False))
    analysis = analyse(read(str(tmp_path))[0])
    assert [rank.rank for rank in analysis.ranks] == [0, 1, 2, 3]
    assert analysis.bottleneck.ranks == (3,)


def test_throughput_counts_all_ranks(tmp_path: Path) -> None:
    analysis = analysis_of(tmp_path, CLEAN)
    assert analysis.step is not None
    expected = 4 * 32 / (analysis.step.mean / 1000)
    assert analysis.samples_per_second == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ({"gradients_reduced": False}, "gradients_not_reduced"),
        ({"timeline": True}, "timeline_on"),
        ({"learning_rate_scaled": False, "learning_rate": 0.001}, "learning_rate_not_scaled"),
    ],
)
def test_silent_faults_are_findings(tmp_path: Path, facts: dict[str, object], code: str) -> None:
    analysis = analysis_of(tmp_path, replace(CLEAN, facts=facts))
    assert code in [finding.code for finding in analysis.findings]
    assert code not in [f.code for f in analysis_of(tmp_path / "clean", CLEAN).findings]


def test_a_loss_in_nearly_every_step_is_reported_despite_autocorrelation() -> None:
    # Noise correlated over fifty steps leaves three or four independent ones of 200.
    slow = SimulatedJob(ranks=2, steps=200, noise=Noise(cv=0.1, phi=0.98), seed=1)
    analysis = analyse(simulate(replace(slow, input_ms=60.0)).run)
    gain = next(gain for gain in analysis.what_if if str(gain.fix) == "input")
    assert gain.ci95 is None
    assert gain.mostly_ms > 40
    assert (analysis.bottleneck.kind, analysis.bottleneck.ranks) == ("input", ())
    assert "Too few independent steps" in analysis.bottleneck.evidence


WAITS = SimulatedJob(ranks=1, steps=200, compute_ms=10.0, input_ms=1.0, other_ms=1.0)


@pytest.mark.parametrize("n", [2, 3, 4, 5])
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_wait_in_every_nth_step_is_slow_input(n: int, ranks: int) -> None:
    waits = Fault("input", 300.0, when=EveryNth(n))
    analysis = analyse(simulate(replace(WAITS, ranks=ranks, faults=[waits])).run)
    assert analysis.bottleneck.kind == "input"
    gain = next(gain for gain in analysis.what_if if str(gain.fix) == "input")
    assert gain.saved_ms.value == pytest.approx(300 / n, rel=0.1)
    assert gain.saved_ms.ci95 is not None
    assert gain.saved_ms.ci95[0] > 0.5 * gain.saved_ms.value


def test_waits_in_bursts_are_slow_input_whose_gain_is_uncertain() -> None:
    waits = Fault("input", 300.0, when=Bursts(20, 8))
    verdict = analyse(simulate(replace(WAITS, faults=[waits])).run).bottleneck
    assert verdict.kind == "input"
    assert "uncertain: it comes in 4 stretches of steps" in verdict.evidence


def test_one_long_wait_is_no_fault_and_not_healthy() -> None:
    wait = Fault("input", 5_000.0, when=Between(100, 100))
    verdict = analyse(simulate(replace(WAITS, faults=[wait])).run).bottleneck
    assert verdict.kind == "insufficient_data"
    assert "in 1 stretch of steps only" in verdict.evidence


@pytest.mark.parametrize("seed", range(10))
def test_short_waits_now_and_then_are_no_fault(seed: int) -> None:
    wait = Fault("input", 10.0, when=Bursts(60, 1))
    verdict = analyse(simulate(replace(WAITS, faults=[wait], seed=seed)).run).bottleneck
    assert verdict.healthy
