"""A run against its synthetic baselines, on as many ranks and on one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from simulator import Fault, Fixed, Job, Noise, simulate

from stallscope.analysis import analyse
from stallscope.analysis.gains.baseline import find_baseline, find_single, split_baselines
from stallscope.reports.run.step_tables import baselines_table
from stallscope.run import Run
from stallscope.text.baselines import against

JOB = Job(
    ranks=8, steps=500, input_ms=1.0, noise=Noise(cv=0.03), communication=Fixed(25.0), run_id="real"
)
LOADER = Fault("input", 50, cv=0.01)
CONTENTION = Fault("compute", 8, cv=0.01)


def synthetic(ranks: int) -> Run:
    job = replace(JOB.baseline(ranks=ranks), run_id=f"synthetic-{ranks}")
    return simulate(job).run


def test_real_less_synthetic_is_the_sum_of_four_differences() -> None:
    job = replace(JOB, faults=(LOADER, CONTENTION))
    analysis = analyse(simulate(job).run, synthetic(8), synthetic(1))
    split = analysis.decomposition
    assert split is not None
    assert split.input_stall.value == pytest.approx(50, rel=0.03)
    assert split.compute.value == pytest.approx(8, rel=0.1)
    assert split.other.value == pytest.approx(0, abs=0.5)
    assert split.allreduce.value == pytest.approx(0, abs=0.5)
    assert split.loss.value == pytest.approx(58, rel=0.02)
    parts = [split.input_stall, split.compute, split.other, split.allreduce]
    assert sum(part.value for part in parts) == pytest.approx(split.loss.value)
    assert all(part.ci95 is not None for part in parts)
    base = analysis.baseline
    assert base is not None
    waiting = sum(base.entry(name).ms for name in ("imbalance", "allreduce"))  # type: ignore[union-attr]
    assert split.communication.value == pytest.approx(waiting)
    assert split.scale is not None
    assert split.scale.value == pytest.approx(waiting, abs=1.0)
    assert split.loss.ci95 is not None
    assert split.loss.ci95[0] < 58 < split.loss.ci95[1]


def test_every_entry_has_its_excess_with_an_interval() -> None:
    analysis = analyse(simulate(replace(JOB, faults=(LOADER,))).run, synthetic(8), synthetic(1))
    entry = analysis.entry("input")
    assert entry is not None
    assert entry.excess_ms == pytest.approx(50, rel=0.03)
    assert entry.excess_ci95_ms is not None
    assert entry.excess_ci95_ms[0] < entry.excess_ms < entry.excess_ci95_ms[1]
    assert entry.single_ms == pytest.approx(1.0, rel=0.02)
    allreduce = analysis.entry("allreduce")
    assert allreduce is not None
    assert allreduce.single_ms == pytest.approx(0, abs=0.1)


def test_the_gap_has_an_interval() -> None:
    analysis = analyse(simulate(replace(JOB, faults=(LOADER,))).run, synthetic(8))
    assert analysis.gap is not None
    assert analysis.gap_ci95 is not None
    assert analysis.gap_ci95[0] < analysis.gap < analysis.gap_ci95[1]
    assert analysis.gap == pytest.approx(50 / 235, abs=0.03)
    other_size = analyse(simulate(JOB).run, synthetic(4))
    assert (other_size.gap, other_size.gap_ci95) == (None, None)


def test_baselines_are_found_by_what_was_trained() -> None:
    real = simulate(JOB).run
    others = [synthetic(8), synthetic(1), synthetic(4), real]
    baseline, single = find_baseline(real, others), find_single(real, others)
    assert baseline is not None
    assert baseline.id == "synthetic-8"
    assert single is not None
    assert single.id == "synthetic-1"
    another = simulate(replace(JOB, batch_size=64)).run
    assert (find_baseline(another, others), find_single(another, others)) == (None, None)


def test_named_baselines_are_distinguished_by_their_ranks() -> None:
    real = simulate(JOB).run
    eight, single = synthetic(8), synthetic(1)
    assert split_baselines(real, [single, eight]) == (eight, single)
    assert split_baselines(real, [eight]) == (eight, None)
    assert split_baselines(single, [single]) == (single, None)


def test_another_kind_of_run_on_one_rank_is_reported() -> None:
    single = simulate(replace(JOB.baseline(ranks=1), batch_size=64)).run
    analysis = analyse(simulate(JOB).run, synthetic(8), single)
    assert any(
        "the run on one rank is another kind of run: batch_size" in w for w in analysis.warnings
    )


def test_compute_that_is_slower_than_the_baselines_is_the_verdict() -> None:
    job = replace(JOB, communication=Fixed(2.0), faults=(Fault("compute", 40),))
    base = simulate(replace(job.baseline(), faults=())).run
    analysis = analyse(simulate(job).run, base)
    assert (analysis.bottleneck.kind, analysis.bottleneck.ranks) == ("compute", ())
    assert "Compute is slower on all ranks" in analysis.bottleneck.evidence


@pytest.mark.parametrize(("slower_ms", "is_used"), [(400.0, False), (3.0, True)])
def test_a_baseline_slower_than_the_run_predicts_nothing(slower_ms: float, is_used: bool) -> None:
    """As on a busy machine, where it would hide that every batch is late."""
    run = simulate(replace(JOB, faults=(LOADER,))).run
    busy = Fault("compute", slower_ms, cv=0.01)
    analysis = analyse(run, simulate(replace(JOB.baseline(), faults=(busy,))).run)
    (gain,) = (gain for gain in analysis.what_if if str(gain.fix) == "input")
    assert analysis.match is not None
    assert (analysis.match.slower is None) is is_used
    assert (
        any("baseline is slower than this run" in warning for warning in analysis.warnings)
        is not is_used
    )
    assert analysis.predicted_from == ("baseline" if is_used else "run")
    assert ("Gains are predicted without it" in against(analysis)[1]) is not is_used
    assert analysis.bottleneck.kind == "input"
    assert gain.saved_ms.value == pytest.approx(48, abs=4)


@pytest.mark.parametrize("stage", ["input", "compute", "other"])
@pytest.mark.parametrize("on_synthetic_data", [True, False])
def test_a_baseline_with_a_fault_on_all_ranks_does_not_hide_a_slow_rank(
    stage: str, on_synthetic_data: bool
) -> None:
    """Both runs take as long, so only the stages show that the baseline is unfit."""
    run = simulate(replace(JOB, faults=(Fault(stage, 60, ranks=(3,)),))).run
    base = JOB.baseline() if on_synthetic_data else replace(JOB, seed=5)
    analysis = analyse(run, simulate(replace(base, faults=(Fault(stage, 60),))).run)
    assert analysis.match is not None
    assert analysis.match.slower is not None or analysis.match.faulty is not None
    assert analysis.predicted_from == "run"
    assert analysis.bottleneck.ranks == (3,)
    assert next(gain for gain in analysis.what_if if str(gain.fix) == "rank:3").speedup > 1.1


def test_on_shared_cores_a_baseline_may_compute_more_slowly() -> None:
    """Ranks that sleep in their loaders leave their cores to the others."""
    job = replace(JOB, cores_per_host=4, faults=(Fault("input", 60),))
    analysis = analyse(simulate(job).run, simulate(job.baseline()).run)
    assert analysis.match is not None
    assert analysis.match.slower is None


def test_a_baseline_on_real_data_may_be_slower() -> None:
    analysis = analyse(synthetic(8), simulate(JOB).run)
    assert analysis.match is not None
    assert analysis.match.slower is None
    (warning,) = analysis.warnings
    assert warning.startswith("the baseline ran on real data")


SLOW_RANK = Fault("compute", 40, ranks=(3,))
OF_ITS_OWN = {
    "the same rank": (SLOW_RANK,),
    "another rank": (Fault("input", 60, ranks=(1,)),),
    "a host": (Fault("compute", 40, hosts=("host-0",)),),
}


@pytest.mark.parametrize("is_synthetic", [True, False])
@pytest.mark.parametrize("its_faults", OF_ITS_OWN.values(), ids=OF_ITS_OWN)
def test_a_baseline_with_a_fault_of_its_own_hides_no_straggler(
    its_faults: tuple[Fault, ...], is_synthetic: bool
) -> None:
    job = replace(JOB, ranks_per_host=2, faults=(SLOW_RANK,))
    base = replace(job.baseline() if is_synthetic else job, faults=its_faults, run_id="base")
    run = simulate(job).run
    alone, analysis = analyse(run), analyse(run, simulate(replace(base, seed=5)).run)
    assert analysis.match is not None
    assert analysis.match.faulty is not None
    assert any("fault of its own" in warning for warning in analysis.warnings)
    assert analysis.predicted_from == "run"
    assert analysis.what_if == alone.what_if
    assert analysis.bottleneck.ranks == (3,)
    assert "Gains are predicted without it" in against(analysis)[1]


def test_late_input_is_a_fault_of_a_baseline_on_real_data_only() -> None:
    """On synthetic data it is what every run needs."""
    run = simulate(JOB).run
    for base, is_fit in ((JOB.baseline(), True), (replace(JOB, run_id="base"), False)):
        analysis = analyse(run, simulate(replace(base, faults=(LOADER,))).run)
        assert analysis.match is not None
        assert (analysis.match.faulty is None) is is_fit


def test_a_run_is_no_baseline_of_itself() -> None:
    run = simulate(replace(JOB, faults=(SLOW_RANK,))).run
    analysis = analyse(run, run)
    assert analysis.match is not None
    assert analysis.match.itself
    assert analysis.warnings == (
        "the baseline is this run itself, so it predicts nothing; name another run",
    )
    assert (analysis.bottleneck.kind, analysis.bottleneck.ranks) == ("imbalance", (3,))
    assert analysis.what_if == analyse(run).what_if


def test_a_healthy_run_on_real_data_predicts_and_is_named_for_what_it_is() -> None:
    run = simulate(replace(JOB, faults=(SLOW_RANK,))).run
    analysis = analyse(run, simulate(replace(JOB, run_id="before", seed=5)).run)
    assert analysis.predicted_from == "baseline"
    assert analysis.bottleneck.ranks == (3,)
    title, _ = against(analysis)
    assert "a run on real data" in title
    table = baselines_table(analysis)
    assert table is not None
    texts = " ".join(str(cell) for row in table.rows for cell in row) + (table.note or "")
    assert "synthetic" not in texts
    assert "stall" not in texts


def test_a_baseline_of_another_machine_predicts_nothing() -> None:
    job = replace(JOB, faults=(SLOW_RANK,), facts={"cpu_count": 8})
    base = simulate(replace(JOB.baseline(), facts={"cpu_count": 64})).run
    analysis = analyse(simulate(job).run, base)
    assert analysis.predicted_from == "run"
    assert any("cpu_count: 8 here, 64 in the baseline" in warning for warning in analysis.warnings)
