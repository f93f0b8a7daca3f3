"""TensorBoard's own reader reads the exported series."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from statistics import median

import pytest
from support.step_logs import Job, run_of_job
from training.environments import ROOT, apps_packages
from training.launching import ENVIRONMENT, launch_words

from stallscope.exports import export_formats
from stallscope.exports.export_formats import place_of, write_export
from stallscope.exports.exported_run import Selection, exported_run
from stallscope.exports.scalars import scalars_of

pytestmark = [pytest.mark.horovod, pytest.mark.unmeasured]

READING = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
accumulator = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
accumulator.Reload()
series = {tag: accumulator.Scalars(tag) for tag in accumulator.Tags()["scalars"]}
print(json.dumps({
    tag: [(event.wall_time, event.step, event.value) for event in events]
    for tag, events in series.items()
}))
"""


#: Wall time, step and value.
Event = tuple[float, int, float]


def as_tensorboard_reads(folder: Path) -> dict[str, list[Event]]:
    """Return the events of each series, by TensorBoard's own reader."""
    python = ENVIRONMENT / "bin" / "python"
    done = subprocess.run([python, "-c", READING, str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    events: dict[str, list[Event]] = json.loads(done.stdout)
    return events


def test_rank_0_writes_the_series_of_all_ranks_during_training(
    training_side: None, tmp_path: Path
) -> None:
    launched = launch_words(
        tmp_path / "printed.txt",
        ["torchrun", "--standalone", "--nproc-per-node", "2"],
        "live_scalars.py",
        str(tmp_path / "logs"),
        str(tmp_path / "board"),
        PYTHONPATH=os.pathsep.join([str(ROOT / "src"), apps_packages()]),
    )
    launched.succeed()
    assert "scalars" not in launched.output
    events = as_tensorboard_reads(tmp_path / "board")
    names = ("stallscope/step_ms", "stallscope_slowest_rank/compute_ms")
    step_ms, compute_ms = ([value for _, _, value in events[name]] for name in names)
    assert all([step for _, step, _ in events[name]] == [*range(0, 95, 10)] for name in names)
    # The first step starts when both ranks have arrived, and rank 1 may already sleep.
    assert min(step_ms[1:]) > 40
    # On a busy machine rank 0, which does not sleep, may be the slowest in some steps.
    assert median(compute_ms) > 40
    # Only the shared folder has the waits of both ranks.
    waits = [value for _, _, value in events["stallscope_mean_of_ranks/wait_ms"]]
    assert min(waits) > 10


def test_tensorboard_reads_every_value(training_side: None, tmp_path: Path) -> None:
    job = Job(ranks=4, steps=300, slow={(1, "input"): 9.0})
    exported = exported_run(run_of_job(tmp_path / "logs", job), Selection())
    export = export_formats.by_name("tensorboard")
    folder = write_export(export, exported, place_of(export, tmp_path / "board")).parent
    events = as_tensorboard_reads(folder)
    expected = scalars_of(exported)
    assert set(events) == set(expected.values)
    for name, values in expected.values.items():
        seconds, steps, read = zip(*events[name], strict=True)
        assert list(steps) == expected.steps.tolist()
        assert list(seconds) == pytest.approx(expected.seconds.tolist())
        assert list(read) == pytest.approx(values.tolist(), rel=1e-6)
