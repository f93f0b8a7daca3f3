"""Find samples that have the same order in every epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stallscope.formatting.lists import ranks_in_words
from stallscope.run import Log

from ..advice import Advice, shuffled_anew
from .finding import Finding
from .records import Records

_SHUFFLED_ONCE = "samples are shuffled once, and every epoch repeats that order"
_NEVER = "nothing shuffles samples before training"


def same_order_every_epoch(records: Records) -> Iterator[Finding]:
    """Find ranks that repeat the same order, if they made several epochs."""
    several = set(records.epochs.rank[records.epochs.epoch > 0].tolist())
    found: dict[str, list[int]] = {}
    for rank, log in records.last_log.items():
        reason = _reason(log) if rank in several else None
        if reason is not None:
            found.setdefault(reason, []).append(rank)
    if not found:
        return
    reason, ranks = next(iter(found.items()))
    shuffles = reason != _NEVER
    unless = "" if shuffles else "Not if the order matters, or the data is shuffled already."
    advised = shuffled_anew(records.setup, shuffles)
    yield Finding(
        "same_order_every_epoch",
        "warning" if shuffles else "info",
        "Every epoch sees its samples in the same order",
        f"On {ranks_in_words(sorted(ranks))}: {reason}. Then every epoch has the same batches.",
        str(Advice(advised.what, advised.line, unless=unless)),
    )


def _reason(log: Log) -> str | None:
    # The order of random batches does not matter.
    if log.facts.get("synthetic"):
        return None
    shuffled = log.facts.get("shuffled")
    if shuffled == "alike":
        return _SHUFFLED_ONCE
    if shuffled == "never":
        return _NEVER
    orders = log.facts.get("orders")
    if not isinstance(orders, list) or len(orders) < 2:
        return None
    return _of_samplers(orders)


def _of_samplers(orders: list[Any]) -> str | None:
    """Return why the samplers of several epochs give the same order; None if they may not."""
    if not all(isinstance(one, dict) for one in orders):
        return None
    if all(one.get("shuffles") is False for one in orders):
        return _NEVER
    drawn = [one.get("drawn") for one in orders]
    if None in drawn or any(one != drawn[0] for one in drawn):
        return None
    return (
        f"set_epoch of the DistributedSampler was not called: {len(orders)} epochs drew their order "
        "from the same seed and epoch"
    )
