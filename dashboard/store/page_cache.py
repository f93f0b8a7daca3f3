"""Cache what pages compute from an analysis; it is freed with the analysis.

When a user opens a run from disk, ``prepare`` computes all of it in the background.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import TypeVar

from stallscope.analysis import Analysis
from stallscope.analysis.ledger.ledger import Ledger
from stallscope.analysis.stragglers.host_lateness import HostLateness, host_lateness
from stallscope.analysis.views.lanes import Lanes
from stallscope.analysis.views.log_health import RankLogs, rank_logs, timestamps_measured
from stallscope.charts.heat_map import HeatMap, lateness_chart
from stallscope.collector.store.loading import RunOnDisk
from stallscope.errors import StallscopeError

from ..memory import give_back
from .cache import Cache

#: The name of the thread that prepares a run's pages.
PREPARATION = "preparation"

T = TypeVar("T")


def cached(analysis: Analysis, name: str, make: Callable[[], T]) -> T:
    """Return the result of ``make``, which is called once for all threads."""
    # A growing run gets a new analysis per refresh: a global cache would keep results of old ones.
    cache: Cache = vars(analysis).setdefault("_page_cache", Cache(math.inf))
    return cache.get(name, make)


def lanes_of(analysis: Analysis) -> Lanes | None:
    """Return the timeline's lanes; None if the run's stages were not measured."""
    generations = analysis.generation_ledgers
    if not generations:
        return None
    _finish_tables(analysis)
    longest_pause = int(analysis.job.total * 1e9)
    return cached(analysis, "lanes", lambda: Lanes(generations, longest_pause))


def logs_of(analysis: Analysis) -> tuple[RankLogs, ...]:
    """Return the contents of every rank's logs."""
    return cached(analysis, "logs", lambda: rank_logs(analysis.run))


def timestamps_of(analysis: Analysis) -> dict[str, float | None]:
    """Return the share of recorded steps that have each timestamp."""
    return cached(analysis, "timestamps", lambda: timestamps_measured(analysis.run))


def hosts_of(analysis: Analysis) -> tuple[HostLateness, ...]:
    """Return how late the ranks of every host are; none on a single host or without steady steps."""
    steady = analysis.steady
    if steady is None or len({rank.host for rank in analysis.ranks}) < 2:
        return ()
    return cached(analysis, "hosts", lambda: _hosts(analysis, steady))


def _hosts(analysis: Analysis, steady: Ledger) -> tuple[HostLateness, ...]:
    host_of = {rank.rank: rank.host for rank in analysis.ranks}
    return host_lateness(steady, [host_of[rank] for rank in steady.ranks])


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
        hosts_of(analysis)
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
    for one in analysis.generation_ledgers:
        _ = one.ledger.cells
    free_tables(analysis)


def free_tables(analysis: Analysis) -> None:
    """Free the tables of runs from disk: they are larger than everything that is computed from them."""
    for one in (analysis, analysis.baseline, analysis.single):
        if one is not None and isinstance(one.run, RunOnDisk):
            one.run.forget_tables()
    give_back()
