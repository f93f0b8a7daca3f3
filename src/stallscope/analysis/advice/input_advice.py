"""Advise on slow input pipelines, on all ranks or on the named ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stallscope.formatting.lists import counted
from stallscope.run import LoaderTrial

from ..gains.what_if import Advice
from ..setup import Pool, Setup

# In most jobs, more workers than this wait for the same disk.
_MOST_WORKERS = 16
# Enough threads for most loaders, few enough to leave CPU cores to compute.
_FEW_THREADS = 2
# Training does not wait for a queue that is fuller than the first share, and waits for one that is
# emptier than the second.
_FULL, _EMPTY = 0.5, 0.1
# Parts of the names of tf.data's operations, and the stages that they are.
_OPERATIONS = (
    ("Map", "decode"),
    *((operation, "read") for operation in ("Interleave", "TFRecord", "TextLine")),
    ("Batch", "batch"),
)
_SAME_BYTES = "Not if it waits for a disk or a network: more workers wait for the same bytes."
_CHEAPER = "Decode beforehand, augment on the accelerator, read larger files."
_AUGMENTATION = (
    "Augmentation takes longest, and it cannot be done beforehand because every epoch draws new random "
    "values."
)


def for_late_input(
    setup: Setup, stage: str | None = None, proposed: LoaderTrial | None = None
) -> tuple[Advice, ...]:
    """Return advice that makes batches arrive earlier on every rank, the most direct first.

    Args:
        setup: the run's setup.
        stage: the kind of the pipeline's longest stage, if measured.
        proposed: a setting of the loader that keeps up with training, if one was tried.
    """
    if proposed is not None and proposed.workers != setup.loader_workers:
        return (as_tried(setup, proposed),)
    pieces = [*_by_stage(setup, stage), *_crowded(setup), *_ahead(setup), *_once(setup)]
    return tuple(dict.fromkeys(pieces)) or (
        Advice(
            "Make each batch cheaper",
            detail=": the pipeline already prefetches and works in parallel",
            note=_CHEAPER,
        ),
    )


def for_slower_compute(setup: Setup) -> Iterator[Advice]:
    """Return advice on compute that is slower than on synthetic data: loaders may take its cores."""
    workers = setup.loader_workers
    slower = "Not if input is slow: it would become slower."
    if setup.framework == "keras":
        setting = f"options.threading.private_threadpool_size = {_FEW_THREADS}"
        if not 0 < (setup.loader_threads or 0) <= _FEW_THREADS:
            yield Advice(
                "Limit the loader's threads",
                detail=": it may take CPU cores that compute needs",
                line=f"options = tf.data.Options(); {setting}; dataset = dataset.with_options(options)",
                unless=slower,
            )
    elif workers is None:
        yield Advice(
            "use fewer loader threads, or pin them",
            reason="The loader may take the cores that compute needs:",
        )
    elif workers > 1:
        yield Advice(
            "Give the loader fewer workers",
            loader_line(setup, workers // 2),
            detail=f": its {workers} may take CPU cores that compute needs",
            unless=slower,
        )
    yield Advice("Otherwise look at throttling, and at what differs from the baseline")


def slow_first_steps(setup: Setup) -> Iterator[Advice]:
    """Return advice that keeps a loader's buffers and workers from starting again in every epoch."""
    if setup.framework == "torch" and setup.loader_workers and not setup.persistent_workers:
        yield Advice(
            "Keep the loader's workers alive between epochs",
            loader_line(setup, setup.loader_workers),
        )
    steps = setup.pipeline or ()
    repeats_first = "Repeat" in steps and "Shuffle" not in steps[: steps.index("Repeat")]
    if setup.framework == "keras" and not repeats_first:
        yield Advice(
            "Repeat the dataset before shuffling, and pass steps_per_epoch",
            "dataset = dataset.repeat().shuffle(10_000)",
            detail=": otherwise shuffle buffers and prefetch queues fill again in every epoch",
        )
    yield Advice("Make epochs longer, or check what the loader does at the start of one")


def _by_stage(setup: Setup, stage: str | None) -> Iterator[Advice]:
    """Return advice that shortens the longest stage of a pipeline; nothing if none was measured."""
    if setup.framework == "torch" and stage == "augment":
        workers = setup.loader_workers
        more = workers is None or _most_workers(setup) > workers
        yield Advice(
            "Do it on the accelerator, batch by batch"
            f"{', or give it more workers' if more else ''}",
            reason=_AUGMENTATION,
            unless="Not if the model computes on the loader's CPU cores.",
        )
    if setup.framework != "keras":
        return
    if stage == "read" and not setup.has("ParallelInterleave"):
        yield Advice(
            "Read several files at once",
            "dataset = files.interleave(tf.data.TFRecordDataset, num_parallel_calls=tf.data.AUTOTUNE, "
            "deterministic=False)",
            unless="Not if the order of samples must be the same in every run.",
        )
    if stage == "augment":
        yield Advice(
            "Move it into the model, onto the accelerator",
            reason=_AUGMENTATION,
            line='model = tf.keras.Sequential([tf.keras.layers.RandomFlip("horizontal"), model])',
            unless="Not if the model computes on the loader's CPU cores: then give the loader more of "
            "them.",
        )
    if stage in ("decode", "augment"):
        yield from _parallel_map(setup)
    kinds = [operation.removeprefix("Parallel") for operation in setup.pipeline or ()]
    if stage == "batch" and not ("Map" in kinds and "Batch" in kinds[: kinds.index("Map")]):
        yield Advice(
            "Batch before mapping, with a function that takes whole batches",
            "dataset = dataset.batch(32, drop_remainder=True).map(decode, "
            "num_parallel_calls=tf.data.AUTOTUNE)",
            unless="Not if samples have different shapes before the function.",
        )


