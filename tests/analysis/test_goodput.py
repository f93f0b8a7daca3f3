"""Goodput: useful steps and the loss by each cause add up to the whole job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from simulator import Fault, Job, simulate
from support.generations import GROWN_AND_SHRUNK, write_generations

from stallscope.analysis import Analysis, analyse
from stallscope.parsers import read
from stallscope.run import Run

JOB = Job(ranks=4, steps=200, epochs=4, validation_ms=300.0, checkpoint_ms=100.0, compute_ms=40.0)


def parts_of(analysis: Analysis) -> float:
    assert analysis.goodput is not None
    return analysis.goodput.compute_s + sum(analysis.goodput.lost_s.values())


@pytest.mark.parametrize(
    "job",
    [
        JOB,
        replace(JOB, faults=[Fault("input", 30.0, ranks=(1,))]),
        replace(JOB, steps=3, epochs=1),
        replace(JOB, ranks=1),
    ],
)
def test_it_adds_up_to_the_wall_time(job: Job) -> None:
    analysis = analyse(simulate(job).run)
    assert analysis.goodput is not None
    assert parts_of(analysis) == pytest.approx(analysis.job.total, rel=1e-9)
    assert analysis.goodput.total_s == pytest.approx(analysis.job.total)
    assert analysis.goodput.rank_s == pytest.approx(job.ranks * analysis.job.total)


def test_steps_that_count_are_split_as_the_ledger_splits_them() -> None:
    analysis = analyse(simulate(JOB).run)
    goodput = analysis.goodput
    assert goodput is not None
    assert goodput.fraction * goodput.total_s == pytest.approx(analysis.job.steps)
    for name in ("input", "imbalance", "allreduce", "other"):
        entry = analysis.entry(name)
        assert entry is not None
        assert goodput.lost_s[name] == pytest.approx(analysis.job.steps * entry.share, rel=1e-6)


def test_generations_of_different_sizes_count_with_their_ranks(tmp_path: Path) -> None:
    write_generations(tmp_path, GROWN_AND_SHRUNK)
    (run,) = read(str(tmp_path))
    analysis = analyse(run)
    goodput = analysis.goodput
    assert goodput is not None
    assert parts_of(analysis) == pytest.approx(analysis.job.total, rel=1e-3)
    assert 2 < goodput.rank_s / goodput.total_s < 3
    # Steps 50 to 59 and 115 to 119 were trained twice.
    assert [generation.repeated_steps for generation in analysis.generations] == [10, 5, 0]
    assert [generation.ended_by for generation in analysis.generations] == [
        "resized",
        "resized",
        "completed",
    ]
    assert goodput.lost_s["repeated"] > 0
    assert goodput.lost_s["restart"] > 40


def test_a_very_long_step_counts_as_a_stop() -> None:
    still_s = 30
    run = _with_a_long_step(simulate(JOB).run, 120, still_s * 1_000_000_000)
    usual, analysis = analyse(simulate(JOB).run), analyse(run)
    assert analysis.job.stopped == pytest.approx(still_s, abs=0.1)
    assert analysis.job.steps == pytest.approx(usual.job.steps, rel=0.01)
    assert parts_of(analysis) == pytest.approx(analysis.job.total, rel=1e-9)


def _with_a_long_step(run: Run, step: int, ns: int) -> Run:
    """Return the run with a batch that all ranks waited for, and everything after it later."""
    steps, intervals = run.steps, run.intervals
    later = pc.greater(steps["step"], step)
    here = pc.equal(steps["step"], step)
    for name in ("begin", "data", "ready", "reduced", "end"):
        moved = pc.or_(later, here) if name != "begin" else later
        steps = _moved(steps, name, moved, ns)
    for name in ("begin", "end"):
        intervals = _moved(intervals, name, pc.greater(intervals["step"], step), ns)
    return replace(run, steps=steps, intervals=intervals)


def _moved(table: pa.Table, name: str, where: pa.ChunkedArray, ns: int) -> pa.Table:
    column = pc.add(table[name], pc.multiply(pc.cast(where, pa.int64()), ns))
    return table.set_column(table.schema.get_field_index(name), name, column)


def test_there_is_no_goodput_without_stages() -> None:
    assert analyse(simulate(replace(JOB, stamps=False)).run).goodput is None
