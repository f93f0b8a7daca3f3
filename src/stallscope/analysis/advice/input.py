"""Advise on slow input pipelines, on all ranks or on the named ranks."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ..settings.setup import Pool, Setup
from .piece import Advice, undone

# CPU cores besides the one that trains; with fewer, parallel maps have no core to run on.
_FEWEST_SPARE = 1
# In most jobs, more workers than this wait for the same disk.
_MOST_WORKERS = 16
# Enough threads for most loaders, few enough to leave CPU cores to compute.
_FEW_THREADS = 2
# Training does not wait for a queue that is fuller than this, and does for an emptier one.
_FULL, _EMPTY = 0.5, 0.1
_SAME_BYTES = "Not if it waits for a disk or a network: more workers wait for the same bytes."


@dataclass(frozen=True)
class InputTimes:
    """Milliseconds per batch of an input pipeline's stages when they run alone; None if not measured."""

    read: float | None = None
    decode: float | None = None
    augment: float | None = None
    batch: float | None = None

    @property
    def longest(self) -> str | None:
        """Return the longest stage; None if none was measured."""
        known = {field.name: getattr(self, field.name) for field in fields(self)}
        measured = {name: ms for name, ms in known.items() if ms is not None}
        return max(measured, key=measured.__getitem__, default=None)


def for_late_input(setup: Setup, times: InputTimes | None = None) -> tuple[Advice, ...]:
    """Return advice that makes batches arrive earlier on every rank, the most direct first.

    Args:
        setup: the run's setup.
        times: the times of the pipeline's stages, if measured.
    """
    stage = None if times is None else times.longest
    pieces = [*_by_stage(setup, stage), *_crowded(setup), *_ahead(setup)]
    pieces += [*_shard(setup), *_cache(setup)]
    return undone(*dict.fromkeys(pieces)) or (_CHEAPER_BATCHES,)