def _parallel_map(setup: Setup) -> Iterator[Advice]:
    if setup.has("Map") or not setup.has("ParallelMap"):
        yield Advice(
            "Decode and augment on several CPU cores",
            "dataset = dataset.map(decode, num_parallel_calls=tf.data.AUTOTUNE)",
            unless="Not if the function is Python in tf.py_function or tf.numpy_function: that runs on "
            "one core at a time.",
        )


def _crowded(setup: Setup) -> Iterator[Advice]:
    """Return advice if ranks leave no CPU cores for loading."""
    if setup.cpu_cores is None or not setup.no_spare_core or setup.gpu:
        return
    single = setup.ranks_on_machine == 1
    fewer = "Use hosts" if single else "Use fewer ranks on a host, hosts"
    yield Advice(
        "Give the loaders CPU cores",
        detail=f": {counted(setup.ranks_on_machine, 'rank')} on a host {'has' if single else 'have'} "
        f"{counted(setup.cpu_cores, 'CPU core')} for training and loading",
        note=f"{fewer} with more CPU cores, or decode the data beforehand.",
    )


def _ahead(setup: Setup) -> Iterator[Advice]:
    """Return advice on loading during training."""
    if setup.pool is not None:
        yield from _for_pool(setup, setup.pool)
    elif setup.framework == "keras":
        # Operations that only pass batches on may follow it.
        steps = [
            operation
            for operation in setup.pipeline or ()
            if operation not in ("Options", "Repeat", "Take")
        ]
        if steps[-1:] != ["Prefetch"]:
            yield Advice(
                "Prefetch, as the last step of the pipeline",
                "dataset = dataset.prefetch(tf.data.AUTOTUNE)",
                unless="" if steps else "It changes nothing if the pipeline prefetches already.",
            )
        if not setup.no_spare_core:
            yield from _parallel_map(setup)
    elif setup.framework == "torch":
        yield _workers(setup)
    else:
        yield Advice("Prepare batches ahead of training, on several CPU cores")


def _workers(setup: Setup) -> Advice:
    workers, spare = setup.loader_workers, setup.spare_cores
    if workers is None and setup.has_unknown_workers:
        return Advice(
            "Give the DataLoader more workers than it has, or make each batch cheaper",
            detail=": decode beforehand, augment on the accelerator, read larger files",
            unless=_SAME_BYTES,
        )
    if workers is None:
        return Advice(
            "Load batches in separate processes, ahead of training",
            loader_line(setup, max(1, min(spare or 1, _MOST_WORKERS))),
            detail=": this run's loader is not a DataLoader",
        )
    too_many = setup.cpu_cores is not None and workers * setup.ranks_on_machine > setup.cpu_cores
    if too_many and workers > 1:
        return Advice(
            "Use fewer workers, or more CPU cores",
            loader_line(setup, max(1, spare or 0)),
            detail=f": {workers} for each of {setup.ranks_on_machine} ranks on a host are more than its "
            f"{setup.cpu_cores} CPU cores",
        )
    more = _most_workers(setup)
    if more > workers:
        return Advice(
            "Give the DataLoader more workers",
            loader_line(setup, more),
            detail=f"; it has {workers or 'none'}",
            unless=_SAME_BYTES,
        )
    return Advice(
        "Make each batch cheaper",
        detail=f": there are as many workers ({workers}) as CPU cores for them"
        if workers
        else ": no CPU core is left for workers",
        note=_CHEAPER,
    )


def _most_workers(setup: Setup) -> int:
    """Return the number of workers that have a CPU core; if unknown, twice as many as now."""
    spare = setup.spare_cores
    return min(spare if spare is not None else 2 * max(setup.loader_workers or 0, 1), _MOST_WORKERS)


