"""A run that does not fit into memory gives the same results, in little memory."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from simulator import Bursts, Clocks, Fault, Job, Jump, Noise, Ramp, simulate

from stallscope.analysis import analyse
from stallscope.analysis.gains.baseline import find_baseline
from stallscope.analysis.stragglers import lateness
from stallscope.arrays import local_matrix, pivot
from stallscope.catalogue.analysis_cache import table_of
from stallscope.collector.store.loading import load_run
from stallscope.collector.store.run_folders import save_run
from stallscope.opening import open_run
from stallscope.run import Run

SAMPLES = Path(__file__).parents[2] / "sample_logs"
NAMES = sorted(path.parent.name for path in SAMPLES.glob("*/run.json"))
RUNS = {name: open_run(str(SAMPLES / name)) for name in NAMES}

APART = Clocks(offset_s=3600, drift_ppm=20)
JOB = Job(ranks=16, steps=400, ranks_per_host=4, epochs=3, validation_ms=500, clocks=APART)
LOADERS = Job(ranks=8, steps=400, prefetch=4, input_ms=180.0)
FAULTS = {
    "nobody": (),
    "a slow rank": (Fault("compute", 30, ranks=(3,)),),
    "a slow host": (Fault("input", 30, hosts=("host-1",)),),
    "ever slower": (Fault("compute", 30, ranks=(2,), when=Ramp()),),
    "bursts": (Fault("other", 60, ranks=(2,), when=Bursts(30)),),
    "bursts of a host": (Fault("compute", 60, hosts=("host-2",), when=Bursts(30)),),
    "anybody": (Fault("compute", 60, when=Bursts(200)),),
}
JOBS = {
    **{name: replace(JOB, faults=faults) for name, faults in FAULTS.items()},
    "work that varies": replace(JOB, noise=Noise(cv=0.3)),
    "hosts of one rank": replace(JOB, ranks_per_host=1),
    "hosts of several sizes": replace(JOB, ranks=14, ranks_per_host=5),
    "a clock that is set": replace(JOB, clocks=replace(APART, jumps=(Jump(1, 250, 30.0),))),
    "clocks that cannot be followed": replace(JOB, clocks=Clocks(offset_s=10, drift_ppm=2e5)),
    "lost rows": replace(JOB, lost_rows=0.01),
    "lost ranks": replace(JOB, lost_ranks=(3, 5), cut_ranks={2: 300}),
    "no stamps": replace(JOB, stamps=False),
    "two ranks": replace(JOB, ranks=2),
    "one rank": replace(JOB, ranks=1),
    "hardly any steps": replace(JOB, steps=12, epochs=1),
    "loaders": replace(LOADERS, faults=(Fault("input", 8, ranks=(1,)),)),
    "more work": replace(JOB, samples_factor={2: 1.3}),
}


@pytest.fixture
def no_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Put arrays on disk, in blocks so small that every merge has work."""
    monkeypatch.setenv("STALLSCOPE_MEMORY", "1kB")
    monkeypatch.setattr(local_matrix, "CELLS", 700)
    monkeypatch.setattr(pivot, "ROWS", 333)
    return monkeypatch


@pytest.mark.slow
@pytest.mark.parametrize("name", JOBS)
def test_simulated_runs(name: str, no_memory: pytest.MonkeyPatch) -> None:
    run, baseline = simulate(JOBS[name]).run, simulate(JOB.baseline()).run
    _assert_same(run, baseline, no_memory)


@pytest.mark.parametrize("name", NAMES)
def test_the_sample_runs(name: str, no_memory: pytest.MonkeyPatch) -> None:
    _assert_same(RUNS[name], find_baseline(RUNS[name], RUNS.values()), no_memory)


@pytest.mark.broad
def test_a_job_that_was_restarted(no_memory: pytest.MonkeyPatch) -> None:
    first = simulate(JOB).run
    second = simulate(replace(JOB, generation=1, first_step=400, seed=5)).run
    _assert_same(_joined(first, second), None, no_memory)
    fewer = simulate(replace(JOB, ranks=12, generation=1, first_step=400, seed=5)).run
    _assert_same(_joined(first, fewer), None, no_memory)


@pytest.mark.parametrize("name", ["a slow rank", "lost rows", "no stamps"])
def test_a_collected_run_is_the_same_on_disk(
    name: str, tmp_path: Path, no_memory: pytest.MonkeyPatch
) -> None:
    folder = save_run(simulate(JOBS[name]).run, tmp_path)
    on_disk = load_run(folder)
    no_memory.undo()
    assert on_disk.steps.equals(load_run(folder).steps)
    on_disk.steps.validate(full=True)
    _assert_equal(_results(on_disk), _results(load_run(folder)))


@pytest.mark.broad
def test_memory_does_not_grow_with_what_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = replace(JOB, ranks=320, ranks_per_host=80, epochs=1)
    small, large = (
        save_run(simulate(replace(wide, steps=steps)).run, tmp_path / str(steps))
        for steps in (200, 1000)
    )
    monkeypatch.setattr(local_matrix, "CELLS", 2**14)
    monkeypatch.setattr(pivot, "ROWS", 2**14)
    monkeypatch.setattr(lateness, "_STEPS_FOR_USUAL", 50)
    in_memory = _peak(large)
    monkeypatch.setenv("STALLSCOPE_MEMORY", "1kB")
    on_disk = _peak(large)
    assert on_disk < in_memory / 2
    # Some values of every step, and 64 representative ranks, stay in memory: a row has 12 columns.
    assert (on_disk - _peak(small)) / (800 * 320) < 2 * 8


def _peak(folder: Path) -> int:
    """Return the peak of numpy's bytes while a collected run is analysed."""
    tracemalloc.start()
    try:
        analyse(load_run(folder))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _joined(first: Run, second: Run) -> Run:
    """Two generations of one job."""
    before = len(first.logs)

    def joined_table(name: str) -> pa.Table:
        table = getattr(second, name)
        log = pa.array(table["log"].to_numpy() + before, pa.int32())
        moved = table.set_column(0, table.schema.field("log"), log)
        return pa.concat_tables([getattr(first, name), moved]).combine_chunks()

    logs = (*first.logs, *second.logs)
    return replace(
        first, logs=logs, steps=joined_table("steps"), intervals=joined_table("intervals")
    )


def _assert_same(run: Run, baseline: Run | None, no_memory: pytest.MonkeyPatch) -> None:
    in_blocks = _results(run, baseline)
    no_memory.undo()
    _assert_equal(in_blocks, _results(run, baseline))


def _results(run: Run, baseline: Run | None = None) -> Mapping[str, Any]:
    """Return all results of an analysis: those per step, and everything else."""
    table = table_of(analyse(run, baseline))
    rest = {key.decode(): json.loads(value) for key, value in table.schema.metadata.items()}
    return {**{name: table[name].to_numpy() for name in table.column_names}, **rest}


def _assert_equal(first: Any, second: Any) -> None:
    """Compare counts and times to the last digit, other figures to a billionth."""
    if isinstance(first, np.ndarray):
        np.testing.assert_array_equal(first, second)
    elif isinstance(first, dict):
        assert first.keys() == second.keys()
        for key, value in first.items():
            _assert_equal(value, second[key])
    elif isinstance(first, list):
        assert len(first) == len(second)
        for mine, theirs in zip(first, second, strict=True):
            _assert_equal(mine, theirs)
    elif isinstance(first, float):
        assert first == pytest.approx(second, rel=1e-9, abs=1e-12, nan_ok=True)
    else:
        assert first == second
