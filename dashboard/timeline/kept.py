"""Lanes of analyses, made once when somebody looks."""

from __future__ import annotations

from stallscope.analysis import Analysis
from stallscope.analysis.lanes import Lanes

from ..store.cache import Cache

#: Bytes. A run of a thousand ranks and ten thousand steps takes 120 MB.
_MOST_BYTES = 384 << 20

# By the ledger itself: it is held by what is kept, so that nothing else can have its id meanwhile.
_kept = Cache(_MOST_BYTES, lambda lanes: int(lanes.nbytes))


def lanes_of(analysis: Analysis) -> Lanes | None:
    """The lanes of an analysis; None where its stages were not measured."""
    ledger = analysis.ledger
    if ledger is None or not len(ledger) or not ledger.ranks:
        return None
    hosts = [rank.host for rank in analysis.ranks]
    longest_pause = int(analysis.job.total * 1e9)
    lanes: Lanes = _kept.get(id(ledger), lambda: Lanes(ledger, hosts, longest_pause))
    return lanes
