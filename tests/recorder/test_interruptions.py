"""Garbage collections of all threads are timed, and no error of timing them reaches training."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from stallscope.collector.recorder import interruptions as recording
from stallscope.collector.recorder.interruptions import Interruptions
from stallscope.collector.recorder.lock_waits import TrainingThread
from stallscope.collector.recorder.step_log.line_format import InterruptionRow

# A collection that looks at so many objects takes more than a millisecond.
OBJECTS = 200_000
HERE = TrainingThread(threading.get_ident(), threading.get_native_id())


@pytest.fixture
def rows() -> list[InterruptionRow]:
    return []


@pytest.fixture
def interruptions(rows: list[InterruptionRow]) -> Iterator[Interruptions]:
    recorded = Interruptions(rows.append, lambda: 7, HERE)
    gc.disable()
    recorded.start()
    yield recorded
    recorded.stop()
    gc.enable()


def collect() -> tuple[int, int]:
    """Return when a long collection began and ended."""
    objects = [[number] for number in range(OBJECTS)]
    began = time.monotonic_ns()
    gc.collect()
    ended = time.monotonic_ns()
    objects.clear()
    return began, ended


def test_a_long_collection_is_a_row(
    interruptions: Interruptions, rows: list[InterruptionRow]
) -> None:
    began, ended = collect()
    (row,) = rows
    assert (row.kind, row.step, row.amount) == ("garbage_collection", 7, 2)
    assert began <= row.begin < row.end <= ended
    assert interruptions.facts()["collections"]["count"] == 1


def test_short_ones_are_only_counted(
    interruptions: Interruptions, rows: list[InterruptionRow], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where cores are busy, even a collection of nothing may take a millisecond.
    monkeypatch.setattr(recording, "_LEAST_NS", 10**12)
    gc.collect()
    gc.freeze()
    rows.clear()
    before = interruptions.facts()["collections"]["count"]
    for _ in range(5):
        gc.collect(0)
    gc.unfreeze()
    assert not rows
    facts = interruptions.facts()["collections"]
    assert facts["count"] == before + 5
    assert facts["thresholds"] == list(gc.get_threshold())


def test_nothing_is_left_behind(interruptions: Interruptions, rows: list[InterruptionRow]) -> None:
    interruptions.stop()
    assert not [call for call in gc.callbacks if "Interruptions" in repr(call)]
    collect()
    assert not rows


@pytest.mark.broad
def test_a_forked_child_records_nothing(
    interruptions: Interruptions, rows: list[InterruptionRow]
) -> None:
    child = os.fork()
    if not child:
        collect()
        os._exit(len(rows))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_an_error_while_recording_reaches_nobody() -> None:
    def emit(row: InterruptionRow) -> None:
        raise OSError("the disk is gone")

    recorded = Interruptions(emit, lambda: 0, HERE)
    recorded.start()
    try:
        collect()
    finally:
        recorded.stop()
    assert recorded.facts()["collections"]["count"] >= 1


# Neither torch nor JAX is in the app's environment; their own compilers are tested in training.
class Compiler:
    """The hooks that a framework's module has."""

    def __init__(self) -> None:
        self.calls: list[Callable[..., None]] = []

    def register_event_duration_secs_listener(self, call: Callable[..., None]) -> None:
        self.calls.append(call)


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Compiler:
    compiler = Compiler()
    monkeypatch.setitem(sys.modules, "jax.monitoring", compiler)  # type: ignore[misc]
    return compiler


def test_a_compiler_that_is_imported_later_is_recorded(
    interruptions: Interruptions, rows: list[InterruptionRow], compiler: Compiler
) -> None:
    assert interruptions.kinds == ["garbage_collection"]
    noted = ["garbage_collection", "compilation", "saving", "background_saving"]
    assert interruptions.news() == {"interruptions": noted}
    assert interruptions.news() == {}
    for event in ("/jax/core/compile/backend_compile_duration", "/jax/other"):
        compiler.calls[0](event, 0.25, fun_name="step")
    (row,) = rows
    assert row.kind == "compilation"
    assert row.end - row.begin == 250_000_000
    assert interruptions.facts()["compilations"] == {"count": 1, "ms": 250.0}


class Tracing:
    """The module with which TensorFlow traces functions, and what it passes."""

    def __init__(self) -> None:
        self.inner = False

    def _create_concrete_function(self, parameters: Any, *_: Any) -> None:
        time.sleep(0.002)
        if self.inner:
            self.inner = False
            self.trace(shape="(16, 2)", function="inner")

    def trace(self, function: str = "step", **parameters: Any) -> None:
        """Trace a function with parameters of these types."""
        types = {name: SimpleNamespace(type_constraint=value) for name, value in parameters.items()}
        options = SimpleNamespace(name=function, function_cache=self)
        self._create_concrete_function(SimpleNamespace(parameters=types), None, None, options)


class Literal(str):
    """The type of a Python argument."""


def test_traces_of_tensorflow_are_recorded_with_what_is_new(
    interruptions: Interruptions, rows: list[InterruptionRow], monkeypatch: pytest.MonkeyPatch
) -> None:
    tracing = Tracing()
    name = "tensorflow.python.eager.polymorphic_function.tracing_compilation"
    monkeypatch.setitem(sys.modules, name, tracing)  # type: ignore[misc]
    assert interruptions.news()["interruptions"] == ["garbage_collection", "compilation"]
    tracing.trace(shape="(16, 2)", rate=Literal(1))
    # A function that another one calls is a part of its trace.
    tracing.inner = True
    tracing.trace(shape="(16, 3)", rate=Literal(1))
    tracing.trace(shape="(16, 3)", rate=Literal(2))
    assert [row.kind for row in rows] == ["compilation"] * 3
    assert interruptions.facts()["compilations"]["reasons"] == [
        "step: new shape or type of shape: (16, 3), before (16, 2)",
        "step: new Python argument rate: 2, before 1",
    ]
    interruptions.stop()
    assert vars(tracing) == {"inner": False}


def test_listeners_that_cannot_be_removed_go_silent(
    interruptions: Interruptions, rows: list[InterruptionRow], compiler: Compiler
) -> None:
    interruptions.news()
    interruptions.stop()
    compiler.calls[0]("/jax/core/compile/backend_compile_duration", 0.25)
    assert not rows


def test_an_unknown_version_of_a_framework_is_no_error(
    interruptions: Interruptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    module: Any = SimpleNamespace()
    monkeypatch.setitem(sys.modules, "torch._dynamo.callback", module)
    assert interruptions.news() == {}
    assert interruptions.kinds == ["garbage_collection"]
