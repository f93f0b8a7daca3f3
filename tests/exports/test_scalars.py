"""Series over steps agree with the ledger, in windows, whatever the run is like."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simulator
from support.needing import need
from support.step_logs import Job, run_of_job, write_job

from stallscope.analysis import analyse
from stallscope.errors import NotFoundError
from stallscope.exports import export_formats
from stallscope.exports.export_formats import place_of, write_export
from stallscope.exports.exported_run import Selection, exported_run
from stallscope.exports.scalars import TOTAL, Scalars, scalars_of
from stallscope.parsers import read
from stallscope.run import Run

from .decoding import ALL, simulated
from .wandb_files import READING, python

JOB = Job(ranks=4, steps=120, slow={(1, "input"): 9.0})
SLOWEST = [f"stallscope_slowest_rank/{name}_ms" for name in ("input", "compute", "other")]
MEAN = [f"stallscope_mean_of_ranks/{name}_ms" for name in ("input", "compute", "other", "wait")]


def series(run: Run, selection: Selection = ALL) -> Scalars:
    return scalars_of(exported_run(run, selection))


def test_both_ledgers_add_up_to_the_step(tmp_path: Path) -> None:
    run = run_of_job(tmp_path, JOB)
    scalars = series(run)
    assert scalars.steps.tolist() == list(range(120))
    for stages in (SLOWEST, MEAN):
        names = [*stages, f"{stages[0].partition('/')[0]}/allreduce_ms"]
        total = np.sum([scalars.values[name] for name in names], axis=0)
        assert total == pytest.approx(scalars.values[TOTAL])
    ledger = analyse(run).ledger
    assert ledger is not None
    assert scalars.values[TOTAL] == pytest.approx(ledger.total / 1e6)
    assert scalars.values[MEAN[0]] == pytest.approx(ledger.input.mean(axis=1) / 1e6)
    assert scalars.values[SLOWEST[0]].mean() > 3 * scalars.values[MEAN[0]].mean()


def test_times_are_when_steps_were_reduced() -> None:
    run = simulated()
    scalars = series(run)
    assert run.started_at is not None
    assert 0 < scalars.seconds[0] - run.started_at.timestamp() < 60
    assert (np.diff(scalars.seconds) > 0).all()


def test_long_runs_have_windows_of_steps() -> None:
    run = simulator.simulate(simulator.Job(ranks=1, steps=9001)).run
    scalars = series(run)
    assert scalars.steps.tolist() == list(range(0, 9001, 5))
    every = series(run, Selection(5, 9))
    assert every.steps.tolist() == [5, 6, 7, 8, 9]
    assert scalars.values[TOTAL][1] == pytest.approx(every.values[TOTAL].mean())
    assert scalars.seconds[1] == every.seconds[-1]


def test_of_a_repeated_step_the_last_repetition_counts(tmp_path: Path) -> None:
    write_job(tmp_path, Job(ranks=2, steps=60, compute_ms=20))
    write_job(tmp_path, Job(ranks=2, steps=60, compute_ms=80, first_step=30, generation=1, seed=2))
    (run,) = read(str(tmp_path))
    scalars = series(run)
    assert scalars.steps.tolist() == list(range(90))
    assert scalars.values[TOTAL][10:30].max() < 60 < scalars.values[TOTAL][31:].min()


def test_means_are_over_the_chosen_ranks(tmp_path: Path) -> None:
    run = run_of_job(tmp_path, JOB)
    chosen = series(run, Selection(ranks=frozenset({1}))).values
    every = series(run).values
    assert chosen[MEAN[0]].mean() > 3 * every[MEAN[0]].mean()
    assert chosen[SLOWEST[0]] == pytest.approx(every[SLOWEST[0]])


def test_one_rank_of_many_cannot_tell_waiting_from_allreduce(tmp_path: Path) -> None:
    _, *others = write_job(tmp_path, JOB)
    for log in others:
        log.unlink()
    (run,) = read(str(tmp_path))
    names = series(run).values
    assert "stallscope_slowest_rank/waiting_and_allreduce_ms" in names
    assert "stallscope_slowest_rank/allreduce_ms" not in names


def test_steps_without_stages_have_no_series(tmp_path: Path) -> None:
    run = run_of_job(tmp_path, replace(JOB, stamps=False))
    with pytest.raises(NotFoundError, match="stages of these steps were not measured"):
        series(run)


def test_an_event_file_has_an_event_per_window(tmp_path: Path) -> None:
    run = run_of_job(tmp_path / "logs", JOB)
    export = export_formats.by_name("tensorboard")
    path = write_export(export, exported_run(run, ALL), place_of(export, tmp_path / "board"))
    assert (path.parent, path.name) == (tmp_path / "board", "events.out.tfevents.0.stallscope")
    data, lengths = path.read_bytes(), []
    while data:
        (length,) = struct.unpack_from("<Q", data)
        lengths.append(length)
        data = data[16 + length :]
    assert len(lengths) == 1 + 120


@pytest.mark.slow
@pytest.mark.extras
def test_weights_and_biases_has_an_offline_run(tmp_path: Path) -> None:
    need(find_spec("wandb"), "there is no wandb here: make .venv/.ready-dev")
    run = run_of_job(tmp_path / "logs", replace(JOB, facts={"run_name": "slow input"}))
    words = ["-m", "stallscope", "export", "logs", "--format", "wandb", "--out", "wandb"]
    printed = [python(tmp_path, *words), python(tmp_path, *words)]
    # Another export is another run.
    assert len({*printed}) == 2
    assert all(line.startswith("wandb/offline-run-") for line in printed)
    assert sorted(path.name for path in (tmp_path / "wandb").iterdir()) == sorted(
        Path(line.strip()).name for line in printed
    )
    offline_run: dict[str, Any] = json.loads(python(tmp_path, "-c", READING, printed[0].strip()))
    assert (offline_run["name"], offline_run["host"]) == ("slow input", "alpha")
    assert offline_run["config"]["stallscope_run"] == run.id
    assert offline_run["config"]["ranks"] == 4
    expected = series(run)
    assert [row["_step"] for row in offline_run["rows"]] == expected.steps.tolist()
    for name, values in expected.values.items():
        assert [row[name] for row in offline_run["rows"]] == pytest.approx(values.tolist())
