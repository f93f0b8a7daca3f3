"""The check of a machine with a GPU works on a CPU: the machines for tests have no CUDA device."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from support.benchmarks import FOLDER, benchmark
from training.launching import launch

pytestmark = [pytest.mark.horovod, pytest.mark.unmeasured]

STEPS = 60


@pytest.fixture(scope="module")
def training(training_side: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("gpu")
    words = ("gpu.train", str(out), "profiled", "cpu", str(STEPS))
    program = str(FOLDER / "gpu" / "one_gpu_rank.py")
    launch(out / "printed.txt", program, *words, PYTHONPATH=str(FOLDER)).succeed()
    return out


def test_the_recorders_times_agree_with_those_of_the_training(training: Path) -> None:
    launching = benchmark("gpu.launching")
    run, truth = launching.run_of(training), launching.truth_of(training)["steps"]
    assert len(truth) == STEPS
    for name in ("data", "ready", "end"):
        times = launching.recorded(run, name)
        apart = np.abs(times - [step[name] for step in truth])
        assert np.median(apart) < np.median(np.diff(times)) / 10


def test_the_check_compares_timestamps_and_trace(training: Path) -> None:
    timestamps = benchmark("gpu.timestamps")
    events = timestamps.against_events(training, "cpu")
    assert [check.what for check in events] == ["cpu: data", "cpu: ready", "cpu: end"]
    assert all("median" in check.seen for check in events)
    steps, backward = timestamps.against_profiler(training)
    assert "ms in the trace" in steps.seen
    assert (backward.seen, backward.passed) == ("the trace has none", None)


def test_the_cases_of_a_device_that_waits_train_on_a_cpu(
    training_side: None, tmp_path: Path
) -> None:
    words = ("gpu.train", str(tmp_path), "waits-full-captures", "cpu", str(STEPS))
    program = str(FOLDER / "gpu" / "one_gpu_rank.py")
    launch(tmp_path / "printed.txt", program, *words, PYTHONPATH=str(FOLDER)).succeed()
    verdicts = benchmark("gpu.verdicts")
    assert verdicts.complete_stages(tmp_path, "captures").passed
    # Only CUDA tells these.
    assert not verdicts.lines_that_wait(tmp_path).passed
    assert not verdicts.full_memory(tmp_path, 6).passed


def test_the_cost_is_measured_by_part(training_side: None, tmp_path: Path) -> None:
    program = str(FOLDER / "gpu" / "one_gpu_rank.py")
    words = ("gpu.cost_parts", str(tmp_path), "40", "2", "cpu")
    launch(tmp_path / "printed.txt", program, *words, PYTHONPATH=str(FOLDER)).succeed()
    result = json.loads((tmp_path / "result.json").read_text())
    assert set(result["added"]) == {"three events", "recorder", "recorder without stages"}
    for added in result["added"].values():
        median, low, high = added["all"]
        assert low <= median <= high
    assert result["busy"]["step_us"] > 0


def test_ranks_that_share_a_gpu_name_different_hosts_and_devices() -> None:
    share_gpu = benchmark("gpu.one_gpu_rank").share_gpu
    torchrun = [
        {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"} for rank in range(2)
    ]
    for rank in torchrun:
        share_gpu(rank, ["GPU-1"])
    for name in ("NCCL_HOSTID", "CUDA_VISIBLE_DEVICES"):
        assert len({rank[name] for rank in torchrun}) == 2
    assert [rank["LOCAL_RANK"] for rank in torchrun] == ["0", "0"]


@pytest.mark.parametrize("gpus", [[], ["GPU-1", "GPU-2"]])
def test_ranks_with_their_own_gpus_or_without_any_stay_as_they_are(gpus: list[str]) -> None:
    rank = {"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}
    environment = dict(rank)
    benchmark("gpu.one_gpu_rank").share_gpu(environment, gpus)
    assert environment == rank
