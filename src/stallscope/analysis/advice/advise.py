"""Give advice on a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stallscope.formatting.lists import counted
from stallscope.run import LoaderTrial, Run

from ..gains.attribution import Attribution
from ..gains.what_if import Advice, Bottleneck
from ..ledger.ledger import Ledger
from ..network.communication import Communication
from ..network.network_check import NetworkUse
from ..setup import CpuLoad, Setup, crowded_cores
from .communication_advice import for_allreduce
from .input_advice import for_late_input, for_slower_compute
from .training_advice import for_imbalance


def advise(
    run: Run,
    verdict: Bottleneck,
    ledger: Ledger,
    attribution: Attribution,
    communication: Communication | None = None,
    network: NetworkUse | None = None,
    longest_stage: str | None = None,
    proposed: LoaderTrial | None = None,
) -> tuple[Advice, ...]:
    """Return advice, the most certain first; nothing if there is no bottleneck.

    Args:
        run: the run.
        verdict: the run's bottleneck.
        ledger: steady steps.
        attribution: the run's stragglers.
        communication: the run's communication, if known.
        network: the speed of the network without training, if measured.
        longest_stage: the kind of the input's longest stage, if measured.
        proposed: a setting of the loader that keeps up, if one was tried.
    """
    setup = Setup.of(run)
    pieces: Iterable[Advice] = ()
    if verdict.kind == "imbalance":
        pieces = for_imbalance(run, setup, attribution.stragglers)
    elif verdict.kind == "input":
        pieces = for_late_input(setup, longest_stage, proposed)
    elif verdict.kind == "other":
        pieces = between_steps(setup)
    elif verdict.kind == "allreduce":
        pieces = for_allreduce(setup, ledger, communication, network)
    elif verdict.kind == "compute":
        crowded = crowded_cores(run) if verdict.cause == "cores" else None
        if crowded is not None:
            pieces = [for_crowded_cores(setup, crowded)]
        else:
            pieces = for_slower_compute(setup) if verdict.fault else fuller_compute(setup)
    return tuple(pieces)


def between_steps(setup: Setup) -> Iterator[Advice]:
    """Return advice on work between steps, on all ranks."""
    yield Advice(
        "Look at what runs between steps on every rank",
        detail=": callbacks, logging, checkpoints, metrics fetched in every batch",
    )
    if setup.framework == "keras" and (setup.steps_per_execution or 1) == 1:
        yield Advice(
            "Run several steps in one call, so that nothing runs on the host between them",
            "model.compile(optimizer=optimizer, loss=loss, steps_per_execution=10)",
            unless="Not if a callback must see every batch. Each recorded step is then ten steps.",
        )


def fuller_compute(setup: Setup) -> Iterator[Advice]:
    """Return advice for steps that consist of compute only."""
    halves = "" if setup.half_precision else "mixed precision, if it is not on yet, "
    yield Advice(
        f"only a larger batch, {halves}or faster devices can help",
        reason="The step consists of forward and backward passes:",
    )
    if setup.framework == "keras" and setup.gpu and not setup.half_precision:
        yield Advice(
            "Compute in 16-bit floats",
            detail="; set this before the model is built",
            line='tf.keras.mixed_precision.set_global_policy("mixed_float16")',
            unless="It gains nothing on accelerators without 16-bit units. Keep the last layer in "
            "float32.",
        )


def for_crowded_cores(setup: Setup, load: CpuLoad) -> Advice:
    """Advise fewer threads if ranks have more than their share, otherwise fewer ranks or more cores."""
    if load.threads <= load.share * len(load.ranks):
        # So many ranks have a core for each of their threads.
        most = max(1, load.cores * len(load.ranks) // load.threads)
        return Advice(
            f"Start no more than {counted(most, 'rank')} on a host with {load.cores} CPU "
            "cores, and use more or larger hosts for the rest",
            unless="Each rank already runs the fewest threads it can.",
        )
    line = {
        "keras": f"tf.config.threading.set_intra_op_parallelism_threads({load.share})",
        "torch": f"torch.set_num_threads({load.share})",
        None: f"OMP_NUM_THREADS={load.share}",
    }[setup.framework]
    return Advice(
        "Give every rank its share of the CPU cores, before anything computes",
        line,
        unless="Or start fewer ranks on a host.",
    )
