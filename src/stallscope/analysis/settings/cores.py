"""Compare the compute threads of a machine's ranks with its CPU cores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stallscope.run import Log, Run

from .setup import GPUS, Setup, cpu_cores_of, machines, number

# Cores may be hyperthreads, and all share memory, so ranks are slower if every core is busy.
_TAKEN_ON_ANOTHER_CORE = 0.3


@dataclass(frozen=True)
class CpuLoad:
    """The ranks of one machine, their compute threads together, and its CPU cores."""

    host: str
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
    return CpuLoad(logs[0].host, tuple(sorted(log.rank for log in logs)), sum(known), cores)


def _threads(log: Log, single: bool) -> int | None:
    """Return a rank's intra-op threads; a recorded 0 is one per core, which matters only on CPUs."""
    facts = log.facts.get("threads")
    recorded = number(facts.get("intra_op")) if isinstance(facts, dict) else None
    if recorded != 0:
        return recorded
    devices = log.facts.get("devices")
    only_cpu = isinstance(devices, list) and set(map(str, devices)) == {"CPU"}
    return number(log.facts.get("cpus_allowed")) if only_cpu and not single else None
