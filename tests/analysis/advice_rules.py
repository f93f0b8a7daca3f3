"""How a set-up changes when its user follows a piece of advice.

A new piece of advice needs an entry here: a change of the recorded facts, the measurement that it
needs, or the reason why no fact can show that it is followed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from analysis.advice_setups import IN_ORDER

from stallscope.analysis.gains.what_if import Advice
from stallscope.analysis.setup import AVERAGES, Setup

Follow = Callable[[Setup, "re.Match[str]"], Setup]


def facts(**changes: Any) -> Follow:
    """Return the set-up with these facts; a function is called with the number in the line."""
    return lambda setup, match: replace(
        setup,
        **{
            name: value(int(match[1])) if callable(value) else value
            for name, value in changes.items()
        },
    )


def pipeline(*operations: str) -> Follow:
    """Return the pipeline with these operations at its end, and its sequential maps in parallel."""

    def follow(setup: Setup, _: re.Match[str]) -> Setup:
        known = [
            operation
            for operation in setup.pipeline or ("TFRecord",)
            if operation not in ("Map", *operations)
        ]
        return replace(setup, pipeline=(*known, *operations))

    return follow


def callbacks(*names: str, **changes: Any) -> Follow:
    return lambda setup, _: replace(setup, callbacks=setup.callbacks | {*names}, **changes)


def pool(**changes: Any) -> Follow:
    def follow(setup: Setup, match: re.Match[str]) -> Setup:
        assert setup.pool is not None
        settings = {
            name: int(match[1]) if value is int else value for name, value in changes.items()
        }
        return replace(setup, pool=replace(setup.pool, **settings))

    return follow


def setting(setup: Setup, match: re.Match[str]) -> Setup:
    """Return the environment with the settings of the line."""
    return replace(setup, settings={**setup.settings, **dict(re.findall(r"(\w+)=(\S+)", match[0]))})


def tuned(setup: Setup, _: re.Match[str]) -> Setup:
    fixed = {"HOROVOD_FUSION_THRESHOLD": "33554432", "HOROVOD_CYCLE_TIME": "3.5"}
    kept = {name: value for name, value in setup.settings.items() if "AUTOTUNE" not in name}
    return replace(setup, settings={**kept, **fixed})


#: By the line: the facts after the line has been pasted.
BY_LINE: Mapping[str, Follow] = {
    r"^dataset = dataset\.prefetch\(": pipeline("Prefetch"),
    r"^dataset = dataset\.map\(decode, num_parallel_calls": pipeline("ParallelMap"),
    r"^dataset = files\.interleave\(": pipeline("ParallelInterleave"),
    r"^dataset = dataset\.batch\(32, .*\.map\(": pipeline("Batch", "ParallelMap"),
    r"^dataset = dataset\.shard\(hvd\.size\(\), hvd\.rank\(\)\)$": pipeline("Shard"),
    r"^dataset = dataset\.cache\(\)$": pipeline("Cache"),
    r"^dataset = dataset\.repeat\(\)\.shuffle\(": pipeline("Repeat", "Shuffle"),
    r"^dataset = dataset\.bucket_by_sequence_length\(": pipeline("GroupByWindow"),
    r"private_threadpool_size = (\d+)": facts(loader_threads=int),
    r"^DataLoader\(.*num_workers=(\d+), (?:prefetch_factor=\d+, )?persistent": facts(
        loader_workers=int, persistent_workers=True
    ),
    r'reader_pool_type="process", workers_count=(\d+)': pool(
        kind="ProcessPool", workers=int, capacity=None, waiting=None
    ),
    r'reader_pool_type="thread"\)$': pool(kind="ThreadPool"),
    r"= BatchedDataLoader\(": pool(loader="BatchedDataLoader"),
    r"^HOROVOD_(GPU_OPERATIONS=NCCL|WITH_MPI=1) pip": facts(reduces_with=("nccl", "mpi", "gloo")),
    r"hvd\.nccl_built\(\)|init_process_group\(\"nccl\"\)": facts(reduces_with=("nccl",)),
    r"^HOROVOD_[A-Z_]+=\S+( HOROVOD_[A-Z_]+=\S+)*$": setting,
    r"^stallscope tune RUN": tuned,
    r"bucket_cap_mb=(\d+)": facts(bucket_bytes=lambda mib: mib << 20),
    r"Compression\.fp16|fp16_compress_hook": facts(compression="fp16"),
    r"backward_passes_per_step=2|model\.no_sync\(\)": facts(passes=2),
    r"MixedPrecisionPolicy\(": facts(compression="bfloat16"),
    r"reshard_after_forward=False": facts(gathers_for_backward=False),
    r"steps_per_execution=(\d+)": facts(steps_per_execution=int),
    r"mixed_float16": facts(compute_dtypes=("float16", "float32")),
    r"^sampler = DistributedSampler\([^;]*$": facts(distributed_sampler=True),
    r"^sampler\.set_epoch\(epoch\)$": facts(distributed_sampler=True, set_epoch=True),
    r"LearningRateWarmupCallback\(": callbacks("horovod.LearningRateWarmupCallback"),
    r"^callbacks.*BroadcastGlobalVariablesCallback\(": callbacks(
        "horovod.BroadcastGlobalVariablesCallback"
    ),
    r"MetricAverageCallback\(": callbacks(AVERAGES, averages_first=True),
}

#: By the words, for pieces without a line.
BY_WORDS: Mapping[str, Follow] = {
    "mixed precision, if it is not on yet": facts(compute_dtypes=("bfloat16",)),
    "or give it more workers": facts(loader_workers=16),
    "Give the loaders CPU cores": facts(cpu_cores=64),
    "Use fewer workers, or more CPU cores": facts(cpu_cores=64),
    "Pass a transform_fn of the loader": pool(capacity=None, waiting=None),
    "Train for half a minute": pool(capacity=50, waiting=12.0),
    "neither is clearly ahead": pool(waiting=0.0),
    "Move MetricAverageCallback before": facts(averages_first=True),
    "divide the steps of an epoch": facts(distributed_sampler=False, pipeline=("TFRecord",)),
    "The loader may take the cores": facts(loader_workers=1),
    "Prepare batches ahead of training": facts(framework="keras", pipeline=IN_ORDER),
}

#: Pieces that need a measurement, with that measurement.
MEASURED: Mapping[str, str] = {
    r"Give every rank the same number of samples": "samples per step and epoch: uneven_batches",
    r"^Make each batch cheaper, or use hosts": "the idle cores of the host: loader_busy_cores",
    r"Look at the storage that these hosts": "input that became slower at one step: loader_slower",
    r"^Let the loader put batches into pinned": "the time of copies: copies_to_device",
    r"^Copy the next batch on a stream": "the time of copies: copies_to_device",
    r"^.*Replace hosts? ": "the host is late in most steps",
    r"Start rank \d+ like the others": "facts of this rank that differ from all others' facts",
    r"Start with the same weights": "weights of two ranks: weights_differ",
    r"Find what uses a metric": "callbacks in their order: metrics_not_averaged",
    r"Find what sets weights": "weights of two ranks: weights_differ",
    r"Train all epochs in one fit": "broadcasts of each fit: broadcast_in_every_fit",
    r"Average metrics over the ranks": "rates, or callbacks in their order: metrics_not_averaged",
    r"^Shuffle": "how the data was shuffled: same_order_every_epoch",
    r"Reduce gradients of embeddings": "gradients that are gathered: sparse_gradients",
    r"Write checkpoints": "checkpoints of the ranks: checkpoint_on_all_ranks, rank_0_alone",
    r"With N times the batch": "the optimizer's rate: learning_rate_not_scaled",
    r"^Augmentation takes longest": "the stages of the loader that ran alone",
    r"Give every rank its share of the CPU cores": "threads and cores: threads_oversubscribed",
    r"Start no more than \d+ ranks?": "threads and cores: threads_oversubscribed",
    r"^Measure how fast the network": "only without a measurement of netcheck, or --network-bandwidth",
    r"^Check whether traffic between hosts is encrypted": "half of --network-bandwidth is not reached",
    r"^Make each batch cheaper": "input is late although nothing else is left to do",
}

#: Pieces that no fact shows to be followed. Their words state when they apply.
NO_FACT_TELLS: Mapping[str, str] = {
    r"^(Otherwise l|L)ook at": "it names places to look at, and changes no setting",
    r"^Look for what delays the allreduce": "it names places to look at, and changes no setting",
    r"^Make epochs longer, or check": "how long an epoch should be depends on the data",
    r"a larger batch per rank, as far as memory": "nothing records how much memory a batch leaves free",
    r"a larger batch, or faster devices": "nothing records which devices there are to have",
    r"^Give the DataLoader more workers than it has": "the trace does not count workers",
    r"^Unless it has one already, give every rank": "validation data does not say that it is a shard",
}


def following(piece: Advice, setup: Setup) -> Setup | None:
    """Return the set-up of a user who has followed a piece; None where no rule says how."""
    for rules, text in ((BY_LINE, piece.line), (BY_WORDS, piece.sentence)):
        for pattern, follow in rules.items():
            match = re.search(pattern, text)
            if match:
                return follow(setup, match)
    return None


def excused(piece: Advice) -> bool:
    """Tell whether a table says why no fact of a set-up shows that a piece is followed."""
    return any(re.search(pattern, piece.sentence) for pattern in (*MEASURED, *NO_FACT_TELLS))
