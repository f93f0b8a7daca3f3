"""What to do about a verdict."""

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
    moved: Communication | None = None,
    times: InputTimes | None = None,
) -> tuple[str, ...]:
    """What to change, the surest first; nothing where the verdict names nothing.

    Args:
        run: the run.
        verdict: what holds it back.
        ledger: its steady steps.
        found: who is late in them.
        moved: what is known of its communication.
        times: what the stages of its input take, where that was measured.
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
        pieces = for_allreduce(setup, ledger, moved)
    elif verdict.kind == "compute":
        pieces = _for_compute(run, setup, verdict)
    return tuple(map(str, pieces))


def _for_compute(run: Run, setup: Setup, verdict: Bottleneck) -> tuple[Advice, ...]:
    crowded = crowded_cores(run) if verdict.cause == "cores" else None
    if crowded is not None:
        return for_crowded_cores(setup, crowded)
    return for_slower_compute(setup) if verdict.fault else fuller_compute(setup)


def between_steps(setup: Setup) -> tuple[Advice, ...]:
    """What to do about work between steps, on all ranks."""
    look = Advice(
        "Look at what runs between steps on every rank: callbacks, logging, checkpoints, metrics "
        "fetched in every batch"
    )
    if setup.framework != "keras":
        return (look,)
    return undone(
        look,
        Advice(
            "Run several steps in one call, between which nothing runs on the host",
            "model.compile(optimizer=optimizer, loss=loss, steps_per_execution=10)",
            unless="Not where a callback must see every batch; steps are then recorded by tens.",
            done=(setup.steps_per_execution or 1) > 1,
        ),
    )


def fuller_compute(setup: Setup) -> tuple[Advice, ...]:
    """What is left where the step is compute and nothing else."""
    halves = "" if setup.half_precision else "mixed precision, where it is not on yet, "
    left = Advice(
        f"The step is spent in forward and backward passes: a larger batch, {halves}or faster devices "
        "are what is left"
    )
    if setup.framework != "keras" or not setup.gpu:
        return (left,)
    return undone(
        left,
        Advice(
            "Compute in 16-bit floats, from before the model is built",
            'tf.keras.mixed_precision.set_global_policy("mixed_float16")',
            unless="It gains nothing on accelerators without units for them; the last layer stays "
            "float32.",
            done=setup.half_precision,
        ),
    )
