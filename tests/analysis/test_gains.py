"""Predicted gains: no step below the baseline's, nothing counted twice, and bounds marked as bounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from analysis.samples import sample
from simulator import Bursts, Fault, Fixed, Job, Noise, simulate

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.gains.what_if import WhatIf
from stallscope.text.gain_words import gains, gains_note
from stallscope.text.verdicts import headline
from stallscope.words import Fix

JOB = Job(ranks=8, steps=500, noise=Noise(cv=0.05), communication=Fixed(20.0))
# The baseline has as many of these.
SHRINK = ("allreduce", "variation")


def gain(analysis: Analysis, fix: str) -> WhatIf:
    return next(what_if for what_if in analysis.what_if if str(what_if.fix) == fix)


def analysed(*faults: Fault, **changes: object) -> Analysis:
    job = replace(JOB, faults=faults, **changes)  # type: ignore[arg-type]
    baseline = JOB.baseline(input_ms=JOB.input_ms)
    return analyse(simulate(job).run, simulate(baseline).run)


TWO_FAULTS = (Fault("input", 30, ranks=(1,)), Fault("compute", 25, ranks=(4,)))


@pytest.mark.parametrize(
    "faults",
    [
        (),
        (Fault("input", 50, ranks=(1,)),),
        (Fault("compute", 30),),
        (Fault("input", 20), Fault("other", 20, ranks=(2,))),
        TWO_FAULTS,
    ],
)
def test_no_fix_promises_a_step_below_the_baselines(faults: tuple[Fault, ...]) -> None:
    analysis = analysed(*faults)
    assert analysis.step is not None
    assert analysis.baseline is not None
    assert analysis.baseline.step is not None
    for what_if in analysis.what_if:
        if str(what_if.fix) not in SHRINK:
            after = analysis.step.mean - what_if.saved_ms.value
            assert after >= min(analysis.baseline.step.mean, analysis.step.mean) - 1e-6


def test_with_all_faults_fixed_the_step_is_the_baselines() -> None:
    analysis = analysed(*TWO_FAULTS)
    assert analysis.step is not None
    assert analysis.baseline is not None
    assert analysis.baseline.step is not None
    (rank_1, rank_4) = (gain(analysis, f"rank:{rank}").saved_ms.value for rank in (1, 4))
    together = gain(analysis, "imbalance").saved_ms.value
    assert analysis.step.mean - together == pytest.approx(analysis.baseline.step.mean, rel=0.01)
    # While one of them is slow, fixing the other alone gains little.
    assert rank_1 + rank_4 < 0.6 * together


def test_two_faults_of_different_kinds_are_not_counted_twice() -> None:
    on_all, on_one = Fault("input", 20), Fault("other", 30, ranks=(2,))
    analysis = analysed(on_all, on_one)
    assert analysis.decomposition is not None
    parts = [gain(analysis, fix).saved_ms.value for fix in ("imbalance", "input")]
    together = gain(analysis, "all").saved_ms.value
    assert sum(parts) <= together + 1e-6
    assert together == pytest.approx(analysis.decomposition.loss.value)
    step = simulate(replace(JOB, faults=(on_all, on_one))).truth.step_ms()
    without = [
        simulate(replace(JOB, faults=(fault,))).truth.step_ms() for fault in (on_all, on_one)
    ]
    assert parts == pytest.approx([step - left for left in without], rel=0.1)


@pytest.mark.parametrize(("on_all", "on_one"), [(40, 12), (12, 40)])
def test_each_gain_is_of_its_fix_alone(on_all: int, on_one: int) -> None:
    faults = Fault("other", on_all), Fault("other", on_one, ranks=(2,))
    analysis = analysed(*faults)
    step, without_slow_rank, healthy = (
        simulate(replace(JOB, faults=left)).truth.step_ms() for left in (faults, faults[:1], ())
    )
    # Work between steps on all ranks includes that of the slow rank.
    assert gain(analysis, "other").saved_ms.value == pytest.approx(step - healthy, rel=0.05)
    for fix in ("imbalance", "rank:2"):
        assert gain(analysis, fix).saved_ms.value == pytest.approx(
            step - without_slow_rank, abs=0.01 * step
        )
    assert gain(analysis, "other").overlaps == (Fix("imbalance"), Fix("rank", "2"))
    assert Fix("other") in gain(analysis, "rank:2").overlaps


SLOW_INPUT = Fault("input", 40, ranks=(1,))
MASKED = (
    Fault("input", 60, ranks=(1,)),
    Fault("compute", 60, ranks=(0,)),
    Fault("compute", 30, hosts=("host-1",)),
)
RUNS_WITH_FAULTS = [
    (SLOW_INPUT,),
    (Fault("input", 40),),
    (Fault("compute", 30, ranks=(3,)), SLOW_INPUT),
    (Fault("other", 25), SLOW_INPUT),
    (Fault("input", 30, rotating=1),),
    (Fault("input", 50, ranks=(2,), when=Bursts(every=20, length=2)),),
    MASKED,
]


def saved_by_cause(analysis: Analysis, stage: str) -> float:
    """Return the milliseconds that the excess of a stage by cause can save, at least.

    That is the excess over the baseline's, or over 1 ms without one, unless the next rank is the last.
    """
    steady, entry = analysis.steady, analysis.cause(stage)
    assert steady is not None
    assert entry is not None
    usual = entry.baseline_ms if analysis.predicted_from == "baseline" else 1.0
    assert usual is not None
    chance = 0.0 if entry.ci95_ms is None else (entry.ci95_ms[1] - entry.ci95_ms[0])
    excess = np.maximum(0, steady.by_cause(stage) - int(usual * 1e6))
    next_to_last = steady.of("arrival", steady.second)
    saved = steady.last - np.maximum(next_to_last, steady.last - excess)
    return min(entry.ms - usual - chance, float(saved.mean()) / 1e6)


@pytest.mark.parametrize("with_baseline", [True, False])
@pytest.mark.parametrize("faults", RUNS_WITH_FAULTS)
@pytest.mark.parametrize("ranks", [4, 8, 64])
def test_gains_do_not_contradict_the_ledger(
    ranks: int, faults: tuple[Fault, ...], with_baseline: bool
) -> None:
    job = replace(JOB, ranks=ranks, ranks_per_host=max(1, ranks // 4))
    baseline = simulate(job.baseline(input_ms=job.input_ms)).run if with_baseline else None
    check_gains(analyse(simulate(replace(job, faults=faults)).run, baseline))


@pytest.mark.parametrize("baseline", [None, "synthetic"])
@pytest.mark.parametrize(
    "name",
    ["slow-input-one-rank", "slow-input-all-ranks", "slow-compute-rank", "busy-rank-0", "clean"],
)
def test_gains_of_the_samples_do_not_contradict_the_ledger(name: str, baseline: str | None) -> None:
    check_gains(sample(name, baseline))


def check_gains(analysis: Analysis) -> None:
    """Check that no gain contradicts the ledger, the loss, or a gain that includes it."""
    assert analysis.step is not None
    gains = {str(what_if.fix): what_if for what_if in analysis.what_if}
    most = analysis.step.mean
    if analysis.predicted_from == "baseline":
        assert analysis.decomposition is not None
        most = max(0.0, analysis.decomposition.loss.value)
    for fix, what_if in gains.items():
        for value, ci95 in (
            (what_if.saved_ms.value, what_if.saved_ms.ci95),
            (what_if.speedup, what_if.ci95),
        ):
            assert ci95 is None or ci95[0] <= value <= ci95[1]
        assert what_if.saved_ms.value <= (most if fix not in SHRINK else analysis.step.mean) + 1e-6
        assert all(what_if.fix in gains[str(fix)].overlaps for fix in what_if.overlaps)
    for stage in ("input", "compute", "other"):
        if stage not in gains:
            continue
        saved_ms = gains[stage].saved_ms
        upper = saved_ms.value if saved_ms.ci95 is None else saved_ms.ci95[1]
        assert min(most, saved_by_cause(analysis, stage)) <= upper + 0.01 * analysis.step.mean
    alone = [what_if for fix, what_if in gains.items() if fix.startswith(("rank:", "host:"))]
    if alone and "imbalance" in gains:
        together = gains["imbalance"].saved_ms.value
        assert (
            max(what_if.saved_ms.value for what_if in alone) <= together + 0.01 * analysis.step.mean
        )


# Two ranks on two cores, with a thread each.
ON_CORES = Job(
    ranks=2,
    steps=300,
    input_ms=2,
    compute_ms=20,
    other_ms=1,
    communication=Fixed(3),
    noise=Noise(cv=0.03),
    cores_per_host=2,
)
PREFETCHING = {"framework": "tensorflow", "pipeline": ["Range", "Map", "Prefetch"]}


def on_cores(*faults: Fault, usual: tuple[Fault, ...] = (), **changes: object) -> Analysis:
    """Analyse a run with faults against a baseline with the usual ones."""
    job = replace(ON_CORES, **changes)  # type: ignore[arg-type]
    baseline = replace(job.baseline(input_ms=job.input_ms), faults=usual)
    return analyse(simulate(replace(job, faults=faults)).run, simulate(baseline).run)


def share(analysis: Analysis, fix: str) -> float:
    """Return the share of the loss that a fix wins back."""
    assert analysis.decomposition is not None
    return gain(analysis, fix).saved_ms.value / analysis.decomposition.loss.value


@pytest.mark.parametrize(("facts", "all_of_it"), [(PREFETCHING, True), ({}, False)])
def test_loaders_at_work_slow_compute_down_and_fixing_them_wins_it_back(
    facts: dict[str, object], all_of_it: bool
) -> None:
    analysis = on_cores(Fault("input", 20), Fault("compute", 15), facts=facts)
    assert (share(analysis, "input") > 0.99) == all_of_it
    assert (share(analysis, "compute") < 0.01) == all_of_it


@pytest.mark.parametrize(("facts", "contained"), [(PREFETCHING, True), ({}, False)])
def test_loaders_that_are_hardly_late_may_slow_compute(
    facts: dict[str, object], contained: bool
) -> None:
    analysis = on_cores(Fault("compute", 15), facts=facts)
    assert analysis.decomposition is not None
    most = gain(analysis, "input").saved_ms.ci95
    assert most is not None
    assert (most[1] > 0.9 * analysis.decomposition.loss.value) == contained
    assert share(analysis, "compute") > 0.9


def test_compute_that_is_slower_than_loaders_can_make_it_is_a_fault() -> None:
    analysis = on_cores(Fault("input", 20), Fault("compute", 30), facts=PREFETCHING)
    assert share(analysis, "compute") > 0.5


@pytest.mark.parametrize(("extra", "all_of_it"), [(1.0, True), (10.0, False)])
def test_a_little_slower_compute_comes_from_the_fault_before_it(
    extra: float, all_of_it: bool
) -> None:
    analysis = on_cores(Fault("other", 20), Fault("compute", extra), ranks=1)
    assert (share(analysis, "other") > 0.99) == all_of_it


def test_lateness_that_the_baseline_has_too_is_not_a_fault() -> None:
    usual, more = (Fault("input", ms, rotating=1) for ms in (4, 7))
    analysis = on_cores(Fault("compute", 20), more, usual=(usual,))
    assert share(analysis, "compute") > 0.99


@pytest.mark.parametrize("name", ["slow-input-one-rank", "slow-input-all-ranks"])
def test_the_samples_gain_what_their_baseline_shows(name: str) -> None:
    analysis = sample(name, "synthetic")
    fix = "imbalance" if analysis.bottleneck.ranks else "input"
    what_if = gain(analysis, fix)
    assert analysis.step is not None
    assert analysis.baseline is not None
    assert analysis.baseline.step is not None
    assert what_if.speedup == pytest.approx(
        analysis.step.mean / analysis.baseline.step.mean, rel=0.01
    )
    assert what_if.speedup > 2
    if not what_if.bound:
        assert what_if.ci95 is not None
        assert what_if.ci95[0] < what_if.speedup < what_if.ci95[1]


def test_a_run_as_fast_as_its_baseline_gains_nothing() -> None:
    usual = (Fault("compute", 1.0),)
    analysis = on_cores(usual=usual)
    assert gain(analysis, "input").saved_ms.value == 0
    assert not analysis.bottleneck.fault


def test_a_healthy_sample_does_not_surely_differ_from_its_baseline() -> None:
    analysis = sample("clean", "synthetic")
    for what_if in analysis.what_if:
        if str(what_if.fix) in ("input", "compute", "other", "imbalance"):
            assert what_if.saved_ms.ci95 is not None
            assert what_if.saved_ms.ci95[0] <= 0
    assert not analysis.bottleneck.fault


def test_without_a_baseline_gains_on_shared_cores_are_bounds() -> None:
    analysis = sample("slow-compute-rank")
    assert gain(analysis, "rank:1").bound
    assert "saves at most" in analysis.bottleneck.evidence
    with_baseline = sample("slow-compute-rank", "synthetic")
    assert not gain(with_baseline, "rank:1").bound


def alone_on(**facts: object) -> Analysis:
    """Make one rank with its own cores, whose input pauses for longer than it computes."""
    job = Job(ranks=1, steps=500, input_ms=60, compute_ms=40, noise=Noise(cv=0.05))
    return analyse(simulate(replace(job, facts=facts)).run)


OWN_CORES = {"devices": ["CPU"], "threads": {"intra_op": 1}, "cpu_count": 8, "cpus_allowed": 8}


def test_compute_on_cpu_cores_is_faster_once_it_follows_no_pause() -> None:
    on_gpu, on_cpu = (
        gain(alone_on(**facts), "input") for facts in ({"devices": ["CPU", "GPU"]}, OWN_CORES)
    )
    # A tenth of compute, which is shorter than the pause.
    assert on_cpu.saved_ms.value - on_gpu.saved_ms.value == pytest.approx(4.0, rel=0.05)


def test_loaders_on_other_cores_may_slow_compute_of_a_single_rank() -> None:
    two = {**OWN_CORES, "cpu_count": 2, "cpus_allowed": 2}
    idle, busy = (
        gain(alone_on(**facts), "input")
        for facts in (two, {**two, "pipeline": ["Range", "Map", "Prefetch"]})
    )
    assert busy.saved_ms.value == pytest.approx(idle.saved_ms.value)
    assert idle.saved_ms.ci95 is not None
    assert busy.saved_ms.ci95 is not None
    assert busy.saved_ms.ci95[0] == pytest.approx(idle.saved_ms.ci95[0])
    # Loaders that only wait for a disk slow nothing; those that compute take up to 30 % of 40 ms.
    assert busy.saved_ms.ci95[1] - idle.saved_ms.ci95[1] == pytest.approx(12.0, rel=0.1)
    assert not busy.bound


def test_on_shared_cores_loaders_may_also_slow_compute_while_batches_are_in_time() -> None:
    """Two ranks, two cores and two loaders: a loader that never rests takes half of a rank's speed."""
    job = Job(
        ranks=2,
        steps=500,
        input_ms=0.5,
        compute_ms=60,
        communication=Fixed(8),
        noise=Noise(cv=0.05),
        faults=(Fault("input", 20, when=Bursts(every=30, length=10)),),
        facts={
            **OWN_CORES,
            "cpu_count": 2,
            "cpus_allowed": 2,
            "pipeline": ["Range", "Map", "Prefetch"],
        },
    )
    analysis = analyse(simulate(job).run)
    predicted, shorter = gain(analysis, "input"), gain(analysis, "other")
    assert predicted.bound
    assert predicted.estimate is not None
    assert predicted.estimate < 1.2
    assert analysis.step is not None
    # Half of compute and of allreduce in every step, beyond what the late batches cost.
    slowed = 0.5 * sum(
        entry.ms for entry in analysis.entries if entry.name in ("compute", "allreduce")
    )
    assert predicted.saved_ms.value > slowed
    assert predicted.saved_ms.value < slowed + 0.4 * analysis.step.mean
    assert shorter.saved_ms.value < slowed / 2


