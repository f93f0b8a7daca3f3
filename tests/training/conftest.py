"""Run the cases of Keras 2 once on two ranks and once in one process, for all tests that read them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from support.needing import need
from training.launching import ENVIRONMENT
from training.recorded import Recorded, record_cases
from training.recorder_contract import LeftOut

#: The variants that do not run.
_DESELECTED: list[pytest.Item] = []


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark tests that a contract shares with another one, and that are variants there."""
    if isinstance(item, pytest.Function):
        repeated = getattr(item.cls, "repeated", {})
        if item.originalname in repeated:
            item.add_marker(pytest.mark.variant(*repeated[item.originalname]))


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    _DESELECTED.extend(item for item in items if item.get_closest_marker("variant"))


@pytest.fixture(scope="module")
def left_out_of(request: pytest.FixtureRequest) -> LeftOut:
    """Return a function that names the cases that only deselected variants of a file read.

    That is for the variable ``LEFT_OUT`` of a launch; a variant's marker names its cases. The
    function's argument is the class of all contracts that read the launch, where not all do.
    """

    def left_out(contract: type = object) -> str:
        return _unread(
            request,
            lambda item: item.module is request.module and issubclass(item.cls or object, contract),
        )

    return left_out


def _unread(request: pytest.FixtureRequest, reads: Callable[[pytest.Function], bool]) -> str:
    """Return the cases that only deselected variants read.

    Args:
        reads: whether a test reads the launch.
    """
    unread, read = (
        {
            name
            for item in items
            if isinstance(item, pytest.Function) and reads(item)
            for marker in item.iter_markers("variant")
            for name in marker.args
        }
        for items in (_DESELECTED, request.session.items)
    )
    return " ".join(sorted(unread - read))


@pytest.fixture(scope="session")
def training_side() -> None:
    """Need the environment with TensorFlow and Horovod."""
    installed = (ENVIRONMENT / "bin" / "horovodrun").exists()
    need(installed, "there is no .venv-horovod to train in: make training-env")


@pytest.fixture(scope="session")
def recorded(
    request: pytest.FixtureRequest, training_side: None, tmp_path_factory: pytest.TempPathFactory
) -> Recorded:
    """Run the cases of Keras 2 on two ranks."""
    left_out = _unread(request, lambda item: item.get_closest_marker("cases") is not None)
    folder = tmp_path_factory.mktemp("ranks")
    return record_cases(folder, "keras_cases.py", ranks=2, LEFT_OUT=left_out)


@pytest.fixture(scope="session")
def recorded_alone(training_side: None, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Run all cases of Keras 2 in one process without Horovod."""
    return record_cases(tmp_path_factory.mktemp("alone"), "keras_cases.py")
