"""Facts that come to light while a training goes on: of its loaders, its epochs and its gradients."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from ..format import StepRow
from ..learning_rate import Rates
from ..session import Session
from .facts import learning_rate, parameters_of, shuffling, sparse_gradients, weights
from .petastorm import PoolQueue, queue_of

# Epochs whose order of samples is told.
_MOST_ORDERS = 8


class Telling:
    """Tells a session's log what one training shows of itself, each thing once or when it changes.

    Args:
        session: what the facts go to.
        optimizer, model: what trains, as the user has given them.
        ranks: how many processes train together.
        batch_size: samples per rank and turn, where the user has said so.
    """

    def __init__(
        self, session: Session, optimizer: Any, model: Any, ranks: int, batch_size: Optional[int]
    ) -> None:
        self._session = session
        self._optimizer = optimizer
        self._model = model
        self._ranks = ranks
        self._batch_size = batch_size
        self._first_step = session.next_step
        self._rates = Rates()
        self._loader: Any = None
        self._seen_loader = False
        self._orders: List[Any] = []
        self._pool: Optional[PoolQueue] = None
        # Horovod's optimizer knows how many backward passes it sums; loops of the user's own show it.
        self._knows_passes = hasattr(optimizer, "backward_passes_per_step")

    def loop_begins(self, loader: Any) -> None:
        """A loop over a loader: of the first one, what a DataLoader knows of itself."""
        if not self._seen_loader:
            self._seen_loader = True
            found = [getattr(loader, name, None) for name in ("batch_size", "num_workers")]
            batch_size, workers = (value if isinstance(value, int) else None for value in found)
            self._batch_size = self._batch_size or batch_size
            persistent = getattr(loader, "persistent_workers", None)
            told = {
                "loader_workers": workers,
                "persistent_workers": persistent if isinstance(persistent, bool) else None,
                "batches_per_epoch": _length(loader),
            }
            self._session.facts({"batch_size": self._batch_size, **told})
        self._loader = loader
        self._pool = queue_of(loader, self._pool)

    def look(self) -> None:
        """How many row groups wait right now, where the loader is Petastorm's."""
        if self._pool is not None:
            self._pool.look()

    def rate_of(self, epoch: int) -> None:
        """The learning rate with which a later epoch begins, where it has changed."""
        changes = self._rates.changed(epoch, learning_rate(self._optimizer))
        if changes is not None:
            self._session.facts({"learning_rates": changes})

    def epoch_ended(self) -> None:
        """What an epoch shows when it is over, of its first few."""
        loader, self._loader = self._loader, None
        found: Dict[str, Any] = {}
        if not self._orders and self._ranks > 1:
            sample = weights(self._optimizer, parameters_of(self._optimizer, self._model))
            if sample is not None:
                found["weights"] = {**sample, "after": self._session.next_step - self._first_step}
        if len(self._orders) < _MOST_ORDERS:
            self._orders.append(shuffling(loader))
            found["orders"] = self._orders[:]
        if self._pool is not None:
            found["petastorm"] = self._pool.fact()
        if found:
            self._session.facts(found)

    def gradients_reduced(self) -> None:
        """Once, after the first reduction, when the gradients are still there."""
        if self._ranks > 1:
            parameters = parameters_of(self._optimizer, self._model)
            found = sparse_gradients(self._optimizer, self._model, parameters, self._ranks)
            self._session.facts({"sparse_gradients": found})

    def recorded(self, rows: List[StepRow]) -> None:
        """Record samples per batch and batches per step, from the first step, where they are unknown.

        The last one of an epoch may be smaller.
        """
        for row in rows:
            if not self._knows_passes:
                self._knows_passes = True
                self._session.facts({"backward_passes_per_step": row.micro})
            if self._batch_size is None and row.samples:
                self._batch_size = row.samples // row.micro
                self._session.facts({"batch_size": self._batch_size})


def _length(loader: Any) -> Optional[int]:
    """Its batches, where it knows how many there are; endless ones do not."""
    try:
        return len(loader)
    except Exception:
        return None
