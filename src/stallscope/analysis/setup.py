"""The recorded setup of a run, on which advice depends, and its use of CPU cores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from stallscope.run import Log, PipelinePart, Run

Framework = Literal["keras", "torch"]
Library = Literal["horovod", "ddp"]
#: Horovod's callback that averages metrics over the ranks.
AVERAGES = "horovod.MetricAverageCallback"
_DISTRIBUTED = "DistributedSampler"
# How ranks share a model; logs that do not say it are FSDP2's.
_FSDP2 = "fully_shard"
_FRAMEWORKS: Mapping[str, Framework] = {"tensorflow": "keras", "pytorch": "torch"}
# Facts that are counts.
_COUNTS = (
    *("batch_size", "loader_workers", "loader_threads", "epochs", "steps_per_execution"),
    *("parameters", "gradient_tensors", "gradient_bytes", "bucket_bytes"),
)
#: Recorded names of devices other than CPUs.
GPUS = ("GPU", "CUDA")

# Cores may be hyperthreads, and all share memory, so ranks are slower if every core is busy.
_TAKEN_ON_ANOTHER_CORE = 0.3


@dataclass(frozen=True)
class Pool:
    """Petastorm's pool of readers, and the average length of its queue; None if not recorded."""

    workers: int | None
    #: The number of row groups that the queue can hold, and the average number in it.
    capacity: int | None
    waiting: float | None
    #: Whether ``make_batch_reader`` made it, and not ``make_reader``.
    batched: bool
    #: Classes of the pool and of the loader that makes batches of its rows.
    kind: str | None = None
    loader: str | None = None

    @classmethod
    def of(cls, fact: Any) -> Pool | None:
        """Parse the recorded fact; the queue is unknown if it was sampled too rarely."""
        if not isinstance(fact, dict):
            return None
        capacity, waiting = number(fact.get("room")), fact.get("waiting")
        sampled = (number(fact.get("looks")) or 0) >= _FEWEST_SAMPLES
        if not sampled or not capacity or not isinstance(waiting, (int, float)):
            capacity = waiting = None
        return cls(
            number(fact.get("workers")),
            capacity,
            waiting,
            fact.get("batched") is True,
            text(fact.get("pool")),
            text(fact.get("loader")),
        )


# The recorder takes one sample per flush, once a second.
_FEWEST_SAMPLES = 10


