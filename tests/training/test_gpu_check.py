"""The check of a machine with a GPU works on a CPU: the machines for tests have no CUDA device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.benchmarks import FOLDER, benchmark
from training.launching import launch

pytestmark = [pytest.mark.horovod, pytest.mark.unmeasured]

STEPS = 40


@pytest.fixture(scope="module")
def training(training_side: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("gpu")
    words = (str(out), "profiled", "cpu", str(STEPS))
    launch(out / "printed.txt", str(FOLDER / "gpu" / "train.py"), *words).succeed()
    return out


def test_the_recorders_times_agree_with_those_of_the_training(training: Path) -> None:
    launching = benchmark("gpu.launching")
    run, own = launching.run_of(training), launching.truth_of(training)["steps"]
    assert len(own) == STEPS
    for name in ("data", "ready", "end"):
        found = launching.recorded(run, name)
        apart = np.abs(found - [one[name] for one in own])
        assert np.median(apart) < np.median(np.diff(found)) / 10


def test_the_check_compares_timestamps_and_trace(training: Path) -> None:
    timestamps = benchmark("gpu.timestamps")
    events = timestamps.against_events(training, "cpu")
    assert [one.what for one in events] == ["cpu: data", "cpu: ready", "cpu: end"]
    assert all("median" in one.seen for one in events)
    steps, backward = timestamps.against_profiler(training)
    assert "ms in the trace" in steps.seen
    assert (backward.seen, backward.passed) == ("the trace has none", None)
