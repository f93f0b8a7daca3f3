"""Scaling of jobs with epochs only: published figures, from logs in each format."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.epoch_logs import WRITERS, EpochJob, write_ehealth, write_keras, write_time_history
from support.step_logs import Job, write_job

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.scaling import ScalingSeries, left_out, scaling
from stallscope.analysis.scaling.projection import CURVES, PublishedCurve
from stallscope.analysis.scaling.series import fault_of
from stallscope.parsers import read

POINT = 0.01
#: The largest size's time for the whole job: epochs long enough that whole seconds resolve a point.
LARGEST_S = 1000.0


def analyses(paths: list[Path]) -> list[Analysis]:
    return [analyse(run) for path in paths for run in read(str(path))]


def jobs_of(curve: PublishedCurve) -> list[EpochJob]:
    """Return jobs with the published efficiency over their whole time, including start-up and a
    longer first epoch.

    Larger jobs start more slowly, so that steady epochs scale better than the whole job.
    """
    known = dict(zip(curve.processes, curve.efficiency, strict=True))
    largest = curve.processes[-1]
    jobs = []
    for ranks, efficiency in ({1: 1.0} | known).items():
        total = LARGEST_S * largest * known[largest] / (ranks * efficiency)
        startup, tracing = 0.02 * total, 0.01 * total * (1 + (ranks > 1))
        epochs = 20
        epoch_s = (total - startup - tracing) / epochs
        jobs.append(EpochJob(ranks, epoch_s, epochs, startup, tracing))
    return jobs


@pytest.mark.broad
@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.name)
@pytest.mark.parametrize("form", WRITERS)
def test_published_efficiencies_come_out_of_logs_in_every_form(
    tmp_path: Path, form: str, curve: PublishedCurve
) -> None:
    jobs = jobs_of(curve)
    # Enough for many steps on each of 512 processes.
    jobs = [replace(job, samples=6982 * 64) for job in jobs]
    (series,) = scaling(analyses([WRITERS[form](tmp_path, job) for job in jobs]))
    assert [point.point.ranks for point in series.points] == [job.ranks for job in jobs]
    knows_start = form in ("ehealth", "mlflow-metrics")
    alone = jobs[0]
    for point, job in zip(series.points, jobs, strict=True):
        assert point.efficiency is not None
        assert point.efficiency_job is not None
        steady = alone.epoch_s / (job.ranks * job.epoch_s)
        whole = alone.total_s / (job.ranks * job.total_s)
        if not knows_start:
            whole = (alone.total_s - alone.startup_s) / (job.ranks * (job.total_s - job.startup_s))
        assert point.efficiency.value == pytest.approx(steady, abs=POINT)
        assert point.efficiency_job.value == pytest.approx(whole, abs=POINT)
        assert point.lost is None
    began = " ".join(series.warnings)
    assert ("the start of the job" in began) is not knows_start


def test_the_published_rates_of_ehealth_come_out_of_its_logs(tmp_path: Path) -> None:
    """Images per second of VGG-16 as its notebook prints them: over the whole job."""
    rates = {1: 24.62, 8: 96.50, 16: 110.65, 32: 145.46}
    paths = []
    for ranks, rate in rates.items():
        total = 40 * 6982 / rate
        job = EpochJob(ranks, (total - 90) / 40, startup_s=60.0, tracing_s=30.0)
        paths.append(write_ehealth(tmp_path, job))
    (series,) = scaling(analyses(paths))
    assert (series.unit, series.name) == ("samples", "VGG16 on CALTECH101")
    shown = [
        point.efficiency_job.value for point in series.points if point.efficiency_job is not None
    ]
    assert shown == pytest.approx([1.0, 0.490, 0.281, 0.185], abs=0.001)
    for point in series.points:
        assert point.point.job_rate is not None
        assert point.point.job_rate.value == pytest.approx(rates[point.point.ranks], rel=0.001)
        assert point.point.rate.value > point.point.job_rate.value


def test_whole_seconds_give_an_interval_from_rounding(tmp_path: Path) -> None:
    jobs = [EpochJob(1, 10.4, epochs=12), EpochJob(4, 5.3, epochs=12)]
    bare = []
    for job in jobs:
        path = write_keras(tmp_path, job)
        # As TensorFlow 1 printed it: whole seconds, and nothing else.
        lines = [f"Epoch {epoch}/12\n - {job.epoch_s:.0f}s - loss: 1.9\n" for epoch in range(1, 13)]
        path.write_text("".join(lines))
        bare.append(path)
    (series,) = scaling(analyses(bare))
    efficiency = series.points[1].efficiency
    assert efficiency is not None
    assert efficiency.ci95 == pytest.approx((9.5 / (4 * 5.5), 10.5 / (4 * 4.5)))
    assert efficiency.ci95[0] <= 10.4 / (4 * 5.3) <= efficiency.ci95[1]
    assert "epochs, to the second" in " ".join(series.warnings)


def test_timestamps_give_epochs_more_precisely_than_rounded_durations(tmp_path: Path) -> None:
    (run,) = analyses([write_ehealth(tmp_path, EpochJob(8, 5.3, epochs=40))])
    assert run.epoch_times is not None
    assert run.epoch_times.mean_s == pytest.approx(5.3, abs=1 / 39)
    assert run.epoch_times.precision_s == pytest.approx(1 / 39)


def test_steps_that_are_not_divided_are_the_unit(tmp_path: Path) -> None:
    """If every rank makes as many steps as one alone, an epoch is more work on more ranks."""
    jobs = [EpochJob(1, 100.0, samples=3200), EpochJob(4, 125.0, samples=12800)]
    (series,) = scaling(analyses([write_keras(tmp_path, job) for job in jobs]))
    assert series.unit == "steps"
    assert series.points[1].efficiency is not None
    assert series.points[1].efficiency.value == pytest.approx(0.8)


def test_epochs_are_compared_with_epochs_next_to_step_logs(tmp_path: Path) -> None:
    job = Job(ranks=1, steps=400, epochs=4, validation_ms=500.0, facts={"framework": "keras"})
    write_job(tmp_path / "steps-1", job)
    write_job(tmp_path / "steps-2", replace(job, ranks=2, run_id="two"))
    logged = [analyse(read(str(tmp_path / name))[0]) for name in ("steps-1", "steps-2")]
    ends = (
        logged[0]
        .run.intervals.filter(
            [kind == "epoch" for kind in logged[0].run.intervals["kind"].to_pylist()]
        )["end"]
        .to_pylist()
    )
    epoch_s = (ends[-1] - ends[0]) / 1e9 / 3
    # The same hundred steps for each of four ranks, in the same time.
    printed = EpochJob(4, epoch_s, epochs=4, samples=4 * 100 * 32)
    (series,) = scaling([*logged, *analyses([write_keras(tmp_path, printed)])])
    alone, two, four = series.points
    assert four.efficiency is not None
    assert four.efficiency.value == pytest.approx(1.0, abs=0.02)
    # Steps are compared with steps as before, and losses add up.
    assert two.efficiency is not None
    assert two.lost is not None
    assert sum(mean.value for mean in two.lost.values()) == pytest.approx(1 - two.efficiency.value)
    assert (alone.lost is not None, four.lost) == (True, None)
    assert series.projection == ()
    assert "efficiency compares epochs with epochs" in " ".join(series.warnings)


def test_logs_without_a_model_are_not_averaged_with_step_logs(tmp_path: Path) -> None:
    write_job(tmp_path / "steps", Job(ranks=1))
    printed = [write_keras(tmp_path, EpochJob(ranks, 50.0)) for ranks in (1, 2)]
    series = scaling(analyses([tmp_path / "steps", *printed]))
    assert [[point.point.ranks for point in job.points] for job in series] == [[1, 2], [1]]


def test_the_program_without_a_launcher_is_not_a_repeat_of_one_process(tmp_path: Path) -> None:
    launched = [write_ehealth(tmp_path, EpochJob(ranks, 100.0 / ranks)) for ranks in (1, 4)]
    alone = write_ehealth(tmp_path, EpochJob(1, 80.0))
    alone.rename(tmp_path / alone.name.replace("HOROVOD_CLUSTER", "SINGLE_NODE"))
    write_ehealth(tmp_path, EpochJob(1, 100.0))
    series: ScalingSeries
    (series,) = scaling(analyses([tmp_path]))
    assert len(launched) == len(series.points) == 2
    assert series.alone is not None
    assert series.points[1].efficiency_alone is not None
    assert series.points[1].efficiency_alone.value == pytest.approx(0.8, abs=POINT)


def test_examples_per_second_give_the_rates_of_time_history(tmp_path: Path) -> None:
    paths = [write_time_history(tmp_path, EpochJob(ranks, 100.0 / ranks)) for ranks in (1, 4)]
    (series,) = scaling(analyses(paths))
    assert series.unit == "samples"
    assert series.points[0].point.rate.value == pytest.approx(6982 / 100, rel=0.001)


def test_a_log_without_its_number_of_ranks_is_left_out_and_named(tmp_path: Path) -> None:
    path = write_keras(tmp_path, EpochJob(8, 50.0)).rename(tmp_path / "train.txt")
    runs = analyses([path])
    assert scaling(runs) == []
    (note,) = left_out(runs)
    assert note.startswith("train.txt") or "/train.txt" in note
    assert "np8" in note


def test_a_clean_run_has_no_fault(tmp_path: Path) -> None:
    write_job(tmp_path / "clean", Job())
    write_job(tmp_path / "slow", Job(ranks=4, slow={(1, "compute"): 60.0}))
    clean, slow = (analyse(read(str(tmp_path / name))[0]) for name in ("clean", "slow"))
    assert fault_of(clean) is None
    assert fault_of(slow) == "slow rank 1"
    many = replace(slow.bottleneck, ranks=(*range(24, 32), 399))
    assert fault_of(replace(slow, bottleneck=many)) == "slow ranks 24–31 and 399"
    assert fault_of(replace(slow, bottleneck=replace(many, kind="input"))) == (
        "input of ranks 24–31 and 399"
    )
    # Logs without evidence name no fault.
    (epochs,) = analyses([write_keras(tmp_path, EpochJob(2, 50.0))])
    assert fault_of(epochs) is None