@dataclass(frozen=True)
class Setup:
    """Facts of a run's last generation; None if not recorded."""

    framework: Framework | None
    #: The library that reduces gradients.
    library: Library | None
    ranks: int
    #: The number of ranks on each host.
    hosts: Mapping[str, int]
    #: Whether any rank computes on an accelerator.
    gpu: bool | None
    #: CPU cores and ranks of the machine with the fewest cores per rank.
    cpu_cores: int | None
    ranks_on_machine: int
    batch_size: int | None
    loader_workers: int | None
    #: The number of the last epoch.
    epochs: int | None
    passes: int | None
    steps_per_execution: int | None
    parameters: int | None
    gradient_tensors: int | None
    gradient_bytes: int | None
    #: Environment variables of the lowest rank.
    settings: Mapping[str, str]
    #: Available transports: nccl, ccl, mpi, gloo.
    reduces_with: tuple[str, ...] | None = None
    #: Petastorm's pool of the lowest rank that has one.
    pool: Pool | None = None
    #: Whether the loader is a DataLoader with workers of an unknown number.
    has_unknown_workers: bool = False
    #: Whether the DataLoader keeps its workers from epoch to epoch.
    persistent_workers: bool | None = None
    #: Operations of the tf.data pipeline, from its source on.
    pipeline: tuple[str, ...] | None = None
    #: Private threads of the tf.data pipeline; 0 if it shares TensorFlow's.
    loader_threads: int | None = None
    #: Types in which the model's layers compute.
    compute_dtypes: tuple[str, ...] | None = None
    #: Compression of gradients before they are reduced, or ``none``.
    compression: str | None = None
    #: The size of DistributedDataParallel's buckets.
    bucket_bytes: int | None = None
    #: Whether each rank holds a part of the parameters (FSDP2).
    sharded: bool = False
    #: Whether ranks share the model in another way (FSDP 1, ZeRO, tensor parallelism, pipelines).
    shares_model: bool = False
    #: Whether shards are gathered again for the backward pass.
    gathers_for_backward: bool = False
    #: Callbacks that every rank has, and whether metrics are averaged before any callback uses them.
    callbacks: frozenset[str] = frozenset()
    averages_first: bool = False
    #: Whether a DistributedSampler divides the samples, and whether ``set_epoch`` is called on it.
    distributed_sampler: bool = False
    set_epoch: bool = False
    #: By rank, its part of a pipeline.
    pipeline_parts: Mapping[int, PipelinePart] = field(default_factory=dict)

    @classmethod
    def of(cls, run: Run) -> Setup:
        logs = list(run.last_logs.values())
        cpu_cores, ranks_on_machine = _tightest(logs)
        devices = run.fact("devices")
        settings, transports = run.fact("settings"), run.fact("reduces_with")
        framework = _FRAMEWORKS.get(str(run.fact("framework")))
        drawn = [sampler.get("drawn") for sampler in _samplers(run)]
        persistent = run.fact("persistent_workers")
        sharding = run.fact("sharding")
        shares = sharding.get("kind", _FSDP2) if isinstance(sharding, dict) else None
        return cls(
            framework=framework,
            library=_library(run, framework),
            ranks=run.size,
            hosts=Counter(log.host for log in logs),
            gpu=any(str(device) in GPUS for device in devices)
            if isinstance(devices, list)
            else None,
            cpu_cores=cpu_cores,
            ranks_on_machine=ranks_on_machine,
            passes=_passes(run),
            settings=settings if isinstance(settings, dict) else {},
            reduces_with=tuple(map(str, transports)) if isinstance(transports, list) else None,
            pool=Pool.of(run.fact("petastorm")),
            has_unknown_workers=run.fact("loader_has_workers") is True,
            persistent_workers=persistent if isinstance(persistent, bool) else None,
            pipeline=_texts(run.fact("pipeline")),
            compute_dtypes=_texts(run.fact("compute_dtypes")),
            compression=text(run.fact("compression")),
            sharded=shares == _FSDP2,
            shares_model=shares not in (None, _FSDP2),
            gathers_for_backward=shares is not None
            and sharding.get("reshard_after_forward") is True,
            callbacks=_common_callbacks(logs),
            averages_first=bool(logs) and all(map(_averages_first, logs)),
            distributed_sampler=bool(drawn),
            set_epoch=len({str(samples) for samples in drawn if samples is not None}) > 1,
            pipeline_parts={
                rank: part
                for rank, log in run.last_logs.items()
                if (part := log.pipeline_part) is not None
            },
            **{name: number(run.fact(name)) for name in _COUNTS},
        )

    @property
    def spare_cores(self) -> int | None:
        """Return the CPU cores per rank, without the one that training keeps busy."""
        return None if self.cpu_cores is None else self.cpu_cores // self.ranks_on_machine - 1

    @property
    def no_spare_core(self) -> bool:
        """Whether ranks are known to leave no CPU core for loading."""
        return self.spare_cores is not None and self.spare_cores < 1

    def has(self, operation: str) -> bool:
        """Whether the tf.data pipeline is known to have this operation."""
        return operation in (self.pipeline or ())

    def is_on(self, name: str) -> bool:
        """Whether an environment variable is set, and not to 0."""
        return self.settings.get(name, "0") not in ("", "0")

    def optimizer_line(self, arguments: str) -> str:
        """Return the line that wraps the user's optimizer in Horovod's, with these arguments."""
        named = "named_parameters=model.named_parameters(), " if self.framework == "torch" else ""
        return f"optimizer = hvd.DistributedOptimizer(optimizer, {named}{arguments})"

    @property
    def polls(self) -> bool:
        """Whether ranks that wait for an allreduce keep a CPU core busy.

        Horovod polls under PyTorch: in 2 s of waiting the thread uses 1.8 s of CPU time (Horovod 0.28,
        PyTorch 2.13). Horovod under TensorFlow, and PyTorch's Gloo, sleep.
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


def cpu_cores_of(logs: Iterable[Log]) -> int | None:
    """Return the CPU cores of these ranks of one machine together; None if any did not record them."""
    allowed, counts = [], []
    for log in logs:
        cpus, count = number(log.facts.get("cpus_allowed")), number(log.facts.get("cpu_count"))
        if not cpus or not count:
            return None
        allowed.append(cpus)
        counts.append(count)
    # Ranks may be bound to different cores: together they have at most the sum of these.
    return min(max(counts), sum(allowed)) if counts else None


def machines(logs: Iterable[Log]) -> dict[str, list[Log]]:
    """Group logs by machine; containers on one machine have different hosts but share its clock."""
    by_machine: dict[str, list[Log]] = {}
    for log in logs:
        by_machine.setdefault(log.clock_domain, []).append(log)
    return by_machine


def number(value: Any) -> int | None:
    """Return a fact that is a count; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def text(value: Any) -> str | None:
    """Return a fact that is text; None for anything else."""
    return value if isinstance(value, str) else None


