"""A cache of limited size that computes every value once, for analyses and pages."""

from __future__ import annotations

import ctypes
import math
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from contextlib import suppress
from threading import Lock, Thread
from typing import Any, TypeVar

import pyarrow as pa

from stallscope.analysis import Analysis
from stallscope.analysis.ledger.ledger import Ledger
from stallscope.analysis.result import GenerationLedger
from stallscope.analysis.views.lanes import Lanes
from stallscope.analysis.views.log_health import RankLogs, rank_logs, timestamps_measured
from stallscope.analysis.views.rank_maps import (
    GroupLateness,
    group_lateness,
    mesh_arrangements,
    places_in_mesh,
)
from stallscope.charts.heat_map import HeatMap, lateness_chart
from stallscope.collector.store.loading import RunOnDisk
from stallscope.errors import StallscopeError

T = TypeVar("T")
# From glibc's malloc.h.
_M_ARENA_MAX = -8
# Python creates objects in one thread at a time: more heaps would not be faster.
_HEAPS = 2

#: The name of the thread that prepares a run's pages.
PREPARATION = "preparation"


class Cache:
    """Values by key. The first caller computes a value; others wait only for the value they need.

    Args:
        max_size: the limit of all sizes together. The least recently used values are dropped first; the
            newest value stays even if it is larger.
        size_of: computes the size of a value.
    """

    def __init__(self, max_size: float, size_of: Callable[[Any], int] = lambda _: 1) -> None:
        self._max_size = max_size
        self._size_of = size_of
        self._lock = Lock()
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size(self) -> int:
        """The size of all values together."""
        return self._size

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the value of a key; errors of ``make`` are raised for all callers that wait for it."""
        with self._lock:
            entry = self._entries.get(key)
            missing = entry is None
            if entry is None:
                entry = self._entries[key] = _Entry()
            self._entries.move_to_end(key)
        if missing:
            self._fill(key, entry, make)
        value: T = entry.future.result()
        return value

    def discard(self, chosen: Callable[[Hashable], bool]) -> None:
        """Drop the values of chosen keys, except those that are still being computed."""
        with self._lock:
            for key, entry in list(self._entries.items()):
                if chosen(key) and entry.future.done():
                    self._drop(key)

    def _fill(self, key: Hashable, entry: _Entry, make: Callable[[], Any]) -> None:
        try:
            value = make()
            size = self._size_of(value)
        except BaseException as error:  # any error: callers must not wait forever
            with self._lock:
                del self._entries[key]  # later callers try again
            entry.future.set_exception(error)
            return
        with self._lock:
            entry.size = size
            self._size += size
            entry.future.set_result(value)
            self._evict(newest=key)

    def _evict(self, newest: Hashable) -> None:
        for key, entry in list(self._entries.items()):
            if self._size <= self._max_size:
                return
            # A value that is still being computed has no size yet, and callers wait for it.
            if key != newest and entry.future.done():
                self._drop(key)

    def _drop(self, key: Hashable) -> None:
        self._size -= self._entries.pop(key).size


class _Entry:
    """A value that is computed or being computed."""

    def __init__(self) -> None:
        self.future: Future[Any] = Future()
        self.size = 0


# -- Return freed memory to the system ------------------------------------------------------------
#
# An analysis needs several times the memory of its result while it runs. Allocators keep freed
# memory in one heap per thread, so threads that analyse in turn would each keep such a peak.


def share_heaps() -> None:
    """Let all new threads, and Arrow, allocate from the same few heaps.

    For processes that only serve a dashboard. Does nothing with C libraries other than glibc. Without it
    a process keeps 1.5 × the memory (after six analyses of up to 1,000,000 rows: 300 MB against 190 MB).
    """
    # Arrow's own allocator returns only what the calling thread has freed.
    pa.set_memory_pool(pa.system_memory_pool())
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _HEAPS)


def give_back() -> None:
    """Return free memory to the system: all of it if heaps are shared, else this thread's of Arrow.

    To be called by the thread that ran an analysis. Takes some milliseconds.
    """
    pa.default_memory_pool().release_unused()


# -- Cache what pages compute from an analysis; it is freed with the analysis ---------------------
#
# When a user opens a run from disk, ``prepare`` computes all of it in the background.


def cached(analysis: Analysis, name: str, make: Callable[[], T]) -> T:
    """Return the result of ``make``, which is called once for all threads."""
    # A growing run gets a new analysis per refresh: a global cache would keep results of old ones.
    cache: Cache = vars(analysis).setdefault("_page_cache", Cache(math.inf))
    return cache.get(name, make)


def lanes_of(analysis: Analysis, dimension: str | None = None) -> Lanes | None:
    """Return the timeline's lanes; None if the run's stages were not measured.

    Ranks are arranged by this dimension of the job's mesh, or by host if there is no such dimension.
    """
    generations = analysis.generation_ledgers
    if not generations:
        return None
    _finish_tables(analysis)
    longest_pause = int(analysis.job.total * 1e9)
    arranged = arrangements_of(analysis).get(dimension or "")
    if arranged is None:
        return cached(analysis, "lanes", lambda: Lanes(generations, longest_pause))
    return cached(analysis, f"lanes by {dimension}", lambda: Lanes(arranged, longest_pause))


def arrangements_of(analysis: Analysis) -> dict[str, tuple[GenerationLedger, ...]]:
    """Return the ledgers in each arrangement of their ranks by a dimension of the job's mesh."""
    return cached(analysis, "arrangements", lambda: mesh_arrangements(analysis))


