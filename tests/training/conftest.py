"""Run the cases of Keras 2 once on two ranks and once in one process, for all tests that read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.needing import need
from training.launching import ENVIRONMENT, Launch, launch
from training.recorded import Recorded, record_cases


@pytest.fixture(scope="session")
def training_side() -> None:
    """Need the environment with TensorFlow and Horovod."""
    there = (ENVIRONMENT / "bin" / "horovodrun").exists()
    need(there, "there is no .venv-horovod to train in: make training-env")


Starter = Callable[..., Launch]


@pytest.fixture
def start(training_side: None, tmp_path: Path) -> Iterator[Starter]:
    """Return a function that starts programs of this folder; they end with the test."""
    launches: list[Launch] = []

    def begin(program: str, *arguments: str, ranks: int = 0) -> Launch:
        printed = tmp_path / f"printed-{len(launches)}.txt"
        launches.append(launch(printed, program, *arguments, ranks=ranks))
        return launches[-1]

    yield begin
    for launched in launches:
        launched.end()


@pytest.fixture(scope="session")
def recorded(training_side: None, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Run all cases of Keras 2 on two ranks."""
    return record_cases(tmp_path_factory.mktemp("ranks"), "keras_cases.py", ranks=2)


@pytest.fixture(scope="session")
def recorded_alone(training_side: None, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Run all cases of Keras 2 in one process without Horovod."""
    return record_cases(tmp_path_factory.mktemp("alone"), "keras_cases.py")