def _for_pool(setup: Setup, pool: Pool) -> Iterator[Advice]:
    """Return advice on the slow side of Petastorm's queue: the pool before it or the code after it."""
    make = "make_batch_reader" if pool.batched else "make_reader"
    spare = setup.spare_cores
    workers = max(1, min(spare if spare is not None else 2 * (pool.workers or 1), _MOST_WORKERS))
    processes = f'reader = {make}(url, reader_pool_type="process", workers_count={workers})'
    if pool.waiting is None or pool.capacity is None:
        yield _sampled_queue(pool, make)
        if pool.workers is not None and workers > pool.workers:
            yield Advice(
                f"Give Petastorm's pool more workers than its {pool.workers}",
                processes,
                unless=_SAME_BYTES,
            )
        return
    waited = (
        f"on average {pool.waiting:.2g} row groups waited in its queue, which holds {pool.capacity}"
    )
    if pool.waiting > _FULL * pool.capacity:
        yield _faster_batches(setup, pool, waited)
    elif pool.waiting > _EMPTY * pool.capacity:
        yield Advice(
            "Check the pool that reads and decodes, and the code that makes batches of its rows",
            detail=f": neither is clearly ahead, because {waited}",
        )
    else:
        # Only a thread pool shows its queue.
        yield Advice(
            "Read and decode in processes",
            processes,
            detail=f": {waited}, so Petastorm's pool is too slow, and its threads share one interpreter",
            unless="Not if it waits for a disk or a network, or only decompresses: threads are enough "
            "for that.",
        )


def _sampled_queue(pool: Pool, make: str) -> Advice:
    """Return advice to find out which side of Petastorm's queue is slow."""
    if pool.kind == "ThreadPool":
        return Advice(
            "Train for half a minute at least, so that Petastorm's queue shows which side is slow"
        )
    return Advice(
        "Only a thread pool shows it",
        f'reader = {make}(url, reader_pool_type="thread")',
        reason="Find out which side of Petastorm's queue is slow: the pool that reads and decodes, or "
        "the code that makes batches of its rows.",
        detail="; half a minute is enough",
        unless="Only for that run: a process pool may be faster.",
    )


def _faster_batches(setup: Setup, pool: Pool, waited: str) -> Advice:
    action = "Make batches of Petastorm's rows faster"
    detail = f": {waited}, so its pool is ahead, and the code after it is slow"
    if pool.loader == "BatchedDataLoader":
        return Advice(
            "Pass a transform_fn of the loader to the reader, as a TransformSpec",
            reason=f"{action}{detail}.",
        )
    return Advice(
        action,
        detail=detail,
        line=f"loader = BatchedDataLoader(reader, batch_size={setup.batch_size or 32})",
        unless="Not if a transform_fn of the loader takes the time: pass it to the reader, as a "
        "TransformSpec.",
    )


def for_operation(setup: Setup, operation: str) -> Advice | None:
    """Return advice on the longest operation of a tf.data pipeline, by its name."""
    of_stage = next((of for name, of in _OPERATIONS if name in operation), None)
    return next(_by_stage(setup, of_stage), None)


def as_tried(setup: Setup, proposed: LoaderTrial) -> Advice:
    """Return the advice to use a setting that was tried."""
    return Advice(
        f"Give the loader {counted(proposed.workers, 'worker')} that prefetch "
        f"{counted(proposed.prefetch, 'batch', 'batches')} each",
        loader_line(setup, proposed.workers, proposed.prefetch),
        detail=": the smallest setting that was tried and keeps up, with "
        f"{proposed.ms:.3g} ms per batch alone",
        unless="Not if training takes the loader's cores: then compare the steps of two runs.",
    )


def loader_line(setup: Setup, workers: int, prefetch: int | None = None) -> str:
    """Return the line that makes a DataLoader with these workers."""
    depth = "" if prefetch is None else f", prefetch_factor={prefetch}"
    size = f", batch_size={setup.batch_size}" if setup.batch_size else ""
    # Pinned memory is copied to an accelerator while it computes.
    pinned = ", pin_memory=True" if setup.gpu else ""
    return f"DataLoader(data{size}, num_workers={workers}{depth}, persistent_workers=True{pinned})"


def _once(setup: Setup) -> Iterator[Advice]:
    """Return advice against decoding the same samples on several ranks or in several epochs."""
    if setup.framework != "keras":
        return
    if setup.library == "horovod" and not setup.has("Shard"):
        yield Advice(
            "Shard before shuffling and decoding, so that no rank decodes another rank's data",
            "dataset = dataset.shard(hvd.size(), hvd.rank())",
            unless="Not if every rank has its own files already.",
        )
    if setup.epochs != 1 and not setup.has("Cache"):
        yield Advice(
            "Cache decoded samples that are the same in every epoch, before shuffling",
            "dataset = dataset.cache()",
            unless="Not after random augmentation. Pass a file name if a rank's shard is larger than "
            "memory.",
        )


def for_copies(facts: Mapping[str, Any]) -> Advice:
    """Return advice on copies of batches to the device, by the facts of a rank's log."""
    loader = facts.get("loader")
    return _ON_A_STREAM if isinstance(loader, dict) and loader.get("pinned") else _PINNED


_PINNED = Advice(
    "Let the loader put batches into pinned memory, from which the device copies by itself",
    "DataLoader(data, pin_memory=True)  # and batch.to(device, non_blocking=True)",
)
_ON_A_STREAM = Advice(
    "Copy the next batch on a stream of its own while the model computes",
    detail=": the computing stream waits for it before it uses it",
)