def logs_of(analysis: Analysis) -> tuple[RankLogs, ...]:
    """Return the contents of every rank's logs."""
    return cached(analysis, "logs", lambda: rank_logs(analysis.run))


def timestamps_of(analysis: Analysis) -> dict[str, float | None]:
    """Return the share of recorded steps that have each timestamp."""
    return cached(analysis, "timestamps", lambda: timestamps_measured(analysis.run))


def groups_of(analysis: Analysis) -> dict[str, tuple[GroupLateness, ...]]:
    """Return how late the ranks of each host are, and those of each place in the mesh, by dimension.

    Empty without steady steps; without ``host`` on a single one.
    """
    steady = analysis.steady
    return {} if steady is None else cached(analysis, "groups", lambda: _groups(analysis, steady))


def _groups(analysis: Analysis, steady: Ledger) -> dict[str, tuple[GroupLateness, ...]]:
    groupings = {"host": {rank.rank: rank.host for rank in analysis.ranks}}
    for dimension, places in places_in_mesh(analysis).items():
        of_ranks = {rank.rank: place for place, ranks in places.items() for rank in ranks}
        groupings.setdefault(dimension, of_ranks)
    return {
        name: group_lateness(steady, [group[rank] for rank in steady.ranks])
        for name, group in groupings.items()
        if len(set(group.values())) > 1 and {*steady.ranks} <= {*group}
    }


def lateness_of(analysis: Analysis, *, of_latest: bool) -> HeatMap | None:
    """Return the chart of every rank's lateness over the run; see ``lateness_chart``."""
    name = f"lateness of {'the latest' if of_latest else 'all'}"
    return cached(analysis, name, lambda: lateness_chart(analysis, of_latest=of_latest))


def prepare(analysis: Analysis) -> None:
    """Compute the contents of the pages of a run from disk in the background, once."""
    if isinstance(analysis.run, RunOnDisk):
        cached(analysis, "preparation", lambda: _start(analysis))


def _start(analysis: Analysis) -> None:
    Thread(target=_prepare, args=(analysis,), name=PREPARATION, daemon=True).start()


def _prepare(analysis: Analysis) -> None:
    # A page that needs a failed result shows the error.
    with suppress(StallscopeError):
        _finish_tables(analysis)
        lanes_of(analysis)
        groups_of(analysis)
        lateness_of(analysis, of_latest=True)
    free_tables(analysis)


def _finish_tables(analysis: Analysis) -> None:
    """Use and free the tables of a run from disk, because lanes need as much memory."""
    if isinstance(analysis.run, RunOnDisk):
        cached(analysis, "tables", lambda: _use_tables(analysis))


def _use_tables(analysis: Analysis) -> None:
    logs_of(analysis)
    timestamps_of(analysis)
    # Only ledgers need the tables; they take a third of the memory.
    for generation in analysis.generation_ledgers:
        _ = generation.ledger.cells
    free_tables(analysis)


def free_tables(analysis: Analysis) -> None:
    """Free the tables of runs from disk: they are larger than everything that is computed from them."""
    for analysed in (analysis, analysis.baseline, analysis.single):
        if analysed is not None and isinstance(analysed.run, RunOnDisk):
            analysed.run.forget_tables()
    give_back()
