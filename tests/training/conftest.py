"""Run the cases of Keras 2 once on two ranks and once in one process, for all tests that read them."""

from __future__ import annotations

import pytest
from support.needing import need
from training.launching import ENVIRONMENT
from training.recorded import Recorded, record_cases


@pytest.fixture(scope="session")
def training_side() -> None:
    """Need the environment with TensorFlow and Horovod."""
    installed = (ENVIRONMENT / "bin" / "horovodrun").exists()
    need(installed, "there is no .venv-horovod to train in: make training-env")


@pytest.fixture(scope="session")
def recorded(training_side: None, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Run all cases of Keras 2 on two ranks."""
    return record_cases(tmp_path_factory.mktemp("ranks"), "keras_cases.py", ranks=2)


@pytest.fixture(scope="session")
def recorded_alone(training_side: None, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Run all cases of Keras 2 in one process without Horovod."""
    return record_cases(tmp_path_factory.mktemp("alone"), "keras_cases.py")