def callbacks_of(log: Log) -> list[Mapping[str, Any]]:
    """Return a rank's Keras callbacks in order; empty if not recorded."""
    callbacks = log.facts.get("callbacks")
    return (
        [callback for callback in callbacks if isinstance(callback, dict)]
        if isinstance(callbacks, list)
        else []
    )


def _tightest(logs: Iterable[Log]) -> tuple[int | None, int]:
    known = [
        (cpu_cores, len(machine_logs))
        for machine_logs in machines(logs).values()
        if (cpu_cores := cpu_cores_of(machine_logs)) is not None
    ]
    return min(known, key=lambda pair: pair[0] / pair[1], default=(None, 0))


def _texts(value: Any) -> tuple[str, ...] | None:
    return tuple(map(str, value)) if isinstance(value, list) else None


def _passes(run: Run) -> int | None:
    """Return the number of batches for which a step reduces gradients together."""
    facts = (run.fact("backward_passes_per_step"), run.fact("accumulate_grad_batches"))
    known = [count for count in map(number, facts) if count is not None]
    return max(known, default=None)


def _samplers(run: Run) -> list[Mapping[str, Any]]:
    """Return the records of the epochs' DistributedSamplers; empty if there were other samplers."""
    orders = run.fact("orders")
    if not isinstance(orders, list) or not all(isinstance(order, dict) for order in orders):
        return []
    return orders if all(order.get("sampler") == _DISTRIBUTED for order in orders) else []


def _common_callbacks(logs: Iterable[Log]) -> frozenset[str]:
    names = [{str(callback.get("name")) for callback in callbacks_of(log)} for log in logs]
    return frozenset(set.intersection(*names)) if names else frozenset()


def _averages_first(log: Log) -> bool:
    decisive = (
        callback
        for callback in callbacks_of(log)
        if callback.get("name") == AVERAGES or "monitor" in callback
    )
    return next(decisive, {}).get("name") == AVERAGES


def _library(run: Run, framework: Framework | None) -> Library | None:
    versions = run.fact("versions")
    if run.size < 2 or not isinstance(versions, dict):
        return None
    if versions.get("horovod"):
        return "horovod"
    return "ddp" if framework == "torch" else None


# -- Compare the compute threads of a machine's ranks with its CPU cores --------------------------


