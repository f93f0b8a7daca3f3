"""Simulated logs are step logs: written and read back, they give the same run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from simulator import Clocks, Fault, Job, Jump, Noise, Ring, simulate, write_logs

from stallscope.parsers import read
from stallscope.run import INTERVALS_SCHEMA, STEPS_SCHEMA

JOB = Job(ranks=6, ranks_per_host=2, steps=40)
ROUGH = replace(
    JOB,
    epochs=3,
    validation_ms=20,
    validation_ranks=(0, 1),
    checkpoint_ms=10,
    lost_rows=0.2,
    lost_ranks=(3,),
    cut_ranks={1: 17, 4: 14},
    clocks=Clocks(offset_s=900, drift_ppm=100, jumps=(Jump(1, 20, 3000.0),)),
    noise=Noise(cv=0.5, tail_share=0.1),
    faults=(Fault("input", 50, ranks=(2,)),),
)


@pytest.mark.parametrize(
    "job",
    [
        JOB,
        ROUGH,
        replace(JOB, ranks=1, first_step=12345, generation=3, samples_factor={0: 0.5}),
        replace(JOB, stamps=False, synthetic=True, run_name="a name", epochs=4),
        replace(JOB, steps=0),
        replace(
            JOB, communication=Ring(1000, 1.0), facts={"made": {"A": ("b", 1)}, "comment": None}
        ),
        replace(JOB, cut_ranks={2: 0}, lost_ranks=(0, 1)),
    ],
)
def test_written_and_read_back_it_is_the_same_run(tmp_path: Path, job: Job) -> None:
    simulated = simulate(job)
    paths = write_logs(simulated, tmp_path / "logs")
    (run,) = read(str(tmp_path / "logs"))
    assert run.steps.schema == STEPS_SCHEMA
    assert run.steps.equals(simulated.run.steps)
    assert run.intervals.schema == INTERVALS_SCHEMA
    assert run.intervals.equals(simulated.run.intervals)
    assert run.problems == ()
    assert (run.id, run.name, run.synthetic, run.size, run.status, run.started_at) == (
        simulated.run.id,
        simulated.run.name,
        simulated.run.synthetic,
        simulated.run.size,
        simulated.run.status,
        simulated.run.started_at,
    )
    assert [replace(log, size=0) for log in run.logs] == list(simulated.run.logs)
    assert [path.name for path in paths] == [log.path for log in run.logs]


def test_a_clock_set_back_within_a_step_removes_the_timestamps_of_that_step(
    tmp_path: Path,
) -> None:
    job = replace(JOB, ranks=4, clocks=Clocks(jumps=(Jump(1, 20, -3000.0),)))
    simulated = simulate(job)
    write_logs(simulated, tmp_path / "logs")
    (run,) = read(str(tmp_path / "logs"))
    rows = run.steps.to_pylist()
    assert [(row["rank"], row["step"]) for row in rows if row["data"] is None] == [(2, 20), (3, 20)]
    assert [problem.what for problem in run.problems] == [
        "3 timestamps outside of their steps treated as missing"
    ] * 2


def test_lines_are_in_order_of_time(tmp_path: Path) -> None:
    job = Job(ranks=1, steps=6, epochs=2, validation_ms=5, checkpoint_ms=5)
    (path,) = write_logs(simulate(job), tmp_path)
    lines = path.read_text().splitlines()
    epoch = ["step", "step", "step", "validation", "checkpoint", "epoch"]
    assert [line.split(",")[0] for line in lines[2:]] == [*epoch, *epoch, "end"]
    ends = []
    for line in lines[2:]:
        cells = line.split(",")
        ends.append(int(cells[3]) + int(cells[7]))
    assert ends == sorted(ends)


def test_steps_and_intervals_follow_one_another_without_overlap() -> None:
    run = simulate(Job(ranks=2, steps=20, epochs=2, validation_ms=5, other_ms=0.01)).run
    rows = run.steps.to_pylist() + run.intervals.to_pylist()
    for rank in (0, 1):
        spans = [
            (row["begin"], row["end"])
            for row in rows
            if row["rank"] == rank and row.get("kind", "step") in ("step", "validation", "end")
        ]
        spans.sort()
        assert all(span[1] <= after[0] for span, after in zip(spans, spans[1:], strict=False))


def test_rows_are_lost_at_random_and_ranks_whole() -> None:
    job = replace(JOB, steps=5000, lost_rows=0.1, lost_ranks=(3,))
    run = simulate(job).run
    assert run.ranks == [0, 1, 2, 4, 5]
    assert run.missing_ranks == [3]
    counts = run.steps.to_pandas().groupby("rank")["step"].count()
    assert counts.to_numpy() / 5000 == pytest.approx([0.9] * 5, abs=0.02)
    whole = simulate(replace(job, lost_rows=0.0)).run.steps.to_pandas()
    kept = run.steps.to_pandas()
    joined = kept.merge(whole, on=["rank", "step"], suffixes=("", "_whole"))
    assert len(joined) == len(kept)
    assert (joined["ready"] == joined["ready_whole"]).all()


def test_a_truncated_log_has_its_first_steps_and_no_end() -> None:
    run = simulate(replace(JOB, epochs=4, cut_ranks={2: 20})).run
    steps = run.steps.to_pandas()
    assert steps[steps["rank"] == 2]["step"].tolist() == list(range(20))
    intervals = run.intervals.to_pandas()
    # It was killed as the second epoch ended.
    assert intervals[intervals["rank"] == 2]["kind"].tolist() == ["epoch"]
    assert [log.rank for log in run.logs if not log.ended] == [2]
    assert run.status == "open"


def test_missing_timestamps_are_null() -> None:
    run = simulate(replace(JOB, stamps=False)).run
    for name in ("data", "ready", "reduced"):
        assert run.steps[name].null_count == run.steps.num_rows
    assert run.steps["end"].null_count == 0
    assert run.fact("stamps")["placed"] == []


def test_facts_of_the_job_override_the_simulations() -> None:
    run = simulate(replace(JOB, facts={"framework": "torch", "cpu_count": 8})).run
    assert run.fact("framework") == "torch"
    assert run.fact("cpu_count") == 8
    assert run.fact("batch_size") == 32
