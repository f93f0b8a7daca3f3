"""Advice based on the recorded facts of pools and transports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from analysis.advice_setups import DDP, KERAS, ON_GPUS, TORCH, moved, text
from simulator import Fixed, simulate
from simulator import Job as SimulatedJob
from support.step_logs import Job, write_job

from stallscope.analysis import analyse
from stallscope.analysis.advice.communication_advice import for_allreduce
from stallscope.analysis.advice.input_advice import for_late_input
from stallscope.analysis.ledger.ledger import Ledger
from stallscope.analysis.setup import AVERAGES, Pool, Setup
from stallscope.parsers import read

TWO_HOSTS = {"hosts": {"alpha": 2, "beta": 2}}


@pytest.fixture(scope="module")
def ledger() -> Ledger:
    job = SimulatedJob(ranks=2, steps=100, communication=Fixed(50.0))
    steady = analyse(simulate(job).run).steady
    assert steady is not None
    return steady


# -- Petastorm -----------------------------------------------------------------------------------


THREADS = Pool(workers=2, capacity=50, waiting=0.4, batched=True)
UNSEEN = replace(THREADS, capacity=None, waiting=None, batched=False)


@pytest.mark.parametrize(
    ("pool", "processors", "expected"),
    [
        (THREADS, 16, 'make_batch_reader(url, reader_pool_type="process", workers_count=3)'),
        (replace(THREADS, batched=False), 16, "`reader = make_reader(url, reader_pool_type="),
        (THREADS, None, "workers_count=4)"),
        (replace(THREADS, workers=None), None, "workers_count=2)"),
        (replace(THREADS, waiting=44.0), 16, "BatchedDataLoader(reader, batch_size=32)"),
    ],
)
def test_petastorms_queue_decides_which_side_to_make_faster(
    pool: Pool, processors: int | None, expected: str
) -> None:
    setup = replace(TORCH, loader_workers=None, cpu_cores=processors, pool=pool)
    advice = text(for_late_input(setup))
    assert expected in advice
    assert f"{pool.waiting:.2g} row groups waited in its queue, which holds 50" in advice
    assert "is not a DataLoader" not in advice


def test_an_unmeasured_queue_is_to_be_measured_first() -> None:
    setup = replace(TORCH, loader_workers=None, pool=UNSEEN)
    advice_text = text(for_late_input(setup))
    assert '`reader = make_reader(url, reader_pool_type="thread")`' in advice_text
    assert "more workers than its 2: `reader = make_reader(url, " in advice_text
    assert "is not a DataLoader" not in advice_text
    assert "more workers" not in text(for_late_input(replace(setup, cpu_cores=8)))


def test_a_queue_in_between_blames_neither_side() -> None:
    middle = replace(TORCH, loader_workers=None, pool=replace(THREADS, waiting=12.0))
    assert "neither is clearly ahead" in text(for_late_input(middle))
    assert "reader_pool_type" not in text(for_late_input(middle))
    assert "Petastorm" not in text(for_late_input(replace(TORCH, loader_workers=None)))


@pytest.mark.parametrize(
    ("fact", "pool"),
    [
        (
            {"pool": "ThreadPool", "workers": 2, "room": 50, "waiting": 0.4, "looks": 12}
            | {"batched": True, "loader": "DataLoader"},
            replace(THREADS, kind="ThreadPool", loader="DataLoader"),
        ),
        (
            {"pool": "ThreadPool", "workers": 2, "room": 50, "waiting": 0.4, "looks": 9},
            replace(UNSEEN, kind="ThreadPool"),
        ),
        (
            {"pool": "ThreadPool", "workers": 2, "room": None, "waiting": None, "looks": 0},
            replace(UNSEEN, kind="ThreadPool"),
        ),
        ({"room": 0, "waiting": 3, "looks": 12}, replace(UNSEEN, workers=None)),
        ("x", None),
    ],
)
def test_a_queue_counts_if_it_was_sampled_often(
    tmp_path: Path, fact: Any, pool: Pool | None
) -> None:
    write_job(tmp_path, Job(ranks=2, steps=20, facts={"petastorm": fact}))
    assert Setup.of(read(str(tmp_path))[0]).pool == pool


# -- transports ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setup", "changes", "expected"),
    [
        (KERAS, {**ON_GPUS, "reduces_with": ("gloo",)}, "HOROVOD_GPU_OPERATIONS=NCCL pip"),
        (TORCH, {**ON_GPUS, "reduces_with": ("mpi", "gloo")}, "this one uses mpi and gloo, and"),
        (DDP, {**ON_GPUS, "reduces_with": ("gloo",)}, 'init_process_group("nccl")'),
        (TORCH, {**TWO_HOSTS, "reduces_with": ("gloo",)}, "HOROVOD_WITH_MPI=1 pip"),
    ],
)
def test_a_backend_is_named_if_there_is_a_better_one(
    ledger: Ledger, setup: Setup, changes: dict[str, Any], expected: str
) -> None:
    assert expected in text(for_allreduce(replace(setup, **changes), ledger, None))


@pytest.mark.parametrize(
    ("setup", "changes"),
    [
        (KERAS, {**ON_GPUS, "reduces_with": ("nccl", "gloo")}),
        (DDP, {**ON_GPUS, "reduces_with": ("nccl",)}),
        (DDP, {"reduces_with": ("gloo",)}),
        (DDP, ON_GPUS),
        (TORCH, {"reduces_with": ("gloo",)}),
        (TORCH, {**TWO_HOSTS, "reduces_with": ("mpi",)}),
        (TORCH, TWO_HOSTS),
    ],
)
def test_a_good_or_unknown_backend_is_left_alone(
    ledger: Ledger, setup: Setup, changes: dict[str, Any]
) -> None:
    advice_text = text(for_allreduce(replace(setup, **changes), ledger, None))
    assert not any(word in advice_text for word in ("NCCL pip", "nccl_built", '"nccl"', "WITH_MPI"))


@pytest.mark.parametrize(
    ("changes", "cycle"),
    [
        # 1 MB over 100 ms of backward: ten cycles reduce 100 kB each.
        ({"gradient_tensors": 160, "gradient_bytes": 1_000_000}, 10),
        ({"gradient_tensors": 160, "gradient_bytes": 5_000_000}, 2),
        # No longer than a twentieth of the step, 200 ms.
        ({"gradient_tensors": 160, "gradient_bytes": 100_000}, 10),
        ({"gradient_tensors": 160, "gradient_bytes": 100_000_000}, None),
        ({"gradient_tensors": 5, "gradient_bytes": 1_000_000}, None),
        ({"gradient_tensors": None, "gradient_bytes": 1_000_000}, None),
        ({"gradient_bytes": 1_000_000, "settings": {"HOROVOD_CYCLE_TIME": "3"}}, None),
        ({"gradient_bytes": 1_000_000, "settings": {"HOROVOD_AUTOTUNE": "1"}}, None),
        ({"gradient_bytes": 1_000_000, "library": "ddp", "framework": "torch"}, None),
    ],
)
def test_without_a_tuners_log_gradient_sizes_limit_the_cycle(
    changes: dict[str, Any], cycle: int | None
) -> None:
    job = SimulatedJob(ranks=2, steps=100, input_ms=2, compute_ms=150, other_ms=2)
    steady = analyse(simulate(replace(job, communication=Fixed(50.0))).run).steady
    assert steady is not None
    advice_text = text(for_allreduce(replace(KERAS, **changes), steady, None))
    if cycle is None:
        assert "HOROVOD_CYCLE_TIME=" not in advice_text
    else:
        assert f"`HOROVOD_CYCLE_TIME={cycle}`" in advice_text


def test_the_backend_is_read_from_the_facts(tmp_path: Path) -> None:
    write_job(tmp_path, Job(ranks=2, steps=20, facts={"reduces_with": ["mpi", "gloo"]}))
    assert Setup.of(read(str(tmp_path))[0]).reduces_with == ("mpi", "gloo")


def test_encryption_is_suspected_if_the_network_is_much_faster(ledger: Ledger) -> None:
    two = replace(KERAS, **TWO_HOSTS)
    advice_text = text(for_allreduce(two, ledger, moved(100.0, network=12.5)))
    assert "`sudo ip xfrm state count`" in advice_text
    assert "less than half of the network's 12.5" in advice_text
    for setup, communication in (
        (two, moved(100.0, network=1.6)),
        (two, moved(100.0)),
        (KERAS, moved(100.0, network=12.5)),
    ):
        assert "xfrm" not in text(for_allreduce(setup, ledger, communication))


def test_followed_advice_is_read_from_the_facts(tmp_path: Path) -> None:
    average = {"name": AVERAGES}
    facts = {
        "pipeline": ["TFRecord", "ParallelMap"],
        "loader_threads": 2,
        "compute_dtypes": ["float16", "float32"],
        "compression": "fp16",
        "bucket_bytes": 1 << 20,
        "persistent_workers": True,
        "accumulate_grad_batches": 4,
        "callbacks": [average, {"name": "keras.EarlyStopping", "monitor": "loss"}],
        "orders": [{"sampler": "DistributedSampler", "drawn": [0, epoch]} for epoch in (0, 1)],
    }
    write_job(tmp_path, Job(ranks=2, steps=20, facts=facts))
    setup = Setup.of(read(str(tmp_path))[0])
    assert (setup.has("ParallelMap"), setup.has("Map"), setup.loader_threads) == (True, False, 2)
    assert (setup.half_precision, setup.compresses, setup.bucket_bytes) == (True, True, 1 << 20)
    assert (setup.persistent_workers, setup.passes) == (True, 4)
    assert (AVERAGES in setup.callbacks, setup.averages_first) == (True, True)
    assert (setup.distributed_sampler, setup.set_epoch) == (True, True)


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"pipeline": "Map", "compute_dtypes": 1, "compression": 7, "orders": "x", "callbacks": 3},
        {"persistent_workers": "yes", "compression": "none", "orders": [None], "callbacks": [1]},
        {"orders": [{"sampler": "DistributedSampler", "drawn": [0, 0]}, {"sampler": "mine"}]},
    ],
)
def test_without_facts_advice_does_not_count_as_followed(
    tmp_path: Path, facts: dict[str, Any]
) -> None:
    write_job(tmp_path, Job(ranks=2, steps=20, facts=facts))
    setup = Setup.of(read(str(tmp_path))[0])
    assert (setup.pipeline, setup.half_precision, setup.compresses) == (None, False, False)
    assert (setup.persistent_workers, setup.averages_first) == (None, False)
    assert (setup.distributed_sampler, setup.set_epoch) == (False, False)
