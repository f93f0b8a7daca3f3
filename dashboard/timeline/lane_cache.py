"""Lanes and gauges of analyses, made once on demand, and gone with their analysis."""

from __future__ import annotations

import math

from stallscope.analysis import Analysis
from stallscope.analysis.views.lanes import Lanes

from ..store.cache import Cache
from .gauges import Gauge, gauges

_NAME = "_lanes"
_GAUGES = "_gauges"


def lanes_of(analysis: Analysis) -> Lanes | None:
    """The lanes of an analysis; None where its stages were not measured."""
    ledger = analysis.ledger
    if ledger is None or not len(ledger) or not ledger.ranks:
        return None
    hosts = [rank.host for rank in analysis.ranks]
    longest_pause = int(analysis.job.total * 1e9)
    # Of a run that grows, each state has an analysis of its own: nothing else may hold its lanes.
    own: Cache = vars(analysis).setdefault(_NAME, Cache(math.inf))
    return own.get(_NAME, lambda: Lanes(ledger, hosts, longest_pause))


def gauges_of(analysis: Analysis, lanes: Lanes) -> list[Gauge]:
    """What machines measured meanwhile, on the axis of the analysis' lanes."""
    own: Cache = vars(analysis).setdefault(_GAUGES, Cache(math.inf))
    return own.get(_GAUGES, lambda: gauges(analysis.run, lanes))
