"""CPU cores, and how many threads the ranks of a machine compute with on them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stallscope.run import Log, Run

from .setup import GPUS, Setup, last_logs, machines, number, processors_of

# Two cores may be hyperthreads of one, and all share memory: where every core is busy, ranks are slower.
_TAKEN_ON_ANOTHER_CORE = 0.3


@dataclass(frozen=True)
class CpuLoad:
    """The ranks of one machine, the threads that they compute with together, and its CPU cores."""

    host: str
    ranks: tuple[int, ...]
    threads: int
    cores: int

    @property
    def over(self) -> float:
        """Threads per core."""
        return self.threads / self.cores

    @property
    def share(self) -> int:
        """The threads that each rank can have without taking cores from the others, at least one."""
        return max(1, self.cores // len(self.ranks))

    @property
    def most_ranks(self) -> int:
        """The ranks that have a core for each of their threads."""
        return max(1, self.cores * len(self.ranks) // self.threads)

    @property
    def most_taken(self) -> float:
        """The share of their speed that ranks lose to one that keeps a thread per core busy."""
        own = self.threads / len(self.ranks)
        needed = max(self.threads, self.cores)
        return 1.0 - needed / max(needed, self.threads - own + self.cores)


def cpu_loads(logs: Iterable[Log]) -> list[CpuLoad]:
    """The load of every machine of which all ranks recorded their cores and threads."""
    return [load for own in machines(logs).values() if (load := _load(own)) is not None]


def crowded_cores(run: Run) -> CpuLoad | None:
    """The machine whose ranks have the most compute threads per core; None where none has too many.

    Ranks that compute on a GPU, or alone on their machine, do not count.
    """
    crowded = [load for load in _computing_loads(run) if load.over > 1 and len(load.ranks) > 1]
    return max(crowded, key=lambda load: load.over, default=None)


@dataclass(frozen=True)
class CoreUse:
    """How the ranks of a run use CPU cores, as far as they recorded it."""

    #: Whether they compute on CPU cores, and not on GPUs.
    on_cpu: bool = False
    #: Whether they may take cores from each other.
    shared: bool = False
    #: Whether workers that load data take cores from compute, so that loading is never free.
    busy_loaders: bool = False
    #: Whether a rank that waits keeps its core busy (see ``Setup.polls``).
    waiting_is_busy: bool = False
    #: The machine that they share, where all ranks of the run are on one.
    machine: CpuLoad | None = None
    #: The share of their speed that ranks lose at most to loaders that work while they compute.
    taken_by_loaders: float = 0.0

    @classmethod
    def of(cls, run: Run) -> CoreUse:
        loads, setup = _computing_loads(run), Setup.of(run)
        workers = setup.loader_workers or 0
        busy = [load.threads + len(load.ranks) * (1 + workers) > load.cores for load in loads]
        shared = _share_cores(loads)
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
    """Return the share of their speed that ranks lose to so many busy loaders of each."""
    busy, needed = load.threads + loaders * len(load.ranks), max(load.threads, load.cores)
    taken = 1.0 - needed / max(needed, busy)
    return max(taken, _TAKEN_ON_ANOTHER_CORE) if loaders and busy >= load.cores else taken


def _share_cores(loads: Iterable[CpuLoad]) -> bool:
    # Beside its compute threads every rank has one that communicates.
    return any(
        len(load.ranks) > 1 and load.threads + len(load.ranks) > load.cores for load in loads
    )


def _computing_loads(run: Run) -> list[CpuLoad]:
    devices = run.fact("devices")
    if isinstance(devices, list) and set(map(str, devices)) & set(GPUS):
        return []
    return cpu_loads(last_logs(run))


def _load(logs: Sequence[Log]) -> CpuLoad | None:
    cores = processors_of(logs)
    threads = [_threads(log, alone=len(logs) == 1) for log in logs]
    known = [count for count in threads if count]
    if not cores or len(known) < len(logs):
        return None
    return CpuLoad(logs[0].host, tuple(sorted(log.rank for log in logs)), sum(known), cores)


def _threads(log: Log, alone: bool) -> int | None:
    """Intra-op threads; 0 in the facts is one for every core, which only matters to CPUs."""
    facts = log.facts.get("threads")
    wanted = number(facts.get("intra_op")) if isinstance(facts, dict) else None
    if wanted != 0:
        return wanted
    devices = log.facts.get("devices")
    only_cpu = isinstance(devices, list) and set(map(str, devices)) == {"CPU"}
    return number(log.facts.get("cpus_allowed")) if only_cpu and not alone else None
