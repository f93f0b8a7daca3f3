"""Read the queue of Petastorm's loaders, into which a pool reads and decodes row groups.

The queue shows which side is slow: row groups pile up if the slow side is after it, such as shuffling
and collating.
"""

from __future__ import annotations

import contextlib
from typing import Any, Dict, List, Optional

from ..input.measuring_input import Loader, Stages
from ..job.job_facts import count_or_none
from .batches import samples_in

# With a fuller queue training does not wait for the pool.
_PILED_UP = 0.5


def is_petastorm_loader(data: Any) -> bool:
    """Return whether it is one of Petastorm's loaders, with a reader."""
    return type(data).__module__.startswith("petastorm.") and hasattr(data, "reader")


def petastorm_loader(data: Any) -> Loader:
    """Describe one of Petastorm's loaders; its queue is checked after every batch."""
    queue = PoolQueue(data)

    def samples(batch: Any) -> Any:
        queue.sample()
        return samples_in(batch)

    def stages() -> Stages:
        return [], queue.description()

    return Loader("pytorch", "Petastorm", lambda: iter(data), samples, 1, stages)


def queue_of(data: Any, known: Optional["PoolQueue"]) -> Optional["PoolQueue"]:
    """Return the queue of Petastorm's loader, ``known`` if it is the same; None for other loaders."""
    if not is_petastorm_loader(data):
        return None
    same = known is not None and known.reader is data.reader
    return known if same else PoolQueue(data)


class PoolQueue:
    """The queue between a pool and training."""

    def __init__(self, loader: Any) -> None:
        self.reader = loader.reader
        self._loader = type(loader).__name__
        self._waiting: List[int] = []

    def sample(self) -> None:
        # Petastorm's reader serves training: its errors must not spread.
        with contextlib.suppress(Exception):
            size = self.reader.diagnostics.get("output_queue_size")
            if isinstance(size, int):
                self._waiting.append(size)

    def fact(self) -> Dict[str, Any]:
        """Describe the pool and the mean number of waiting row groups; None where hidden."""
        pool = getattr(self.reader, "_workers_pool", None)
        waiting = self._after_start()
        return {
            "pool": None if pool is None else type(pool).__name__,
            "workers": count_or_none(getattr(pool, "workers_count", None)),
            "room": count_or_none(getattr(pool, "_results_queue_size", None)),
            "waiting": sum(waiting) / len(waiting) if waiting else None,
            "looks": len(waiting),
            "batched": getattr(self.reader, "batched_output", None),
            "loader": self._loader,
        }

    def description(self) -> str:
        pool = getattr(self.reader, "_workers_pool", None)
        workers = getattr(pool, "workers_count", None)
        size = "" if workers is None else " of %s" % workers
        name = "Petastorm's pool (%s%s)" % (type(pool).__name__, size)
        return "%s: %s. %s" % (name, self._slow_side(), _ONCE)

    def _after_start(self) -> List[int]:
        """Skip the start: then the queue is empty or full, whichever side is slow."""
        return self._waiting[len(self._waiting) // 2 :]

    def _slow_side(self) -> str:
        later = self._after_start()
        if not later:
            return "the length of its queue is unknown"
        mean = sum(later) / len(later)
        capacity = getattr(getattr(self.reader, "_workers_pool", None), "_results_queue_size", None)
        if not capacity:
            return "%.3g row groups waited on average" % mean
        piled = mean > _PILED_UP * capacity
        slow = "the work after it" if piled else "the pool, which reads and decodes,"
        return "%.3g row groups of at most %s waited on average: %s takes most time" % (
            mean,
            capacity,
            slow,
        )


# Petastorm refuses to reset a reader in the middle of an epoch.
_ONCE = "Its reader cannot restart before its end: training needs another one"
