"""Set-ups that advice is given for, and every piece that any of them can get."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from stallscope.analysis import analyse
from stallscope.analysis.advice import (
    ONE_BROADCAST,
    Advice,
    averaged_metrics,
    broadcast_once,
    checkpoints_on_rank_0,
    dense_gradients,
    even_work,
    scaled_rate,
    sharding,
    shared_validation,
    shuffled_anew,
)
from stallscope.analysis.advice.advise import between_steps, fuller_compute
from stallscope.analysis.advice.communication import for_allreduce
from stallscope.analysis.advice.imbalance import for_imbalance
from stallscope.analysis.advice.input import InputTimes, for_late_input, for_slower_compute
from stallscope.analysis.result import Straggler
from stallscope.analysis.setup import Setup
from stallscope.analysis.stats import Mean
from stallscope.simulate import Job, simulate

#: Four ranks on one host with processors to spare.
KERAS = Setup(
    framework="keras",
    library="horovod",
    ranks=4,
    hosts={"alpha": 4},
    gpu=False,
    processors=16,
    ranks_there=4,
    batch_size=32,
    loader_workers=None,
    epochs=3,
    passes=1,
    steps_per_execution=1,
    parameters=25_000_000,
    gradient_tensors=160,
    gradient_bytes=100_000_000,
    settings={},
)
TORCH = replace(KERAS, framework="torch", loader_workers=0)
DDP = replace(TORCH, library="ddp")
ON_GPUS = {"gpu": True, "hosts": {"alpha": 4, "beta": 4}, "ranks": 8}


def straggler(
    stage: str = "compute",
    ranks: tuple[int, ...] = (1,),
    hosts: tuple[str, ...] = (),
    pattern: str = "persistent",
    work: float | None = None,
) -> Straggler:
    ms = Mean(10.0, (9.0, 11.0))
    return Straggler(pattern, ranks, hosts, stage, ms, 0.9, ms, work)


def every_piece() -> Iterator[tuple[Setup, Advice]]:
    """Advice of every kind for many set-ups, each with the set-up that it is for."""
    run = simulate(Job(ranks=2, steps=60)).run
    ledger = analyse(run).steady
    assert ledger is not None
    for setup in _setups():
        pieces = [
            *for_late_input(setup),
            *for_slower_compute(setup),
            *for_allreduce(setup, ledger, None),
            *between_steps(setup),
            *fuller_compute(setup),
            *even_work(setup),
            *sharding(setup),
            *scaled_rate(setup, 0.001),
            shared_validation(setup),
            checkpoints_on_rank_0(setup),
            averaged_metrics(setup),
            broadcast_once(setup),
            dense_gradients(setup, (200, 16)),
            shuffled_anew(setup, True),
            shuffled_anew(setup, False),
            *([ONE_BROADCAST] if setup.framework == "keras" else []),
        ]
        for stage in ("read", "decode", "augment", "batch"):
            pieces += for_late_input(setup, InputTimes(**{stage: 5.0}))
        for late in (
            straggler(),
            straggler(ranks=(0, 1), hosts=("alpha",)),
            straggler(ranks=(), pattern="rotating"),
            straggler(work=1.5),
        ):
            pieces += for_imbalance(run, setup, (late,))
        yield from ((setup, piece) for piece in pieces)


def _setups() -> Iterator[Setup]:
    for setup, gpu, processors in product((KERAS, TORCH, DDP), (False, True), (4, 16)):
        hosts = ON_GPUS if gpu else {}
        yield replace(setup, processors=processors, **hosts)
    for workers in (None, 2, 8):
        yield replace(TORCH, loader_workers=workers)
    yield replace(KERAS, settings={"HOROVOD_AUTOTUNE": "1"})
    yield replace(KERAS, library=None)
    yield replace(KERAS, framework=None, library=None)
