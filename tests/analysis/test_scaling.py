"""Scaling of simulated jobs with known truth."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from simulator import Fault, Job, Noise, Ring, simulate
from support.simulated import padded

from stallscope.analysis import ENTRIES, Analysis, analyse
from stallscope.analysis.scaling import ScalingSeries, held_out, scaling, track_record
from stallscope.analysis.scaling.projection import CURVES
from stallscope.opening import open_run

SIZES = (1, 2, 4, 8)
RING = Ring(bytes=20_000_000, bandwidth_gb_s=1.0, latency_us=500.0)
JOB = Job(steps=300, communication=RING, noise=Noise(cv=0.05), ranks_per_host=64)


def run(ranks: int, seed: int = 1, **more: Any) -> Analysis:
    """A run of the job on so many ranks."""
    return _run(replace(JOB, ranks=ranks, run_id=f"{ranks}-{seed}", **more), seed)


def _run(job: Job, seed: int) -> Analysis:
    return analyse(simulate(replace(job, seed=seed)).run)


@cache
def healthy() -> ScalingSeries:
    (series,) = scaling([run(ranks) for ranks in SIZES])
    return series


def test_efficiency_is_throughput_against_one_rank() -> None:
    series = healthy()
    assert [point.point.ranks for point in series.points] == list(SIZES)
    assert (series.kind, series.unit, series.synthetic) == ("weak", "samples", False)
    alone = series.points[0].point.runs[0].samples_per_second
    assert alone is not None
    for point in series.points:
        rate = point.point.runs[0].samples_per_second
        assert rate is not None
        assert point.point.rate.value == pytest.approx(rate)
        assert point.efficiency is not None
        assert point.efficiency.value == pytest.approx(rate / (point.point.ranks * alone))
        assert point.relative.value == point.efficiency.value


def test_samples_of_different_lengths_scale_per_token() -> None:
    lengths = {1: 10_000, 2: 10_000, 4: 20_000}
    runs = [
        analyse(
            padded(simulate(replace(JOB, ranks=ranks, run_id=f"{ranks}")).run, 1 - tokens / 40_000)
        )
        for ranks, tokens in lengths.items()
    ]
    (series,) = scaling(runs)
    assert (series.unit, series.kind) == ("tokens", "strong")
    for scaled, run_of_size in zip(series.points, runs, strict=True):
        rate = run_of_size.tokens_per_second
        assert rate is not None
        assert scaled.point.rate.value == pytest.approx(rate.value)
        assert scaled.point.rate.ci95 is not None
        assert scaled.lost is not None
        assert scaled.efficiency is not None
        lost = sum(mean.value for mean in scaled.lost.values())
        assert lost == pytest.approx(1 - scaled.efficiency.value, abs=1e-9)
    alike = [
        analyse(padded(simulate(replace(JOB, ranks=ranks, run_id=f"{ranks}")).run, 0.5))
        for ranks in lengths
    ]
    assert scaling(alike)[0].unit == "samples"


def test_samples_of_different_sizes_scale_per_element() -> None:
    sizes = {1: 1_000, 2: 1_000, 4: 3_000}
    runs = [run(ranks, facts={"sample_elements": elements}) for ranks, elements in sizes.items()]
    (series,) = scaling(runs)
    assert (series.unit, series.kind) == ("elements", "strong")
    for scaled, (ranks, elements) in zip(series.points, sizes.items(), strict=True):
        samples = scaled.point.runs[0].samples_per_second
        assert samples is not None
        assert scaled.point.ranks == ranks
        assert scaled.point.rate.value == pytest.approx(samples * elements)


def test_losses_add_up_to_the_missing_efficiency() -> None:
    for point in healthy().points:
        assert point.lost is not None
        assert point.efficiency is not None
        assert list(point.lost) == list(ENTRIES)
        total = sum(mean.value for mean in point.lost.values())
        assert total == pytest.approx(1 - point.efficiency.value, abs=1e-12)


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        ("input", Fault("input", 40.0)),
        ("imbalance", Fault("compute", 40.0, ranks=(1,))),
        ("other", Fault("other", 40.0)),
        ("compute", Fault("compute", 40.0)),
    ],
)
def test_the_loss_is_where_the_fault_is(entry: str, fault: Fault) -> None:
    (series,) = scaling([run(1), run(4, faults=(fault,))])
    lost = series.points[1].lost
    assert lost is not None
    assert max(lost, key=lambda name: lost[name].value) == entry
    step = series.points[1].point.step_ms.value
    plain = healthy().points[2].point.entries_ms[entry].value
    alone = series.points[0].point.entries_ms[entry].value
    # The fault, and the job's other losses there; one late rank replaces those that are late by
    # chance.
    least = 40.0 if entry == "imbalance" else 40 + plain - alone
    most = 40 + plain - alone
    assert 0.9 * least / step <= lost[entry].value <= 1.1 * most / step


@pytest.mark.any_versions
@pytest.mark.slow
def test_intervals_hold_the_truth() -> None:
    truths = []
    for seed in range(40):
        (series,) = scaling([run(1, seed), run(4, seed + 100)])
        efficiency = series.points[1].efficiency
        assert efficiency is not None
        assert efficiency.ci95 is not None
        truths.append((efficiency.value, efficiency.ci95))
    truth = sum(value for value, _ in truths) / len(truths)
    inside = sum(low <= truth <= high for _, (low, high) in truths)
    assert 34 <= inside <= 40


def test_repeats_give_the_interval_of_a_mean() -> None:
    repeats = [run(ranks, seed) for ranks in (1, 4) for seed in range(3)]
    (series,) = scaling(repeats)
    assert [len(point.point.runs) for point in series.points] == [3, 3]
    steps = [run.step.mean for run in series.points[1].point.runs if run.step is not None]
    assert series.points[1].point.step_ms.value == pytest.approx(sum(steps) / 3)
    assert series.difference is not None
    assert series.difference.found


@pytest.mark.broad
@pytest.mark.any_versions
def test_sizes_that_do_not_differ_are_marked_as_alike() -> None:
    quiet = {"communication": replace(RING, latency_us=0.0, bytes=0), "noise": Noise(cv=0.01)}
    differences = []
    for first in range(0, 60, 6):
        # The same size under two names: differences are chance.
        runs = [run(2, first + seed, **quiet) for seed in range(3)]
        runs += [_as_size_4(run(2, first + 3 + seed, **quiet)) for seed in range(3)]
        (series,) = scaling(runs)
        assert series.difference is not None
        differences.append(series.difference.found)
    assert sum(differences) <= 3


def _as_size_4(analysis: Analysis) -> Analysis:
    logs = tuple(replace(log, facts={**log.facts, "size": 4}) for log in analysis.run.logs)
    assert analysis.samples_per_second is not None
    return replace(
        analysis,
        run=replace(analysis.run, logs=logs),
        samples_per_second=analysis.samples_per_second * 2,
    )


def test_without_repeats_differences_are_not_judged() -> None:
    assert healthy().difference is None


def test_more_ranks_are_projected_and_the_interval_holds_them() -> None:
    series = healthy()
    assert [projected.ranks for projected in series.projection] == [16, 32, 64]
    for projected in series.projection[:2]:
        really = run(projected.ranks, 7).samples_per_second
        assert really is not None
        assert projected.rate.ci95 is not None
        assert projected.rate.ci95[0] * 0.97 <= really <= projected.rate.ci95[1] * 1.03
        assert projected.efficiency is not None
        assert 0 < projected.efficiency.value < 1


def test_two_sizes_give_a_projection_with_an_interval() -> None:
    (series,) = scaling([run(1), run(4)])
    for projected in series.projection:
        assert projected.rate.ci95 is not None
        assert projected.rate.ci95[0] <= projected.rate.value <= projected.rate.ci95[1]


def test_without_a_run_on_one_rank_only_sizes_are_compared() -> None:
    (series,) = scaling([run(2), run(8)])
    assert [point.efficiency for point in series.points] == [None, None]
    assert [point.lost for point in series.points] == [None, None]
    assert series.points[0].relative.value == 1.0
    assert series.points[1].relative.value < 1.0
    assert "there is no run on one rank" in " ".join(series.warnings)


def test_one_size_has_no_scaling() -> None:
    needs = "on 4 ranks: scaling needs runs on other numbers"
    for runs, which in (([run(4)], "the only run is"), ([run(4), run(4)], "all runs are")):
        (series,) = scaling(runs)
        assert f"{which} {needs}" in series.warnings


def test_the_whole_job_counts_its_start_up() -> None:
    for point in healthy().points:
        assert point.point.job_rate.value < point.point.rate.value
    job = healthy().points[1].point.runs[0]
    samples = job.steps * 2 * JOB.batch_size
    assert healthy().points[1].point.job_rate.value == pytest.approx(
        samples / job.job.total, rel=0.01
    )


def test_a_fixed_total_batch_is_strong_scaling() -> None:
    runs = [run(ranks, batch_size=64 // ranks, compute_ms=160.0 / ranks) for ranks in (1, 2, 4)]
    (series,) = scaling(runs)
    assert series.kind == "strong"
    assert series.projection == ()
    for point in series.points:
        assert point.efficiency is not None
        assert point.lost is not None
        total = sum(mean.value for mean in point.lost.values())
        assert total == pytest.approx(1 - point.efficiency.value, abs=1e-9)
    # A smaller batch makes a rank's fixed work per step weigh more.
    last = series.points[-1].lost
    assert last is not None
    assert last["other"].value > 0


def test_jobs_are_separate() -> None:
    runs = [run(ranks) for ranks in (1, 2)]
    runs += [run(ranks, synthetic=True) for ranks in (1, 2)]
    runs += [run(ranks, batch_size=128) for ranks in (1, 2)]
    series = scaling(runs)
    assert [(job.synthetic, round(job.points[0].point.work)) for job in series] == [
        (False, 32),
        (False, 128),
        (True, 32),
    ]


def test_the_program_without_a_launcher_is_compared_with_one_rank() -> None:
    launched = [_launched(run(ranks, communication=RING)) for ranks in (1, 2)]
    alone = run(1, 9, compute_ms=120.0)
    (series,) = scaling([*launched, alone])
    assert series.alone is not None
    assert series.alone.runs == (alone,)
    one_rank, two_ranks = series.points
    assert one_rank.efficiency is not None
    assert one_rank.efficiency_alone is not None
    assert one_rank.efficiency.value == 1.0
    assert one_rank.efficiency_alone.value == pytest.approx(130 / 160, abs=0.02)
    assert two_ranks.efficiency_alone is not None


def _launched(analysis: Analysis) -> Analysis:
    logs = tuple(replace(log, facts={**log.facts, "launch": "a"}) for log in analysis.run.logs)
    return replace(analysis, run=replace(analysis.run, logs=logs))


def test_runs_without_stages_still_have_rates() -> None:
    (series,) = scaling([run(ranks, stamps=False) for ranks in (1, 2)])
    assert [point.lost for point in series.points] == [None, None]
    assert series.points[1].efficiency is not None
    assert series.projection == ()


def test_compute_that_is_slower_on_more_ranks_is_reported() -> None:
    (series,) = scaling([run(1), run(4, compute_ms=200.0)])
    warning_text = " ".join(series.warnings)
    assert re.search(r"compute takes 3\d% longer on 4 ranks than on one", warning_text)


def test_no_runs_give_no_scaling() -> None:
    assert scaling([]) == []


def test_published_curves_have_sources_and_efficiencies() -> None:
    assert len({curve.name for curve in CURVES}) == len(CURVES)
    efficiencies = {curve.name: curve.efficiency for curve in CURVES}
    assert efficiencies["VGG-16, 512 GPUs"] == (0.68,)
    assert efficiencies["VGG-16, HorovodRunner"][-1] == pytest.approx(145.5 / (32 * 24.6))
    assert efficiencies["MNIST, HorovodRunner"][1] == pytest.approx(1631 / (2 * 1113))
    _in_order([curve.processes for curve in CURVES])
    assert all(curve.source for curve in CURVES)


def _in_order(sizes: Sequence[tuple[int, ...]]) -> None:
    assert all(list(counts) == sorted(counts) for counts in sizes)


def test_more_ranks_that_share_a_machine_may_get_less_done() -> None:
    (series,) = scaling([run(1), run(2, compute_ms=200.0), run(4, compute_ms=250.0)])
    largest = series.points[-1].point.rate.value
    for projected in series.projection:
        assert projected.rate.ci95 is not None
        assert projected.rate.ci95[0] == pytest.approx(0.85 * largest)
        assert projected.rate.value > largest
    for projected in healthy().projection:
        assert projected.rate.ci95 is not None
        assert projected.rate.ci95[0] > healthy().points[-1].point.rate.value


def test_real_ranks_that_share_a_machine_are_within_the_interval() -> None:
    """The sample runs: four ranks on two cores, projected from one and two."""
    logs = Path(__file__).parents[2] / "sample_logs"
    alone, two, four = (
        analyse(open_run(str(logs / name))) for name in ("ranks-1", "clean", "ranks-4")
    )
    (series,) = scaling([alone, two])
    projected = series.projection[0]
    assert projected.ranks == 4
    assert four.samples_per_second is not None
    assert projected.rate.ci95 is not None
    assert projected.rate.ci95[0] <= four.samples_per_second <= projected.rate.ci95[1]
    assert projected.rate.value > 1.5 * four.samples_per_second


def test_published_curves_are_within_the_intervals_of_their_projections() -> None:
    several = [curve for curve in CURVES if len(curve.processes) > 2]
    assert {projection.curve for projection in held_out()} == set(several)
    for projection in held_out():
        assert projection.sizes == projection.curve.processes[: len(projection.sizes)]
        assert projection.ranks in projection.curve.processes[len(projection.sizes) :]
        assert (
            projection.published
            == projection.curve.efficiency[projection.curve.processes.index(projection.ranks)]
        )
        assert projection.inside, projection


def test_projections_do_not_use_the_projected_size() -> None:
    vgg = next(
        projection for projection in held_out() if projection.curve.name == "VGG-16, HorovodRunner"
    )
    assert (vgg.sizes, vgg.ranks) == ((1, 8), 16)
    lost = 1 / vgg.curve.efficiency[1] - 1
    # All bandwidth: a ring of 16 sends 15/16 of the limit for many ranks.
    assert vgg.projected.value == pytest.approx(1 / (1 + lost * (15 / 16) / (7 / 8)))
    assert vgg.projected.ci95 is not None
    # All latency, and a quarter more.
    assert vgg.projected.ci95[0] == pytest.approx(1 / (1 + lost * 1.25 * 15 / 7))
    assert vgg.error == pytest.approx(vgg.projected.value / vgg.published - 1)


def test_a_second_size_makes_projections_better() -> None:
    one_size, more = track_record(1, 1), track_record(2, 1)
    assert one_size is not None
    assert more is not None
    assert (len(one_size.projections), one_size.inside) == (3, 3)
    assert len({projection.curve.name for projection in one_size.projections}) == 3
    assert one_size.median > 2 * more.median
    assert one_size.largest > 2 * abs(more.largest)
    assert all(single.error > 0 for single in one_size.projections)
    assert track_record(1, 9) is None
