"""How a run was set up, as far as it recorded that: what advice depends on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from stallscope.run import Log, Run

Framework = Literal["keras", "torch"]
Library = Literal["horovod", "ddp"]

#: Horovod's callback that averages metrics over the ranks.
AVERAGES = "horovod.MetricAverageCallback"
_DISTRIBUTED = "DistributedSampler"
_FRAMEWORKS: Mapping[str, Framework] = {"tensorflow": "keras", "pytorch": "torch"}
#: How devices that are no CPUs are recorded.
GPUS = ("GPU", "CUDA")


@dataclass(frozen=True)
class Pool:
    """Petastorm's pool of readers, and how full its queue was. None is what was not recorded."""

    workers: int | None
    #: Row groups that the queue holds, and how many waited in it on average.
    room: int | None
    waiting: float | None
    #: Whether it is one of ``make_batch_reader``; otherwise one of ``make_reader``.
    batched: bool
    #: Classes of the pool and of the loader that makes batches of its rows.
    kind: str | None = None
    loader: str | None = None

    @classmethod
    def of(cls, fact: Any) -> Pool | None:
        """Of a queue that was not looked at often enough, it is not known how full it was."""
        if not isinstance(fact, dict):
            return None
        room, waiting = number(fact.get("room")), fact.get("waiting")
        often = (number(fact.get("looks")) or 0) >= _FEWEST_LOOKS
        if not often or not room or not isinstance(waiting, (int, float)):
            room = waiting = None
        batched = fact.get("batched") is True
        workers = number(fact.get("workers"))
        kind, loader = text(fact.get("pool")), text(fact.get("loader"))
        return cls(workers, room, waiting, batched, kind, loader)


# One look per flush, once a second.
_FEWEST_LOOKS = 10


@dataclass(frozen=True)
class Setup:
    """Facts of a run's last world. None is what was not recorded."""

    framework: Framework | None
    #: What reduces the gradients of several ranks.
    library: Library | None
    ranks: int
    #: Ranks by the name of their host.
    hosts: Mapping[str, int]
    #: Whether any rank computes on an accelerator.
    gpu: bool | None
    #: Of the machine that has fewest CPU cores for each of its ranks: both numbers.
    processors: int | None
    ranks_there: int
    batch_size: int | None
    loader_workers: int | None
    #: The number of the last epoch.
    epochs: int | None
    passes: int | None
    steps_per_execution: int | None
    parameters: int | None
    gradient_tensors: int | None
    gradient_bytes: int | None
    #: Settings of the environment, of the lowest rank.
    settings: Mapping[str, str]
    #: What ranks can reduce with: nccl, ccl, mpi, gloo.
    reduces_with: tuple[str, ...] | None = None
    #: Petastorm's pool, of the lowest rank that has one.
    pool: Pool | None = None
    #: Whether the DataLoader keeps its workers from epoch to epoch.
    persistent_workers: bool | None = None
    #: Operations of the tf.data pipeline, from its source on.
    pipeline: tuple[str, ...] | None = None
    #: Threads that the tf.data pipeline has of its own; 0 where it shares TensorFlow's.
    loader_threads: int | None = None
    #: Types that the model's layers compute in.
    compute_dtypes: tuple[str, ...] | None = None
    #: What makes gradients smaller before they are reduced; ``none`` where nothing does.
    compression: str | None = None
    #: The size of DistributedDataParallel's buckets.
    bucket_bytes: int | None = None
    #: Callbacks that every rank has, and whether metrics are averaged before any of them goes by one.
    callbacks: frozenset[str] = frozenset()
    averages_first: bool = False
    #: Whether a DistributedSampler shares the samples out, and whether ``set_epoch`` reaches it.
    distributed_sampler: bool = False
    set_epoch: bool = False

    @classmethod
    def of(cls, run: Run) -> Setup:
        logs = last_logs(run)
        processors, ranks_there = _tightest(logs)
        devices = run.fact("devices")
        settings, transports = run.fact("settings"), run.fact("reduces_with")
        framework = _FRAMEWORKS.get(str(run.fact("framework")))
        drawn = [one.get("drawn") for one in _samplers(run)]
        persistent = run.fact("persistent_workers")
        return cls(
            framework=framework,
            library=_library(run, framework),
            ranks=run.size,
            hosts=Counter(log.host for log in logs),
            gpu=any(str(one) in GPUS for one in devices) if isinstance(devices, list) else None,
            processors=processors,
            ranks_there=ranks_there,
            batch_size=number(run.fact("batch_size")),
            loader_workers=number(run.fact("loader_workers")),
            epochs=number(run.fact("epochs")),
            passes=_passes(run),
            steps_per_execution=number(run.fact("steps_per_execution")),
            parameters=number(run.fact("parameters")),
            gradient_tensors=number(run.fact("gradient_tensors")),
            gradient_bytes=number(run.fact("gradient_bytes")),
            settings=settings if isinstance(settings, dict) else {},
            reduces_with=tuple(map(str, transports)) if isinstance(transports, list) else None,
            pool=Pool.of(run.fact("petastorm")),
            persistent_workers=persistent if isinstance(persistent, bool) else None,
            pipeline=_texts(run.fact("pipeline")),
            loader_threads=number(run.fact("loader_threads")),
            compute_dtypes=_texts(run.fact("compute_dtypes")),
            compression=text(run.fact("compression")),
            bucket_bytes=number(run.fact("bucket_bytes")),
            callbacks=_common_callbacks(logs),
            averages_first=bool(logs) and all(map(_averages_first, logs)),
            distributed_sampler=bool(drawn),
            set_epoch=len({str(one) for one in drawn if one is not None}) > 1,
        )

    @property
    def spare_processors(self) -> int | None:
        """Processors of a rank beside the one that its training keeps busy."""
        return None if self.processors is None else self.processors // self.ranks_there - 1

    def has(self, *operations: str) -> bool:
        """Return whether the tf.data pipeline is known to have one of these operations."""
        return not set(operations).isdisjoint(self.pipeline or ())

    @property
    def polls(self) -> bool:
        """Whether ranks that wait for an allreduce keep a CPU core busy.

        Horovod's PyTorch asks again and again whether an allreduce is done: in 2 s of waiting the
        thread uses 1.8 s of CPU time (Horovod 0.28, PyTorch 2.13). Its TensorFlow, and PyTorch's gloo,
        sleep.
        """
        return (self.framework, self.library) == ("torch", "horovod")

    @property
    def half_precision(self) -> bool:
        """Whether layers are known to compute in 16-bit floats."""
        return not {"float16", "bfloat16"}.isdisjoint(self.compute_dtypes or ())

    @property
    def compresses(self) -> bool:
        """Whether gradients are known to be reduced in fewer bytes than they have."""
        return self.compression not in (None, "none")


