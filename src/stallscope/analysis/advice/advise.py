"""Give advice on a verdict."""

from __future__ import annotations

from collections.abc import Sequence

from stallscope.run import Run

from ..gains.attribution import Attribution
from ..gains.bottleneck import Bottleneck
from ..ledger.ledger import Ledger
from ..network.communication import Communication
from ..settings.cores import crowded_cores
from ..settings.setup import Setup
from .communication import for_allreduce
from .cores import for_crowded_cores
from .imbalance import for_imbalance
from .input import InputTimes, for_late_input, for_slower_compute
from .piece import Advice, undone


def advise(
    run: Run,
    verdict: Bottleneck,
    ledger: Ledger,
    found: Attribution,
    communication: Communication | None = None,
    times: InputTimes | None = None,
) -> tuple[str, ...]:
    """Return what to change, the most certain advice first; nothing if there is no bottleneck.

    Args:
        run: the run.
        verdict: the run's bottleneck.
        ledger: steady steps.
        found: the run's stragglers.
        communication: the run's communication, if known.
        times: the times of the input's stages, if measured.
    """
    setup = Setup.of(run)
    pieces: Sequence[Advice] = ()
    if verdict.kind == "imbalance":
        pieces = for_imbalance(run, setup, found.stragglers)
    elif verdict.kind == "input":
        pieces = for_late_input(setup, times)
    elif verdict.kind == "other":
        pieces = between_steps(setup)
    elif verdict.kind == "allreduce":
        pieces = for_allreduce(setup, ledger, communication)
    elif verdict.kind == "compute":
        pieces = _for_compute(run, setup, verdict)
    return tuple(map(str, pieces))


def _for_compute(run: Run, setup: Setup, verdict: Bottleneck) -> tuple[Advice, ...]:
    crowded = crowded_cores(run) if verdict.cause == "cores" else None
    if crowded is not None:
        return for_crowded_cores(setup, crowded)
    return for_slower_compute(setup) if verdict.fault else fuller_compute(setup)


def between_steps(setup: Setup) -> tuple[Advice, ...]:
    """Return advice on work between steps, on all ranks."""
    look = Advice(
        "Look at what runs between steps on every rank: callbacks, logging, checkpoints, metrics "
        "fetched in every batch"
    )
    if setup.framework != "keras":
        return (look,)
    return undone(
        look,
        Advice(
            "Run several steps in one call, so that nothing runs on the host between them",
            "model.compile(optimizer=optimizer, loss=loss, steps_per_execution=10)",
            unless="Not if a callback must see every batch. Each recorded step is then ten steps.",
            done=(setup.steps_per_execution or 1) > 1,
        ),
    )


def fuller_compute(setup: Setup) -> tuple[Advice, ...]:
    """Return advice for steps that are compute and nothing else."""
    halves = "" if setup.half_precision else "mixed precision, if it is not on yet, "
    rest = Advice(
        f"The step consists of forward and backward passes: only a larger batch, {halves}or faster "
        "devices can help"
    )
    if setup.framework != "keras" or not setup.gpu:
        return (rest,)
    return undone(
        rest,
        Advice(
            "Compute in 16-bit floats; set this before the model is built",
            'tf.keras.mixed_precision.set_global_policy("mixed_float16")',
            unless="It gains nothing on accelerators without 16-bit units. Keep the last layer in "
            "float32.",
            done=setup.half_precision,
        ),
    )
