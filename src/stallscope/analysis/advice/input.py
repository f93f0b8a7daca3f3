"""Input pipelines that come late: on all ranks, or on the ranks that are named."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ..setup import Pool, Setup
from .piece import Advice

# Processors beside the one that trains; with fewer, parallel maps have nothing to run on.
_FEWEST_SPARE = 1
# More workers than this wait for the same disk in most jobs.
_MOST_WORKERS = 16
# A queue that is fuller than this is one that nobody waits for, and one that is emptier is waited for.
_FULL, _EMPTY = 0.5, 0.1
_SAME_BYTES = "Not where it waits for a disk or a network: more workers wait for the same bytes."


@dataclass(frozen=True)
class InputTimes:
    """Milliseconds per batch that the stages of an input pipeline take when they run alone.

    None is what was not measured.
    """

    read: float | None = None
    decode: float | None = None
    augment: float | None = None
    batch: float | None = None

    @property
    def longest(self) -> str | None:
        """The stage that takes most; None where none was measured."""
        known = {field.name: getattr(self, field.name) for field in fields(self)}
        measured = {name: ms for name, ms in known.items() if ms is not None}
        return max(measured, key=measured.__getitem__, default=None)


def for_late_input(setup: Setup, times: InputTimes | None = None) -> tuple[Advice, ...]:
    """What makes batches come earlier on every rank, the most direct first.

    Args:
        setup: the run's.
        times: what the stages of its pipeline take, where that was measured.
    """
    first = _BY_STAGE.get((setup.framework, times.longest)) if times is not None else None
    pieces = [*([] if first is None else first), *_crowded(setup), *_ahead(setup)]
    pieces += [*_shard(setup), *_cache(setup)]
    return tuple(dict.fromkeys(pieces))


def for_slower_compute(setup: Setup) -> tuple[Advice, ...]:
    """What to look at where compute takes longer than on synthetic data: loaders take its processors."""
    rest = Advice("Otherwise look at throttling, and at what differs from the baseline")
    if setup.framework == "keras":
        line = "options = tf.data.Options(); options.threading.private_threadpool_size = 2; "
        return (
            Advice(
                "Give the loader few threads of its own: it may take the processors that compute needs",
                f"{line}dataset = dataset.with_options(options)",
                unless="Not where input is what comes late: it gets slower.",
            ),
            rest,
        )
    workers = setup.loader_workers
    if workers is not None and workers > 1:
        return (
            Advice(
                f"Give the loader fewer workers: its {workers} may take the processors that compute "
                "needs",
                _loader(setup, max(1, workers // 2)),
                unless="Not where input is what comes late: it gets slower.",
            ),
            rest,
        )
    return (
        Advice(
            "The loader may take the cores that compute needs: fewer loader threads, or pinned ones"
        ),
        rest,
    )


_NOT_IN_PYTHON = (
    "Not where the function is Python behind tf.py_function or tf.numpy_function: that runs on one "
    "processor at a time."
)
_PARALLEL_MAP = Advice(
    "Decode and augment on several processors",
    "dataset = dataset.map(decode, num_parallel_calls=tf.data.AUTOTUNE)",
    unless=_NOT_IN_PYTHON,
)
_PREFETCH = Advice(
    "Work ahead of training, as the last step of the pipeline",
    "dataset = dataset.prefetch(tf.data.AUTOTUNE)",
    unless="It changes nothing where that is there already.",
)
_ON_THE_DEVICE = Advice(
    "It is the augmentation, which every epoch draws anew and nobody can do beforehand: move it into "
    "the model, onto the accelerator",
    'model = tf.keras.Sequential([tf.keras.layers.RandomFlip("horizontal"), model])',
    unless="Not where the model computes on the same processors as the loader: then give it more of "
    "them.",
)
_BY_STAGE: dict[tuple[str | None, str | None], tuple[Advice, ...]] = {
    ("keras", "read"): (
        Advice(
            "Read several files at once",
            "dataset = files.interleave(tf.data.TFRecordDataset, num_parallel_calls=tf.data.AUTOTUNE, "
            "deterministic=False)",
            unless="Not where the order of samples must be the same in every run.",
        ),
    ),
    ("keras", "decode"): (_PARALLEL_MAP,),
    ("keras", "augment"): (_ON_THE_DEVICE, _PARALLEL_MAP),
    ("keras", "batch"): (
        Advice(
            "Batch before mapping, with a function that takes whole batches",
            "dataset = dataset.batch(32, drop_remainder=True).map(decode, "
            "num_parallel_calls=tf.data.AUTOTUNE)",
            unless="Not where samples have different shapes before the function.",
        ),
    ),
    ("torch", "augment"): (
        Advice(
            "It is the augmentation, which every epoch draws anew and nobody can do beforehand: do it "
            "on the accelerator, batch by batch, or give it more workers",
            unless="Not on the accelerator where the model computes on the loader's processors.",
        ),
    ),
}


def _crowded(setup: Setup) -> tuple[Advice, ...]:
    """Where ranks leave no processors for loading."""
    spare = setup.spare_processors
    if setup.processors is None or spare is None or spare >= _FEWEST_SPARE or setup.gpu:
        return ()
    ranks = f"{setup.ranks_there} rank{'' if setup.ranks_there == 1 else 's'}"
    have = "has" if setup.ranks_there == 1 else "have"
    count = f"{setup.processors} processor{'' if setup.processors == 1 else 's'}"
    return (
        Advice(
            f"Give loading processors of its own: {ranks} of a host {have} {count} to train and to load "
            "with. Fewer ranks on a host, hosts with more processors, or data decoded beforehand",
        ),
    )


def _ahead(setup: Setup) -> tuple[Advice, ...]:
    """Loading beside training."""
    spare = setup.spare_processors
    nothing_to_run_on = spare is not None and spare < _FEWEST_SPARE
    if setup.pool is not None:
        return _of_pool(setup, setup.pool)
    if setup.framework == "keras":
        return (_PREFETCH,) if nothing_to_run_on else (_PREFETCH, _PARALLEL_MAP)
    if setup.framework == "torch":
        return _workers(setup)
    return (
        Advice("Prepare batches ahead of training and on several processors, whatever loads them"),
    )


def _workers(setup: Setup) -> tuple[Advice, ...]:
    workers, spare = setup.loader_workers, setup.spare_processors
    if workers is None:
        return (
            Advice(
                "Load in processes of its own, ahead of training: this run's loader is no DataLoader",
                _loader(setup, max(1, min(spare or 1, _MOST_WORKERS))),
            ),
        )
    if setup.processors is not None and workers * setup.ranks_there > setup.processors:
        return (
            Advice(
                f"Have fewer workers, or more processors: {workers} for each of {setup.ranks_there} "
                f"ranks on a host are more than its {setup.processors} processors",
                _loader(setup, max(1, spare or 0)),
            ),
        )
    more = min(spare if spare is not None else 2 * max(workers, 1), _MOST_WORKERS)
    if more > workers:
        has = "none" if workers == 0 else str(workers)
        return (
            Advice(
                f"Give the DataLoader more workers; this run's has {has}",
                _loader(setup, more),
                unless=_SAME_BYTES,
            ),
        )
    return (
        Advice(
            f"Make a batch cost less: there are as many workers ({workers}) as processors for them. "
            "Decode beforehand, augment on the accelerator, read larger files"
        ),
    )


def _of_pool(setup: Setup, pool: Pool) -> tuple[Advice, ...]:
    """Which side of Petastorm's queue is slow: few row groups wait in front of a slow training only."""
    make = "make_batch_reader" if pool.batched else "make_reader"
    spare = setup.spare_processors
    workers = max(1, min(spare if spare is not None else 2 * (pool.workers or 1), _MOST_WORKERS))
    processes = f'reader = {make}(url, reader_pool_type="process", workers_count={workers})'
    if pool.waiting is None or pool.room is None:
        look = Advice(
            "Look which side of Petastorm's queue is slow, the pool that reads and decodes or what "
            "makes batches of its rows: only a thread pool shows it, in a run of half a minute",
            f'reader = {make}(url, reader_pool_type="thread")',
            unless="For that one run: a process pool may be faster.",
        )
        if pool.workers is None or workers <= pool.workers:
            return (look,)
        what = f"Give Petastorm's pool more workers than its {pool.workers}"
        return (look, Advice(what, processes, unless=_SAME_BYTES))
    waited = (
        f"of the {pool.room} row groups that its queue holds {pool.waiting:.2g} waited on average"
    )
    if pool.waiting > _FULL * pool.room:
        return (
            Advice(
                f"Make batches of Petastorm's rows faster: {waited}, so that its pool is ahead, and "
                "what comes behind is slow",
                f"loader = BatchedDataLoader(reader, batch_size={setup.batch_size or 32})",
                unless="Not where it is a transform_fn of the loader that takes the time: give that to "
                "the reader, as a TransformSpec.",
            ),
        )
    if pool.waiting > _EMPTY * pool.room:
        return (
            Advice(
                f"Look at both sides of Petastorm's queue, neither of which is clearly ahead: {waited}. "
                "The pool that reads and decodes, and what makes batches of its rows"
            ),
        )
    # It is a thread pool that shows its queue.
    return (
        Advice(
            f"Read and decode in processes: {waited}, so that Petastorm's pool is behind, and its "
            "threads share one interpreter",
            processes,
            unless="Not where it waits for a disk or a network, or only decompresses: threads do that "
            "as well.",
        ),
    )


def _loader(setup: Setup, workers: int) -> str:
    size = f", batch_size={setup.batch_size}" if setup.batch_size else ""
    # Pages that are locked are copied to an accelerator beside its work.
    pinned = ", pin_memory=True" if setup.gpu else ""
    return f"DataLoader(data{size}, num_workers={workers}, persistent_workers=True{pinned})"


def _shard(setup: Setup) -> tuple[Advice, ...]:
    if setup.library != "horovod" or setup.framework != "keras":
        return ()
    return (
        Advice(
            "Shard in front of shuffling and decoding, so that no rank decodes what others train on",
            "dataset = dataset.shard(hvd.size(), hvd.rank())",
            unless="Not where every rank has files of its own already.",
        ),
    )


def _cache(setup: Setup) -> tuple[Advice, ...]:
    if setup.framework != "keras" or setup.epochs == 1:
        return ()
    return (
        Advice(
            "Keep what is decoded alike in every epoch, in front of shuffling",
            "dataset = dataset.cache()",
            unless="Not behind random augmentation, and with a file's name where a rank's shard is "
            "larger than memory.",
        ),
    )
