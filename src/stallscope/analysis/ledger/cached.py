"""Restore ledgers from the analysis cache: figures per step are stored, others are made on demand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any

import numpy as np

from stallscope.arrays.types import Ints

from .ledger import CAUSES, ENTRIES, Ledger

#: Fields of a ledger that have a number per step and rank.
PER_RANK = ("cells",)
#: Bytes of these fields per step and rank.
BYTES_PER_RANK = 4 * 8 + 1


class CachedLedger(Ledger):
    """A ledger with stored figures per step; figures per rank are made when they are first read."""

    @classmethod
    def from_cache(
        cls,
        per_step: Mapping[str, Any],
        entries: Mapping[str, Ints],
        causes: Mapping[str, Ints],
        make: Callable[[], Ledger | None],
    ) -> CachedLedger:
        """Make a ledger from stored figures per step.

        Args:
            per_step: all fields but those per rank.
            entries: the nanoseconds per step of each entry of the ledger.
            causes: the same for the ledger by cause.
            make: makes the ledger from the run's steps.
        """
        ledger = cls.__new__(cls)
        # Set the fields of a frozen dataclass; __getattr__ makes the missing ones.
        vars(ledger).update(per_step, _make=make, _making=Lock())
        vars(ledger).update(_entries=dict(entries), _causes=dict(causes))
        vars(ledger)["last"] = ledger.total - ledger.allreduce
        return ledger

    def __getattr__(self, name: str) -> Any:
        if name not in PER_RANK:
            raise AttributeError(name)
        with self._making:
            if name not in vars(self):
                ledger = self._make()
                vars(self).update({quantity: getattr(ledger, quantity) for quantity in PER_RANK})
        return vars(self)[name]

    @property
    def pending_bytes(self) -> int:
        """Bytes of the fields that are made on demand."""
        return len(self.steps) * len(self.ranks) * BYTES_PER_RANK

    @property
    def imbalance(self) -> Ints:
        return self.entry("imbalance") if "_entries" in vars(self) else super().imbalance

    def entry(self, name: str) -> Ints:
        known: Mapping[str, Ints] | None = vars(self).get("_entries")
        return super().entry(name) if known is None else known[name]

    def by_cause(self, name: str) -> Ints:
        known: Mapping[str, Ints] | None = vars(self).get("_causes")
        return super().by_cause(name) if known is None else known[name]


def entries_of(ledger: Ledger) -> dict[str, Ints]:
    """Return the nanoseconds per step of each entry of a ledger."""
    return {name: np.asarray(ledger.entry(name)) for name in ENTRIES}


def causes_of(ledger: Ledger) -> dict[str, Ints]:
    """Return the nanoseconds per step of each entry of a ledger by cause."""
    return {name: np.asarray(ledger.by_cause(name)) for name in CAUSES}
