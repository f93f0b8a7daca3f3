"""Set-ups that get advice, and every piece that any of them can get."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from itertools import product

from simulator import Job, simulate
from support.network_checks import network_check

from stallscope.analysis import analyse
from stallscope.analysis.advice.advise import (
    CHEAPER_BATCHES,
    STORAGE_OF_HOSTS,
    between_steps,
    for_crowded_cores,
    fuller_compute,
)
from stallscope.analysis.advice.communication_advice import for_allreduce, larger_cache
from stallscope.analysis.advice.input_advice import (
    for_copies,
    for_late_input,
    for_slower_compute,
    slow_first_steps,
)
from stallscope.analysis.advice.training_advice import (
    HOST_CODE,
    ONE_BROADCAST,
    averaged_metrics,
    broadcast_once,
    checkpoints_on_rank_0,
    dense_gradients,
    even_work,
    for_imbalance,
    scaled_rate,
    sharding,
    shared_validation,
    shorter_solo_work,
    shuffled_anew,
)
from stallscope.analysis.gains.what_if import Advice
from stallscope.analysis.ledger.ledger import Ledger
from stallscope.analysis.network.communication import Communication
from stallscope.analysis.network.network_check import NetworkUse
from stallscope.analysis.setup import AVERAGES, CpuLoad, Pool, Setup
from stallscope.analysis.stragglers.lateness import Straggler
from stallscope.arrays.stats import Mean
from stallscope.parsers.formats.measurements import parse_network_check
from stallscope.run import LoaderTrial, Run

#: Four ranks on one host with spare CPU cores.
KERAS = Setup(
    framework="keras",
    library="horovod",
    ranks=4,
    hosts={"alpha": 4},
    gpu=False,
    cpu_cores=16,
    ranks_on_machine=4,
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
FSDP = replace(DDP, sharded=True, gathers_for_backward=True, gradient_bytes=None)
#: A pipeline that follows all advice on pipelines.
IN_ORDER = (
    *("TensorSlice", "Shard", "ParallelInterleave", "Repeat", "GroupByWindow", "Cache", "Shuffle"),
    *("Batch", "ParallelMap", "Prefetch"),
)
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
    """Yield advice of every kind for many set-ups, each with the set-up that it is for."""
    for setup in _setups():
        yield from ((setup, piece) for piece in pieces_for(setup))


def pieces_for(setup: Setup) -> tuple[Advice, ...]:
    """Return every piece that a set-up gets, for any verdict and findings."""
    run, ledger = _example()
    pieces = [
        *for_late_input(setup),
        *for_slower_compute(setup),
        *slow_first_steps(setup),
        *between_steps(setup),
        *fuller_compute(setup),
        *even_work(setup),
        *sharding(setup),
        *scaled_rate(setup, 0.001),
        *shorter_solo_work(setup, ("validation", "checkpoint")),
        shared_validation(setup),
        checkpoints_on_rank_0(setup),
        averaged_metrics(setup),
        broadcast_once(setup),
        dense_gradients(setup, (200, 16)),
        # Samples that the epoch reorders.
        *([] if setup.set_epoch else [shuffled_anew(setup, True)]),
        shuffled_anew(setup, False),
        larger_cache(setup, evicts=True),
        CHEAPER_BATCHES,
        STORAGE_OF_HOSTS,
        *([ONE_BROADCAST] if setup.framework == "keras" else []),
        HOST_CODE,
    ]
    for network in (None, 0.01, 100.0):
        pieces += for_allreduce(setup, ledger, _moved(network))
    pieces += for_allreduce(setup, ledger, _moved(None), _fast_network())
    for threads in (1, 8):
        load = CpuLoad(("alpha",), tuple(range(4)), 4 * threads, 2)
        pieces.append(for_crowded_cores(setup, load))
    for stage in ("read", "decode", "augment", "batch"):
        pieces += for_late_input(setup, stage)
    if setup.framework == "torch":
        pieces += (for_copies({}), for_copies({"loader": {"pinned": True}}))
        pieces += for_late_input(setup, None, LoaderTrial(3, 4, 20.0, (19.0, 21.0)))
    for late in (
        straggler(),
        straggler("input"),
        straggler("other"),
        straggler(ranks=(0, 1), hosts=("alpha",)),
        straggler(ranks=(0, 1), hosts=tuple(setup.hosts)),
        straggler(ranks=(), pattern="rotating"),
        straggler(work=1.5),
    ):
        pieces += for_imbalance(run, setup, (late,))
    return tuple(dict.fromkeys(pieces))


def _fast_network() -> NetworkUse:
    """Return a network that explains a tenth of what is exposed."""
    check = parse_network_check("x.netcheck.json", json.dumps(network_check()).encode())
    exposed = Mean(10.0, (9.9, 10.1))
    return NetworkUse(check, (), Mean(1.0, (0.9, 1.1)), None, exposed, (), ())


def _moved(network: float | None) -> Communication:
    """Return communication whose cost may depend on bytes; ``network`` is its bandwidth in GB/s."""
    mean = Mean(10.0, (10.0, 10.0))
    return Communication(100_000_000, mean, 1.0, network, 20.0, None)


@cache
def _example() -> tuple[Run, Ledger]:
    """Return a run whose rank 1 may use fewer CPU cores than the other."""
    run = simulate(Job(ranks=2, steps=60)).run
    logs = tuple(
        replace(log, facts={**log.facts, "cpus_allowed": 8 - log.rank}) for log in run.logs
    )
    ledger = analyse(run).steady
    assert ledger is not None
    return replace(run, logs=logs), ledger


def _setups() -> Iterator[Setup]:
    for setup, gpu, cpu_cores in product((KERAS, TORCH, DDP), (False, True), (4, 16)):
        hosts = ON_GPUS if gpu else {}
        yield replace(setup, cpu_cores=cpu_cores, **hosts)
    for workers in (None, 2, 8):
        yield replace(TORCH, loader_workers=workers)
    yield replace(TORCH, loader_workers=None, has_unknown_workers=True)
    yield replace(KERAS, settings={"HOROVOD_AUTOTUNE": "1"})
    yield replace(KERAS, library=None)
    yield replace(KERAS, framework=None, library=None)
    yield from _with_facts()


def _with_facts() -> Iterator[Setup]:
    """Yield set-ups that recorded some of the facts for advice, and follow some of it."""
    yield replace(KERAS, pipeline=("TFRecord", "Map", "Shuffle", "Batch"), loader_threads=0)
    yield replace(KERAS, pipeline=IN_ORDER, loader_threads=2)
    yield replace(KERAS, callbacks=frozenset({AVERAGES}))
    yield replace(KERAS, callbacks=frozenset({AVERAGES}), averages_first=True)
    yield replace(KERAS, callbacks=frozenset({"horovod.BroadcastGlobalVariablesCallback"}))
    yield replace(KERAS, gradient_bytes=200_000)
    yield replace(KERAS, passes=4)
    yield replace(KERAS, **ON_GPUS, compute_dtypes=("float16", "float32"))
    yield replace(TORCH, distributed_sampler=True, loader_workers=3, persistent_workers=False)
    yield replace(TORCH, loader_workers=1, cpu_cores=2)
    yield replace(TORCH, library=None, loader_workers=4, cpu_cores=None)
    yield replace(DDP, bucket_bytes=50 << 20, compression="none")
    yield FSDP
    for setup in (KERAS, TORCH, DDP):
        for built in (("gloo",), ("mpi", "gloo"), ("nccl",)):
            yield replace(setup, **ON_GPUS, reduces_with=built)
    yield replace(TORCH, hosts={"alpha": 2, "beta": 2}, reduces_with=("gloo",))
    threads = Pool(
        workers=2, capacity=50, waiting=0.4, batched=True, kind="ThreadPool", loader="DataLoader"
    )
    unseen = replace(threads, capacity=None, waiting=None)
    for pool in (
        threads,
        replace(threads, waiting=12.0),
        replace(threads, waiting=44.0),
        replace(threads, waiting=44.0, loader="BatchedDataLoader"),
        unseen,
        replace(unseen, kind="ProcessPool"),
    ):
        for cpu_cores in (16, None):
            yield replace(TORCH, loader_workers=None, pool=pool, cpu_cores=cpu_cores)


def text(pieces: Iterable[Advice]) -> str:
    """Join pieces of advice, to search them for words."""
    return " ".join(map(str, pieces))


def moved(
    exposed_ms: float, network: float | None = None, size: int = 100_000_000
) -> Communication:
    """Describe what 4 ranks reduce: exposed milliseconds, the network's GB/s if known, and bytes."""
    whole = None if network is None else 2 * 3 / 4 * size / network / 1e6
    bandwidth = 2 * 3 / 4 * size / exposed_ms / 1e6
    mean = Mean(exposed_ms, (exposed_ms, exposed_ms))
    return Communication(size, mean, bandwidth, network, whole, None)
