"""Train while the recorder itself fails, or its disk."""

from __future__ import annotations

import contextlib
from typing import Any

from case_runner import full_disk
from pytorch.base import (
    Case,
    Training,
    ranked,
)
from rows_on_disk import wait_for_step

#: Bytes of a log after which the disk of rank 1 is full.
FULL_BYTES = 4000


@ranked
def no_folder(case: Case) -> Any:
    training = Training()
    (case.folder / "a file").write_text("no folder can be made below this\n")
    name = "a file/logs" if case.rank == 1 else "logs"
    with training.logger(case, name) as log:
        for batch in log.watch(case.loader()):
            training.step(batch)
    return training.seen()


@ranked
def disk_gets_full(case: Case) -> Any:
    training = Training()
    with full_disk(FULL_BYTES) if case.rank == 1 else contextlib.nullcontext():
        # Where a start takes long, lines of the machine alone would fill the disk.
        options = {"flush_seconds": 0.02, "machine": False}
        return training.recorded(case, loader=case.loader(50), **options)


@ranked
def recorder_breaks(case: Case) -> Any:
    """The recorder raises in the fifth iteration, when the first ones are on disk."""
    from stallscope.collector.recorder.loop_steps import Iteration

    return breaking(case, Iteration, "reduced", step_on_disk=3)


@ranked
def recorder_breaks_in_its_own_thread(case: Case) -> Any:
    """The recorder raises in its own thread."""
    from stallscope.collector.recorder.loop_steps import StepAssembler

    return breaking(case, StepAssembler, "rows")


def breaking(case: Case, owner: Any, name: str, step_on_disk: int | None = None) -> Any:
    """Train while the fifth call of a method of the recorder raises, once the log has a step."""
    original, calls = getattr(owner, name), []

    def broken(self: Any, *args: Any) -> Any:
        calls.append(1)
        if len(calls) == 5:
            if step_on_disk is not None:
                wait_for_step(case.logs(), case.rank, step_on_disk)
            raise ZeroDivisionError("broken on purpose")
        return original(self, *args)

    setattr(owner, name, broken)
    training = Training()
    try:
        result = training.recorded(case, flush_seconds=0.05)
    finally:
        setattr(owner, name, original)
    return {**result, "silent": Training().silent(case)}


@ranked
def recorder_cannot_start(case: Case) -> Any:
    """The recorder raises after it has added its hooks: it removes them at once."""
    from stallscope.collector.recorder.pytorch import pytorch_recording

    original = pytorch_recording.reductions_of

    def broken(*args: Any) -> Any:
        reductions = original(*args)
        install = reductions.install

        def install_and_raise(*args: Any) -> None:
            install(*args)
            raise ZeroDivisionError("broken on purpose")

        reductions.install = install_and_raise
        return reductions

    pytorch_recording.reductions_of = broken
    training = Training()
    in_training: list[str] = []

    def step(batch: Any) -> None:
        in_training.extend(training.ours())
        training.step(batch)

    try:
        result = training.recorded(case, step)
    finally:
        pytorch_recording.reductions_of = original
    return {**result, "in_training": in_training, "silent": Training().silent(case)}
