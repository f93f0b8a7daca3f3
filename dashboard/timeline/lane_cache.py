"""Compute lanes and gauges of an analysis once, on demand; they are freed with the analysis."""

from __future__ import annotations

import math

from stallscope.analysis import Analysis
from stallscope.analysis.views.lanes import Lanes

from ..store.cache import Cache
from .gauges import Gauge, gauges


def lanes_of(analysis: Analysis) -> Lanes | None:
    """Return the lanes of an analysis; None if its stages were not measured."""
    generations = analysis.generation_ledgers
    if not generations:
        return None
    longest_pause = int(analysis.job.total * 1e9)
    return _cache_of(analysis).get("lanes", lambda: Lanes(generations, longest_pause))


def gauges_of(analysis: Analysis, lanes: Lanes) -> list[Gauge]:
    """Return the machine metrics of the run, on the axis of the analysis' lanes."""
    return _cache_of(analysis).get("gauges", lambda: gauges(analysis, lanes))


def _cache_of(analysis: Analysis) -> Cache:
    # A growing run gets a new analysis per refresh: a global cache would keep the lanes of old ones.
    cache: Cache = vars(analysis).setdefault("_timeline", Cache(math.inf))
    return cache
