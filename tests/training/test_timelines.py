"""Timelines that real ranks write have as many steps as the ranks made."""

from __future__ import annotations

from pathlib import Path

import pytest
from training.launching import launch
from training.timeline_cases import STEPS

from stallscope.analysis.network.tensors import Tensors, tensors
from stallscope.parsers.horovod_timeline import open_timeline

pytestmark = [pytest.mark.horovod, pytest.mark.unmeasured]

TORCH = ("plain", "accumulated", "grouped", "logged", "evaluated", "unnamed", "unnamed_at_once")
KERAS = ("fit", "tape", "eager")


def trained(folder: Path, framework: str) -> Path:
    launched = launch(
        folder / "printed.txt",
        "timeline_cases.py",
        framework,
        str(folder),
        ranks=2,
        HOROVOD_TIMELINE="DYNAMIC",
    )
    launched.succeed()
    return folder


@pytest.fixture(scope="module")
def torch_timelines(training_side: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("torch"), "torch")


@pytest.fixture(scope="module")
def keras_timelines(training_side: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("keras"), "keras")


def found(path: Path) -> Tensors:
    with open_timeline(path) as timeline:
        return tensors(timeline)


@pytest.mark.parametrize("case", TORCH)
def test_steps_of_pytorch(torch_timelines: Path, case: str) -> None:
    result = found(torch_timelines / f"{case}.json")
    assert (len(result.steps), result.no_steps) == (STEPS, "")


@pytest.mark.parametrize("case", KERAS)
def test_steps_of_keras_and_tensorflow(keras_timelines: Path, case: str) -> None:
    result = found(keras_timelines / f"{case}.json")
    assert (len(result.steps), result.no_steps) == (STEPS, "")
    assert result.steps.tensors.min() == 4


def test_a_killed_job_has_the_steps_that_it_wrote(training_side: None, tmp_path: Path) -> None:
    launched = launch(
        tmp_path / "printed.txt",
        "timeline_cases.py",
        "torch",
        str(tmp_path),
        "--kill",
        ranks=2,
        HOROVOD_TIMELINE="DYNAMIC",
    )
    assert launched.wait() != 0
    result = found(tmp_path / "plain.json")
    # The writer's thread may not have written the last steps when the kill comes.
    written = max(one.operations for one in result.tensors)
    assert written <= len(result.steps) <= min(written + 1, STEPS)
    assert len(result.steps) > 1
