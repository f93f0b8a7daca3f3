"""What makes a device wait for its host: lines that torch warns of, and retries of its allocator.

The device is fake: machines for tests have none. ``benchmarks/gpu_check.py`` checks a real one.
"""

from __future__ import annotations

import sys
import types
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from recorder.conftest import Opener
from support.waiting import wait_until
from training.fake_cuda import FakeCuda, HostClock

from stallscope.collector.recorder.pytorch.cuda import CudaClock
from stallscope.collector.recorder.pytorch.device_causes import (
    AllocatorRetries,
    DeviceCopies,
    HostSyncs,
)

SECOND = 10**9
# As ``tensor.item()``, in a file of torch.
_OF_TORCH = """
def item(cuda):
    if cuda.sync_mode:
        warn("called a synchronizing CUDA operation (Triggered internally)", UserWarning, "t.py", 1)
"""
_NAMES: dict[str, Any] = {"warn": warnings.warn_explicit}
exec(compile(_OF_TORCH, "/opt/python/site-packages/torch/_tensor.py", "exec"), _NAMES)


class Training:
    """A loop on a fake device that reads values from it in each step."""

    def __init__(self) -> None:
        self.cuda = FakeCuda()
        self.steps = 0
        self.now = 0
        self.syncs = HostSyncs(self.cuda, lambda: self.steps, lambda: self.now)

    def train(self, steps: int, reads: int = 0) -> None:
        for _ in range(steps):
            for _ in range(reads):
                _NAMES["item"](self.cuda)
            self.steps += 1

    def flush(self, closing: bool = False) -> Any:
        self.now += SECOND
        facts = self.syncs.turn(closing)
        return None if facts is None else facts["host_syncs"]


@pytest.fixture
def training() -> Iterator[Training]:
    filters, show = list(warnings.filters), warnings.showwarning
    yield Training()
    assert warnings.filters == filters
    assert warnings.showwarning is show


def test_the_lines_that_wait_are_counted_per_step(training: Training) -> None:
    training.train(30)
    assert training.flush() is None
    training.train(50, reads=2)
    fact = training.flush()
    assert (fact["steps"], fact["per_step"]) == (50, 2.0)
    [line] = fact["lines"]
    file, _, function = line["at"]
    assert file.endswith("test_device_causes.py")
    assert function == "train"
    assert line["per_step"] == 2.0
    assert training.cuda.sync_mode == 0


def test_a_training_that_never_waits_is_told_so(training: Training) -> None:
    training.train(30)
    training.flush()
    training.train(50)
    assert training.flush() == {"steps": 50, "per_step": 0.0, "lines": []}


def test_the_first_steps_are_left_alone(training: Training) -> None:
    training.train(10, reads=3)
    training.flush()
    assert training.cuda.sync_mode == 0


def test_windows_become_rare(training: Training) -> None:
    training.train(30)
    seconds = []
    for second in range(2000):
        training.flush()
        training.train(10)
        if training.cuda.sync_mode:
            seconds.append(second)
    assert seconds == [0, 60, 660, 1260, 1860]
    training.flush(closing=True)


def test_a_window_waits_for_slow_steps(training: Training) -> None:
    training.train(30)
    training.flush()
    training.train(1, reads=4)
    assert training.flush() is None
    training.train(9, reads=4)
    assert training.flush()["per_step"] == 4.0


def test_many_warnings_close_a_window(training: Training) -> None:
    training.train(30)
    training.flush()
    training.train(3000, reads=10)
    assert training.cuda.sync_mode == 0
    fact = training.flush()
    assert fact["steps"] == 199
    assert fact["per_step"] == pytest.approx(10, rel=0.01)


def test_the_end_of_training_closes_a_window(training: Training) -> None:
    training.train(30)
    training.flush()
    training.train(2, reads=1)
    # Too few steps to count by.
    assert training.flush(closing=True) is None
    assert training.cuda.sync_mode == 0


def test_a_recording_that_fails_closes_the_window(training: Training, open_session: Opener) -> None:
    show = warnings.showwarning
    session = open_session(machine=False)
    session.after_failure = training.syncs.close
    training.train(30)
    training.flush()
    assert training.cuda.sync_mode == 1
    session.fail("broken on purpose")
    wait_until(lambda: warnings.showwarning is show, "the end of the window")
    wait_until(lambda: not session._thread.is_alive(), "the end of the thread")
    assert training.cuda.sync_mode == 0
    # Nothing is left to close.
    training.syncs.close()


