"""Record facts that are known only during training: of loaders, epochs and gradients."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from ..job.facts import batches_in
from ..job.learning_rate import LearningRates
from ..session import Session
from ..step_log.format import StepRow
from .facts import learning_rate, parameters_of, shuffling, sparse_gradients, weights
from .petastorm import PoolQueue, queue_of

# The number of epochs for which the order of samples is recorded.
_MOST_ORDERS = 8


class LateFacts:
    """Records facts once, or when they change.

    Args:
        session: receives the facts.
        optimizer, model: the user's arguments.
        ranks: the number of processes that train together.
        batch_size: samples per rank and iteration, if the user gave the number.
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
        self._rates = LearningRates()
        self._loader: Any = None
        self._seen_loader = False
        self._orders: List[Any] = []
        self._pool: Optional[PoolQueue] = None
        # Horovod's optimizer knows how many backward passes it sums; the first step of others shows it.
        self._passes_known = hasattr(optimizer, "backward_passes_per_step")

    def begin_loop(self, loader: Any) -> None:
        """Record the facts of a DataLoader, at the start of the first loop."""
        if not self._seen_loader:
            self._seen_loader = True
            settings = [getattr(loader, name, None) for name in ("batch_size", "num_workers")]
            batch_size, workers = (value if isinstance(value, int) else None for value in settings)
            self._batch_size = self._batch_size or batch_size
            persistent = getattr(loader, "persistent_workers", None)
            described = {
                "loader_workers": workers,
                "persistent_workers": persistent if isinstance(persistent, bool) else None,
                "batches_per_epoch": batches_in(loader),
            }
            self._session.facts({"batch_size": self._batch_size, **described})
        self._loader = loader
        self._pool = queue_of(loader, self._pool)

    def sample_queue(self) -> None:
        """Count the row groups that wait now, if the loader is Petastorm's."""
        if self._pool is not None:
            self._pool.sample()

    def record_rate(self, epoch: int) -> None:
        """Record the learning rate at the start of a later epoch, if it has changed."""
        changes = self._rates.changed(epoch, learning_rate(self._optimizer))
        if changes is not None:
            self._session.facts({"learning_rates": changes})

    def end_epoch(self) -> None:
        """Record weights once, the orders of samples of the first epochs, and the loader's queue."""
        loader, self._loader = self._loader, None
        facts: Dict[str, Any] = {}
        if not self._orders and self._ranks > 1:
            sample = weights(self._optimizer, parameters_of(self._optimizer, self._model))
            if sample is not None:
                facts["weights"] = {**sample, "after": self._session.next_step - self._first_step}
        if len(self._orders) < _MOST_ORDERS:
            self._orders.append(shuffling(loader))
            facts["orders"] = self._orders[:]
        if self._pool is not None:
            facts["petastorm"] = self._pool.fact()
        if facts:
            self._session.facts(facts)

    def gradients_reduced(self) -> None:
        """Record sparse gradients once, after the first reduction, while the gradients exist."""
        if self._ranks > 1:
            parameters = parameters_of(self._optimizer, self._model)
            gradients = sparse_gradients(self._optimizer, self._model, parameters, self._ranks)
            self._session.facts({"sparse_gradients": gradients})

    def rows_recorded(self, rows: List[StepRow]) -> None:
        """Record samples per batch and batches per step, from the first step, where they are unknown.

        The last batch of an epoch may be smaller.
        """
        for row in rows:
            if not self._passes_known:
                self._passes_known = True
                self._session.facts({"backward_passes_per_step": row.micro})
            if self._batch_size is None and row.samples:
                self._batch_size = row.samples // row.micro
                self._session.facts({"batch_size": self._batch_size})