def for_slower_compute(setup: Setup) -> tuple[Advice, ...]:
    """Return advice on compute that is slower than on synthetic data: loaders may take its cores."""
    rest = Advice("Otherwise look at throttling, and at what differs from the baseline")
    if setup.framework == "keras":
        own = f"options.threading.private_threadpool_size = {_FEW_THREADS}"
        few = Advice(
            "Limit the loader's threads: it may take CPU cores that compute needs",
            f"options = tf.data.Options(); {own}; dataset = dataset.with_options(options)",
            unless="Not if input is slow: it would become slower.",
            done=0 < (setup.loader_threads or 0) <= _FEW_THREADS,
        )
        return undone(few, rest)
    workers = setup.loader_workers
    if workers is None:
        few = Advice(
            "The loader may take the cores that compute needs: use fewer loader threads, or pin them"
        )
        return few, rest
    few = Advice(
        f"Give the loader fewer workers: its {workers} may take CPU cores that compute needs",
        _loader(setup, max(1, workers // 2)),
        unless="Not if input is slow: it would become slower.",
        done=workers <= 1,
    )
    return undone(few, rest)


def slow_first_steps(setup: Setup) -> tuple[Advice, ...]:
    """Return advice that keeps a loader's buffers and workers from starting again in every epoch."""
    if setup.framework == "torch":
        return undone(
            Advice(
                "Keep the loader's workers alive between epochs",
                _loader(setup, setup.loader_workers or 1),
                done=setup.persistent_workers is True or not setup.loader_workers,
            ),
            _LONGER_EPOCHS,
        )
    if setup.framework != "keras":
        return (_LONGER_EPOCHS,)
    return undone(
        Advice(
            "Repeat the dataset before shuffling, and pass steps_per_epoch: otherwise shuffle buffers "
            "and prefetch queues fill again in every epoch",
            "dataset = dataset.repeat().shuffle(10_000)",
            done=_repeats_before_shuffling(setup),
        ),
        _LONGER_EPOCHS,
    )


_LONGER_EPOCHS = Advice("Make epochs longer, or check what the loader does at the start of one")


def _repeats_before_shuffling(setup: Setup) -> bool:
    steps = setup.pipeline or ()
    return "Repeat" in steps and "Shuffle" not in steps[: steps.index("Repeat")]


_NOT_IN_PYTHON = (
    "Not if the function is Python in tf.py_function or tf.numpy_function: that runs on one core at a "
    "time."
)


_CHEAPER_BATCHES = Advice(
    "Make each batch cheaper: the pipeline already prefetches and works in parallel. Decode beforehand, "
    "augment on the accelerator, read larger files"
)


def _by_stage(setup: Setup, stage: str | None) -> tuple[Advice, ...]:
    """Return advice that shortens the longest stage of a pipeline; nothing if none was measured."""
    if setup.framework == "torch" and stage == "augment":
        return (_augment_elsewhere(setup),)
    if setup.framework != "keras":
        return ()
    return {
        "read": (_read_at_once(setup),),
        "decode": (_parallel_map(setup),),
        "augment": (_ON_THE_DEVICE, _parallel_map(setup)),
        "batch": (_batch_first(setup),),
    }.get(str(stage), ())


def _parallel_map(setup: Setup) -> Advice:
    return Advice(
        "Decode and augment on several CPU cores",
        "dataset = dataset.map(decode, num_parallel_calls=tf.data.AUTOTUNE)",
        unless=_NOT_IN_PYTHON,
        done=setup.has("ParallelMap") and not setup.has("Map"),
    )


def _prefetch(setup: Setup) -> Advice:
    # Operations that only pass batches on may follow it.
    steps = [one for one in setup.pipeline or () if one not in ("Options", "Repeat", "Take")]
    return Advice(
        "Prefetch, as the last step of the pipeline",
        "dataset = dataset.prefetch(tf.data.AUTOTUNE)",
        unless="It changes nothing if the pipeline prefetches already." if not steps else "",
        done=steps[-1:] == ["Prefetch"],
    )


def _read_at_once(setup: Setup) -> Advice:
    return Advice(
        "Read several files at once",
        "dataset = files.interleave(tf.data.TFRecordDataset, num_parallel_calls=tf.data.AUTOTUNE, "
        "deterministic=False)",
        unless="Not if the order of samples must be the same in every run.",
        done=setup.has("ParallelInterleave"),
    )


def _batch_first(setup: Setup) -> Advice:
    kinds = [one.removeprefix("Parallel") for one in setup.pipeline or ()]
    return Advice(
        "Batch before mapping, with a function that takes whole batches",
        "dataset = dataset.batch(32, drop_remainder=True).map(decode, "
        "num_parallel_calls=tf.data.AUTOTUNE)",
        unless="Not if samples have different shapes before the function.",
        done="Map" in kinds and "Batch" in kinds[: kinds.index("Map")],
    )


_ON_THE_DEVICE = Advice(
    "Augmentation takes longest, and it cannot be done beforehand because every epoch draws "
    "new random values. Move it into the model, onto the accelerator",
    'model = tf.keras.Sequential([tf.keras.layers.RandomFlip("horizontal"), model])',
    unless="Not if the model computes on the loader's CPU cores: then give the loader more of them.",
)


def _augment_elsewhere(setup: Setup) -> Advice:
    workers = setup.loader_workers
    more = workers is None or _most_workers(setup) > workers
    return Advice(
        "Augmentation takes longest, and it cannot be done beforehand because every epoch "
        f"draws new random values. Do it on the accelerator, batch by batch"
        f"{', or give it more workers' if more else ''}",
        unless="Not if the model computes on the loader's CPU cores.",
    )


def _crowded(setup: Setup) -> tuple[Advice, ...]:
    """Return advice if ranks leave no CPU cores for loading."""
    spare = setup.spare_cores
    if setup.cpu_cores is None or spare is None or spare >= _FEWEST_SPARE or setup.gpu:
        return ()
    single = setup.ranks_on_machine == 1
    ranks = f"{setup.ranks_on_machine} rank{'' if single else 's'}"
    fewer = "Use hosts" if single else "Use fewer ranks on a host, hosts"
    have = "has" if single else "have"
    count = f"{setup.cpu_cores} CPU core{'' if setup.cpu_cores == 1 else 's'}"
    return (
        Advice(
            f"Give the loaders CPU cores: {ranks} on a host {have} {count} for training and loading. "
            f"{fewer} with more CPU cores, or decode the data beforehand",
        ),
    )


def _ahead(setup: Setup) -> tuple[Advice, ...]:
    """Return advice on loading during training."""
    spare = setup.spare_cores
    no_spare_core = spare is not None and spare < _FEWEST_SPARE
    if setup.pool is not None:
        return _for_pool(setup, setup.pool)
    if setup.framework == "keras":
        return (_prefetch(setup), *([] if no_spare_core else [_parallel_map(setup)]))
    if setup.framework == "torch":
        return _workers(setup)
    return (Advice("Prepare batches ahead of training, on several CPU cores"),)


def _workers(setup: Setup) -> tuple[Advice, ...]:
    workers, spare = setup.loader_workers, setup.spare_cores
    if workers is None:
        return (
            Advice(
                "Load batches in separate processes, ahead of training: this run's loader is not a "
                "DataLoader",
                _loader(setup, max(1, min(spare or 1, _MOST_WORKERS))),
            ),
        )
    too_many = setup.cpu_cores is not None and workers * setup.ranks_on_machine > setup.cpu_cores
    if too_many and workers > 1:
        return (
            Advice(
                f"Use fewer workers, or more CPU cores: {workers} for each of {setup.ranks_on_machine} "
                f"ranks on a host are more than its {setup.cpu_cores} CPU cores",
                _loader(setup, max(1, spare or 0)),
            ),
        )
    more = _most_workers(setup)
    if more > workers:
        has = "none" if workers == 0 else str(workers)
        return (
            Advice(
                f"Give the DataLoader more workers; it has {has}",
                _loader(setup, more),
                unless=_SAME_BYTES,
            ),
        )
    return (
        Advice(
            f"Make each batch cheaper: there are as many workers ({workers}) as CPU cores for them. "
            "Decode beforehand, augment on the accelerator, read larger files"
        ),
    )


def _most_workers(setup: Setup) -> int:
    """Return the number of workers that have a CPU core; if unknown, twice as many as now."""
    spare = setup.spare_cores
    return min(spare if spare is not None else 2 * max(setup.loader_workers or 0, 1), _MOST_WORKERS)


def _for_pool(setup: Setup, pool: Pool) -> tuple[Advice, ...]:
    """Return advice on the slow side of Petastorm's queue: the pool before it or the code after it."""
    make = "make_batch_reader" if pool.batched else "make_reader"
    spare = setup.spare_cores
    workers = max(1, min(spare if spare is not None else 2 * (pool.workers or 1), _MOST_WORKERS))
    processes = f'reader = {make}(url, reader_pool_type="process", workers_count={workers})'
    if pool.waiting is None or pool.room is None:
        look = Advice(
            "Find out which side of Petastorm's queue is slow: the pool that reads and decodes, or the "
            "code that makes batches of its rows. Only a thread pool shows it; half a minute is enough",
            f'reader = {make}(url, reader_pool_type="thread")',
            unless="Only for that run: a process pool may be faster.",
            done=pool.kind == _THREADS,
        )
        longer = Advice(
            "Train for half a minute at least, so that Petastorm's queue shows which side is slow",
            done=pool.kind != _THREADS,
        )
        more = Advice(
            f"Give Petastorm's pool more workers than its {pool.workers}",
            processes,
            unless=_SAME_BYTES,
            done=pool.workers is None or workers <= pool.workers,
        )
        return look, longer, more
    waited = (
        f"on average {pool.waiting:.2g} row groups waited in its queue, which holds {pool.room}"
    )
    if pool.waiting > _FULL * pool.room:
        what = (
            f"Make batches of Petastorm's rows faster: {waited}, so its pool is ahead, and the "
            "code after it is slow"
        )
        batches = Advice(
            what,
            f"loader = BatchedDataLoader(reader, batch_size={setup.batch_size or 32})",
            unless="Not if a transform_fn of the loader takes the time: pass it to the reader, as a "
            "TransformSpec.",
            done=pool.loader == _IN_BATCHES,
        )
        spec = Advice(
            f"{what}. Pass a transform_fn of the loader to the reader, as a TransformSpec",
            done=pool.loader != _IN_BATCHES,
        )
        return batches, spec
    if pool.waiting > _EMPTY * pool.room:
        return (
            Advice(
                "Check the pool that reads and decodes, and the code that makes batches of its rows: "
                f"neither is clearly ahead, because {waited}"
            ),
        )
    # Only a thread pool shows its queue.
    return (
        Advice(
            f"Read and decode in processes: {waited}, so Petastorm's pool is too slow, and its "
            "threads share one interpreter",
            processes,
            unless="Not if it waits for a disk or a network, or only decompresses: threads are enough "
            "for that.",
        ),
    )


_THREADS, _IN_BATCHES = "ThreadPool", "BatchedDataLoader"


def _loader(setup: Setup, workers: int) -> str:
    size = f", batch_size={setup.batch_size}" if setup.batch_size else ""
    # Pinned memory is copied to an accelerator while it computes.
    pinned = ", pin_memory=True" if setup.gpu else ""
    return f"DataLoader(data{size}, num_workers={workers}, persistent_workers=True{pinned})"


def _shard(setup: Setup) -> tuple[Advice, ...]:
    if setup.library != "horovod" or setup.framework != "keras":
        return ()
    return (
        Advice(
            "Shard before shuffling and decoding, so that no rank decodes another rank's data",
            "dataset = dataset.shard(hvd.size(), hvd.rank())",
            unless="Not if every rank has its own files already.",
            done=setup.has("Shard"),
        ),
    )


def _cache(setup: Setup) -> tuple[Advice, ...]:
    if setup.framework != "keras" or setup.epochs == 1:
        return ()
    return (
        Advice(
            "Cache decoded samples that are the same in every epoch, before shuffling",
            "dataset = dataset.cache()",
            unless="Not after random augmentation. Pass a file name if a rank's shard is larger than "
            "memory.",
            done=setup.has("Cache"),
        ),
    )
