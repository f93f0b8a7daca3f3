"""Samples that come in the same order in every epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stallscope.formatting.lists import ranks_in_words
from stallscope.run import Log

from ..advice import Advice, in_words, shuffled_anew
from .finding import Finding
from .records import Records

_SHUFFLED_ONCE = "they are shuffled once, and come in that order again"
_NEVER = "nothing shuffles them before training"


def same_order_every_epoch(records: Records) -> Iterator[Finding]:
    """Where several epochs were made, and what decides about their order is known."""
    several = set(records.epochs.rank[records.epochs.epoch > 0].tolist())
    found: dict[str, list[int]] = {}
    for rank, log in records.last_log.items():
        why = _why(log) if rank in several else None
        if why is not None:
            found.setdefault(why, []).append(rank)
    if not found:
        return
    why, ranks = next(iter(found.items()))
    shuffles = why != _NEVER
    unless = "" if shuffles else "Not where the order has a meaning, or the data shuffles itself."
    advised = shuffled_anew(records.setup, shuffles)
    yield Finding(
        "same_order_every_epoch",
        "warning" if shuffles else "info",
        "Every epoch sees its samples in the same order",
        f"On {ranks_in_words(sorted(ranks))}: {why}. Batches of every epoch then hold the same samples.",
        in_words(Advice(advised.what, advised.line, unless=unless)),
    )


def _why(log: Log) -> str | None:
    # Nothing is learned from random batches, in whatever order.
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
    """What several epochs' samplers say; None where one of them does not tell."""
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
