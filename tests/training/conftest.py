"""One launch of ranks, and one of a single process, for all tests that read what cases recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.needing import need
from training.launching import ENVIRONMENT, Launch, launch
from training.recorded import Recorded, record_cases

# Several times what the cases take on two cores, for machines on which others work as well.
PATIENCE_SECONDS = 480.0


@pytest.fixture(scope="session")
def training_side() -> None:
    """The environment with TensorFlow and Horovod; tests that need it are skipped without it."""
    there = (ENVIRONMENT / "bin" / "horovodrun").exists()
    need(there, "there is no .venv-horovod to train in: make training-env")


Starter = Callable[..., Launch]


@pytest.fixture
def start(training_side: None, tmp_path: Path) -> Iterator[Starter]:
    """Starts programs of this folder; what still runs when the test is over is ended."""
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
    """What two ranks recorded, case by case."""
    folder = tmp_path_factory.mktemp("ranks")
    return record_cases(folder, "cases.py", ranks=2, seconds=PATIENCE_SECONDS)


@pytest.fixture(scope="session")
def recorded_alone(training_side: None, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """What one process without Horovod recorded, case by case."""
    return record_cases(tmp_path_factory.mktemp("alone"), "cases.py", seconds=PATIENCE_SECONDS)
