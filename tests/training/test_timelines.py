"""Timelines of real ranks have as many steps as the ranks made."""

from __future__ import annotations

from pathlib import Path

import pytest
from training.launching import Launch, launch
from training.timeline_cases import STEPS

from stallscope.analysis.network.tensors import Tensors, tensors
from stallscope.parsers.formats.horovod_timeline import open_timeline

pytestmark = [pytest.mark.horovod, pytest.mark.unmeasured]

TORCH = ("plain", "accumulated", "grouped", "logged", "evaluated", "unnamed", "unnamed_at_once")
KERAS = ("fit", "tape", "eager")


def started(folder: Path, framework: str) -> Launch:
    return launch(
        folder / "printed.txt",
        "timeline_cases.py",
        framework,
        str(folder),
        ranks=2,
        HOROVOD_TIMELINE="DYNAMIC",
    )


@pytest.fixture(scope="module")
def torch_timelines(training_side: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the cases of PyTorch; rank 0 kills itself in the last one."""
    folder = tmp_path_factory.mktemp("torch")
    launched = started(folder, "torch")
    assert launched.wait() != 0
    assert (folder / "killed.json").exists(), launched.output
    return folder


@pytest.fixture(scope="module")
def keras_timelines(training_side: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keras")
    started(folder, "keras").succeed()
    return folder


def tensors_of(path: Path) -> Tensors:
    with open_timeline(path) as timeline:
        return tensors(timeline)


@pytest.mark.parametrize("case", TORCH)
def test_a_timeline_of_pytorch_has_all_steps(torch_timelines: Path, case: str) -> None:
    result = tensors_of(torch_timelines / f"{case}.json")
    assert (len(result.steps), result.no_steps) == (STEPS, "")


@pytest.mark.parametrize("case", KERAS)
def test_a_timeline_of_keras_or_tensorflow_has_all_steps(keras_timelines: Path, case: str) -> None:
    result = tensors_of(keras_timelines / f"{case}.json")
    assert (len(result.steps), result.no_steps) == (STEPS, "")
    assert result.steps.tensors.min() == 4


def test_the_timeline_of_a_killed_job_has_its_steps(torch_timelines: Path) -> None:
    result = tensors_of(torch_timelines / "killed.json")
    # The writer's thread may not have written the last steps before the kill.
    written = max(tensor.operations for tensor in result.tensors)
    assert written <= len(result.steps) <= min(written + 1, STEPS)
    assert len(result.steps) > 1