@dataclass(frozen=True)
class CpuLoad:
    """The ranks of one machine, their compute threads together, and its CPU cores."""

    #: Containers on one machine have names of their own.
    hosts: tuple[str, ...]
    ranks: tuple[int, ...]
    threads: int
    cores: int

    @property
    def over(self) -> float:
        """Return the threads per core."""
        return self.threads / self.cores

    @property
    def share(self) -> int:
        """Return the number of threads per rank that take no cores from other ranks, at least one."""
        return max(1, self.cores // len(self.ranks))

    @property
    def most_taken(self) -> float:
        """Return the share of their speed that ranks lose to a rank with a busy thread per core."""
        rank_threads = self.threads / len(self.ranks)
        needed = max(self.threads, self.cores)
        return 1.0 - needed / max(needed, self.threads - rank_threads + self.cores)


def cpu_loads(logs: Iterable[Log]) -> list[CpuLoad]:
    """Return the load of every machine on which all ranks recorded their cores and threads."""
    return [
        load
        for machine_logs in machines(logs).values()
        if (load := _load(machine_logs)) is not None
    ]


def crowded_cores(run: Run) -> CpuLoad | None:
    """Find the machine with the most compute threads per core; None if no machine has too many.

    Ranks that compute on a GPU, and single ranks on a machine, do not count.
    """
    crowded = [load for load in _computing_loads(run) if load.over > 1 and len(load.ranks) > 1]
    return max(crowded, key=lambda load: load.over, default=None)


@dataclass(frozen=True)
class CoreUse:
    """The recorded use of CPU cores by the ranks of a run."""

    #: Whether ranks compute on CPU cores, and not on GPUs.
    on_cpu: bool = False
    #: Whether ranks may take cores from each other.
    shared: bool = False
    #: Whether loader workers take cores from compute, so that loading is never free.
    busy_loaders: bool = False
    #: Whether a waiting rank keeps its core busy (see ``Setup.polls``).
    waiting_is_busy: bool = False
    #: The load of the machine if all ranks of the run share one.
    machine: CpuLoad | None = None
    #: The largest share of their speed that ranks lose to loaders that work while they compute.
    taken_by_loaders: float = 0.0

    @classmethod
    def of(cls, run: Run) -> CoreUse:
        loads, setup = _computing_loads(run), Setup.of(run)
        workers = setup.loader_workers or 0
        busy = [load.threads + len(load.ranks) * (1 + workers) > load.cores for load in loads]
        # In addition to its compute threads, every rank has one that communicates.
        shared = any(
            len(load.ranks) > 1 and load.threads + len(load.ranks) > load.cores for load in loads
        )
        ahead = workers or int(setup.has("Prefetch"))
        return cls(
            on_cpu=bool(loads),
            shared=shared,
            busy_loaders=workers > 0 and any(busy),
            waiting_is_busy=setup.polls,
            machine=loads[0] if shared and len(loads[0].ranks) == run.size else None,
            taken_by_loaders=max((_taken(load, ahead) for load in loads), default=0.0),
        )


def _taken(load: CpuLoad, loaders: int) -> float:
    """Return the share of their speed that ranks lose to this many busy loaders per rank."""
    busy, needed = load.threads + loaders * len(load.ranks), max(load.threads, load.cores)
    taken = 1.0 - needed / max(needed, busy)
    return max(taken, _TAKEN_ON_ANOTHER_CORE) if loaders and busy >= load.cores else taken


def _computing_loads(run: Run) -> list[CpuLoad]:
    devices = run.fact("devices")
    if isinstance(devices, list) and set(map(str, devices)) & set(GPUS):
        return []
    return cpu_loads(run.last_logs.values())


def _load(logs: Sequence[Log]) -> CpuLoad | None:
    cores = cpu_cores_of(logs)
    threads = [_threads(log, single=len(logs) == 1) for log in logs]
    known = [count for count in threads if count]
    if not cores or len(known) < len(logs):
        return None
    hosts = tuple(dict.fromkeys(log.host for log in logs))
    return CpuLoad(hosts, tuple(sorted(log.rank for log in logs)), sum(known), cores)


def _threads(log: Log, single: bool) -> int | None:
    """Return a rank's intra-op threads; a recorded 0 is one per core, which matters only on CPUs."""
    facts = log.facts.get("threads")
    recorded = number(facts.get("intra_op")) if isinstance(facts, dict) else None
    if recorded != 0:
        return recorded
    devices = log.facts.get("devices")
    only_cpu = isinstance(devices, list) and set(map(str, devices)) == {"CPU"}
    return number(log.facts.get("cpus_allowed")) if only_cpu and not single else None