def processors_of(logs: Iterable[Log]) -> int | None:
    """Processors that these ranks of one machine have together; None where one does not tell."""
    allowed, counts = [], []
    for log in logs:
        own, count = number(log.facts.get("cpus_allowed")), number(log.facts.get("cpu_count"))
        if not own or not count:
            return None
        allowed.append(own)
        counts.append(count)
    # Ranks may be bound to CPU cores of their own: there are at most as many as all of theirs.
    return min(max(counts), sum(allowed)) if counts else None


def machines(logs: Iterable[Log]) -> dict[str, list[Log]]:
    """Logs by machine: containers on one have names of their own, and share its clock and CPU cores."""
    found: dict[str, list[Log]] = {}
    for log in logs:
        found.setdefault(log.clock_domain, []).append(log)
    return found


def number(value: Any) -> int | None:
    """A fact that is a count; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def text(value: Any) -> str | None:
    """Return a fact that is text; None for anything else."""
    return value if isinstance(value, str) else None


def callbacks_of(log: Log) -> list[Mapping[str, Any]]:
    """Return a rank's Keras callbacks in their order; none where it did not record them."""
    found = log.facts.get("callbacks")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def last_logs(run: Run) -> list[Log]:
    """The last log of every rank of the last generation."""
    last = max((log.generation for log in run.logs), default=0)
    own = sorted((log for log in run.logs if log.generation == last), key=lambda log: log.part)
    return list({log.rank: log for log in own}.values())


def _tightest(logs: Iterable[Log]) -> tuple[int | None, int]:
    known = [
        (processors, len(own))
        for own in machines(logs).values()
        if (processors := processors_of(own)) is not None
    ]
    return min(known, key=lambda pair: pair[0] / pair[1], default=(None, 0))


def _texts(value: Any) -> tuple[str, ...] | None:
    return tuple(map(str, value)) if isinstance(value, list) else None


def _passes(run: Run) -> int | None:
    """Return the batches whose gradients a step reduces together."""
    facts = (run.fact("backward_passes_per_step"), run.fact("accumulate_grad_batches"))
    known = [count for count in map(number, facts) if count is not None]
    return max(known, default=None)


def _samplers(run: Run) -> list[Mapping[str, Any]]:
    """Return what the epochs' DistributedSamplers recorded; empty if other samplers were used, too."""
    orders = run.fact("orders")
    found = orders if isinstance(orders, list) else []
    ours: list[Mapping[str, Any]] = [
        one for one in found if isinstance(one, dict) and one.get("sampler") == _DISTRIBUTED
    ]
    return ours if len(ours) == len(found) else []


def _common_callbacks(logs: Iterable[Log]) -> frozenset[str]:
    names = [{str(one.get("name")) for one in callbacks_of(log)} for log in logs]
    return frozenset(set.intersection(*names)) if names else frozenset()


def _averages_first(log: Log) -> bool:
    for one in callbacks_of(log):
        if one.get("name") == AVERAGES:
            return True
        if "monitor" in one:
            return False
    return False


def _library(run: Run, framework: Framework | None) -> Library | None:
    versions = run.fact("versions")
    if run.size < 2 or not isinstance(versions, dict):
        return None
    if versions.get("horovod"):
        return "horovod"
    return "ddp" if framework == "torch" else None
