"""Check the gradients: whether they are reduced, sparse, applied with a scaled rate, on slow links."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from stallscope.formatting.lists import clipped, counted

from ..advice.training_advice import dense_gradients, scaled_rate
from ..gains.what_if import Advice
from ..reasons import advice_on_links, slow_links_in_words
from ..setup import number
from ..steps.links import links, slow_links
from .finding import Finding, Records

# Bytes of a row's index.
_INDEX_BYTES = 8


def gradients_not_reduced(records: Records) -> Iterator[Finding]:
    """Find a train step without allreduce."""
    run = records.run
    if run.fact("gradients_reduced") is False:
        yield Finding(
            "gradients_not_reduced",
            "error",
            "Gradients are not reduced",
            f"{run.size} ranks trained, and the traced train step contains no allreduce: every rank "
            "trained its own model.",
            (
                Advice(
                    "In a custom train_step, reduce gradients with hvd.DistributedGradientTape or "
                    "optimizer.minimize()",
                    detail="; apply_gradients does not reduce them",
                ),
            ),
        )


def learning_rate_not_scaled(records: Records) -> Iterator[Finding]:
    """Find a default learning rate on several ranks."""
    run = records.run
    rate = run.fact("learning_rate")
    if run.fact("learning_rate_scaled") is False and isinstance(rate, (int, float)):
        yield Finding(
            "learning_rate_not_scaled",
            "info",
            "The learning rate is the optimizer's default",
            f"{rate:g} on {run.size} ranks, the same as on one.",
            tuple(scaled_rate(records.setup, float(rate))),
        )


def sparse_gradients(records: Records) -> Iterator[Finding]:
    """Find gradients that are gathered row by row from all ranks, if reducing them would move less."""
    fact = records.run.fact("sparse_gradients")
    count = number(fact.get("count")) if isinstance(fact, dict) else None
    if not count or records.run.size < 2 or records.setup.library is None:
        return
    gathered = [known for record in _list(fact.get("largest")) if (known := _Gathered.of(record))]
    ranks = records.run.size
    costly = [
        gradient
        for gradient in gathered
        if gradient.gathered_bytes(ranks) > gradient.reduced_bytes(ranks)
    ]
    if not costly and all(gradient.rows is not None for gradient in gathered):
        return
    gradient = costly[0] if costly else max(gathered, key=lambda gradient: gradient.dense_bytes)
    yield Finding(
        "sparse_gradients",
        "warning" if costly else "info",
        "Gradients of embeddings are gathered, not reduced",
        f"{counted(count, 'gradient')} of {ranks} ranks {'is' if count == 1 else 'are'} sparse: "
        f"{gradient.cost(ranks)}",
        (dense_gradients(records.setup, gradient.shape),),
    )


def link_is_slow(records: Records) -> Iterator[Finding]:
    """Find links between hosts that are slower than the others, whatever the verdict."""
    slow = slow_links(links(records.run))
    if slow is not None:
        yield Finding(
            "link_is_slow",
            "warning",
            "A link between hosts is slow",
            slow_links_in_words(slow),
            (advice_on_links(slow),),
        )


@dataclass(frozen=True)
class _Gathered:
    """A sparse gradient, and the bytes that gathering its rows or reducing all of it moves per rank."""

    name: str
    shape: tuple[int, ...]
    itemsize: int
    #: Rows that a rank contributes in a step; None if unknown.
    rows: int | None

    @classmethod
    def of(cls, fact: Any) -> _Gathered | None:
        if not isinstance(fact, dict):
            return None
        shape = tuple(number(size) or 0 for size in _list(fact.get("shape")))
        itemsize = number(fact.get("itemsize"))
        if len(shape) < 2 or not all(shape) or not itemsize:
            return None
        return cls(str(fact.get("name")), shape, itemsize, number(fact.get("rows")))

    @property
    def dense_bytes(self) -> int:
        return math.prod(self.shape) * self.itemsize

    @property
    def row_bytes(self) -> int:
        return math.prod(self.shape[1:]) * self.itemsize + _INDEX_BYTES

    def gathered_bytes(self, ranks: int) -> float:
        """Return the bytes of the rows of all other ranks."""
        return (ranks - 1) * (self.rows or 0) * self.row_bytes

    def reduced_bytes(self, ranks: int) -> float:
        """Return the bytes that go over every link of a ring."""
        return 2 * (ranks - 1) / ranks * self.dense_bytes

    def cost(self, ranks: int) -> str:
        """Describe the bytes that gathering and reducing move, in a clause."""
        size = f"{clipped(self.name)} ({' × '.join(f'{n:,}' for n in self.shape)})"
        reduced = f"{self.reduced_bytes(ranks) / 1e6:,.3g} MB"
        if self.rows is not None:
            return (
                f"of {size} each rank sends {self.rows:,} rows in a step and receives "
                f"{self.gathered_bytes(ranks) / 1e6:,.3g} MB from the others. Reduced as a whole it "
                f"would be {reduced}, and fused with the rest."
            )
        enough = math.ceil(2 * self.dense_bytes / (ranks * self.row_bytes))
        return (
            f"every rank receives the rows of all others for {size}. Reduced as a whole it would be "
            f"{reduced}, which is less once a rank looks up {enough:,} rows in a step, counting "
            "repeated rows."
        )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