def test_a_baseline_of_another_job_predicts_nothing() -> None:
    faulty = replace(JOB, faults=(Fault("input", 50, ranks=(1,)),))
    baseline = simulate(replace(JOB.baseline(), batch_size=64)).run
    analysis = analyse(simulate(faulty).run, baseline)
    alone = analyse(simulate(faulty).run)
    assert analysis.predicted_from == "run"
    assert gain(analysis, "rank:1") == gain(alone, "rank:1")


def test_half_of_the_variation_of_a_thousand_ranks_is_an_answer() -> None:
    job = Job(
        ranks=1000, steps=120, noise=Noise(cv=0.05), faults=(Fault("compute", 30, ranks=(3,)),)
    )
    analysis = analyse(simulate(job).run)
    imbalance = analysis.entry("imbalance")
    assert imbalance is not None
    named, varies = (
        gain(analysis, "rank:3").saved_ms.value,
        gain(analysis, "variation").saved_ms.value,
    )
    # The rest is the slowest of ranks that vary.
    assert named + 2 * varies == pytest.approx(imbalance.ms, rel=0.1)


def test_allreduce_is_always_a_bound() -> None:
    for analysis in (sample("clean"), sample("clean", "synthetic"), analysed()):
        assert gain(analysis, "allreduce").bound


def test_a_host_that_hides_behind_slower_ranks_is_listed_last_and_is_not_to_be_replaced() -> None:
    analysis = analyse(simulate(replace(JOB, ranks=64, faults=MASKED)).run)
    host, rank = gain(analysis, "host:host-1"), gain(analysis, "rank:1")
    assert host.saved_ms.value < 0.1 * rank.saved_ms.value
    sentence = headline(analysis.bottleneck, analysis.stragglers)
    assert "Ranks 0 and 1 hold" in sentence
    assert analysis.bottleneck.hosts == ()
    assert [straggler.hosts for straggler in analysis.stragglers] == [(), (), ("host-1",)]
    assert not any("Replace" in advice.action for advice in analysis.bottleneck.advice)
    (together,) = [gain.title for gain in gains(analysis) if str(gain.what_if.fix) == "imbalance"]
    for name in ("rank 0", "rank 1", "host-1"):
        assert name in together
    assert "host-1" in gains_note(analysis).partition("Nothing to gain from")[2]