def test_a_mode_that_the_user_has_set_stays(training: Training) -> None:
    training.cuda.sync_mode = 2
    training.train(30)
    assert training.flush() is None
    training.train(30)
    assert training.flush() is None
    assert training.cuda.sync_mode == 2


def test_other_warnings_are_shown_as_before(training: Training) -> None:
    training.train(30)
    training.flush()
    with pytest.warns(UserWarning, match="the user's own"):
        warnings.warn("the user's own", stacklevel=1)
    training.train(6, reads=1)
    assert training.flush()["per_step"] == 1.0


def test_warnings_that_are_errors_do_not_reach_training(training: Training) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        training.train(30)
        training.flush()
        training.train(6, reads=1)
        assert training.flush()["per_step"] == 1.0


def test_retries_of_the_allocator_are_counted_with_their_steps() -> None:
    cuda, steps = FakeCuda(), [0]
    cuda.alloc_retries = 3
    retries = AllocatorRetries(cuda, 0, lambda: steps[0])
    # Those before the recording are not its own.
    assert retries.turn() is None
    steps[0] = 100
    assert retries.turn() is None
    steps[0], cuda.alloc_retries = 200, 5
    assert retries.turn() == {
        "allocator_retries": {
            "count": 2,
            "spans": [[100, 200, 2]],
            "kept_bytes": cuda.kept_bytes,
            "used_bytes": cuda.used_bytes,
        }
    }
    steps[0] = 300
    assert retries.turn() is None
    steps[0], cuda.alloc_retries = 400, 6
    facts = retries.turn()
    assert facts is not None
    assert facts["allocator_retries"]["count"] == 3
    assert facts["allocator_retries"]["spans"] == [[100, 200, 2], [300, 400, 1]]


def test_many_spans_of_retries_are_bounded() -> None:
    cuda, steps = FakeCuda(), [0]
    retries = AllocatorRetries(cuda, 0, lambda: steps[0])
    facts = retries.turn()
    for _ in range(500):
        steps[0] += 10
        cuda.alloc_retries += 1
        facts = retries.turn()
    assert facts is not None
    assert facts["allocator_retries"]["count"] == 500
    assert len(facts["allocator_retries"]["spans"]) == 64


class Copying:
    """A library's function that copies a batch, which keeps the fake device busy for 2 ms."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = HostClock()
        self.cuda, self.has_batch = FakeCuda(clock), False
        self.trains = True
        module = types.ModuleType("accelerate.data_loader")
        module.send_to_device = self.copy  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "accelerate.data_loader", module)
        self.module: Any = module
        device = CudaClock(self.cuda, 0, now=clock, exchange_mode=self.cuda.exchange_mode)
        self.copies = DeviceCopies(device, lambda: self.has_batch if self.trains else None, len)

    def copy(self, batch: Any) -> Any:
        self.cuda.work(2_000_000)
        return batch

    def train(self, steps: int) -> None:
        for _ in range(steps):
            assert self.module.send_to_device("batch") == "batch"
            self.cuda.work(3_000_000)
            self.cuda.now.ns += 6_000_000  # type: ignore[attr-defined]


def test_some_copies_of_batches_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Copying(monkeypatch)
    undo = training.copies.watch()
    training.train(19)
    assert training.copies.turn() is None
    training.train(64 * 3)
    facts = training.copies.turn()
    assert facts is not None
    assert facts["device_copies"]["timed"] == 3
    assert facts["device_copies"]["us"] == pytest.approx(2000, abs=5)
    assert facts["device_copies"]["bytes"] == len("batch")
    # The iteration waits for its batch.
    assert facts["device_copies"]["in_input"] is True
    # Nothing new.
    assert training.copies.turn() is None
    for restore in undo:
        restore()
    assert training.module.send_to_device == training.copy


def test_copies_of_evaluations_and_in_graphs_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Copying(monkeypatch)
    training.copies.watch()
    training.trains = False
    training.train(100)
    training.trains, training.cuda.capturing = True, True
    training.train(100)
    training.cuda.capturing = False
    assert training.copies.turn(closing=True) is None


def test_copies_that_the_device_has_not_finished_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Copying(monkeypatch)
    training.copies.watch()
    training.train(19)
    training.module.send_to_device("batch")
    assert training.copies.turn() is None
    training.cuda.now.ns += 10_000_000  # type: ignore[attr-defined]
    assert training.copies.turn() is not None
