"""Petastorm's loaders: a pool reads and decodes row groups, a queue holds them, batches are made of it.

Which side of it is the slow one, the queue tells: row groups pile up where it is what comes after,
such as shuffling and collating.
"""

from __future__ import annotations

import contextlib
from typing import Any, Dict, List, Optional

from ..measuring import Loader, Stages
from .batches import samples_in

# A queue that is fuller than this is not waited for.
_PILED_UP = 0.5


def is_petastorms(data: Any) -> bool:
    """Whether it is one of Petastorm's loaders, around a reader."""
    return type(data).__module__.startswith("petastorm.") and hasattr(data, "reader")


def loader_of(data: Any) -> Loader:
    """A loader of Petastorm's, whose queue is looked at after every batch."""
    queue = PoolQueue(data)

    def samples(batch: Any) -> Any:
        queue.look()
        return samples_in(batch)

    def stages() -> Stages:
        return [], queue.in_words()

    return Loader("Petastorm", lambda: iter(data), samples, 1, stages)


def queue_of(data: Any, known: Optional["PoolQueue"]) -> Optional["PoolQueue"]:
    """The queue of a loader of Petastorm's, ``known`` where that is it; None of other loaders."""
    if not is_petastorms(data):
        return None
    same = known is not None and known.reader is data.reader
    return known if same else PoolQueue(data)


class PoolQueue:
    """What waits between a pool and training."""

    def __init__(self, loader: Any) -> None:
        self.reader = loader.reader
        self._loader = type(loader).__name__
        self._waiting: List[int] = []

    def look(self) -> None:
        # It is Petastorm's, and training's: whatever it raises must go no further.
        with contextlib.suppress(Exception):
            size = self.reader.diagnostics.get("output_queue_size")
            if isinstance(size, int):
                self._waiting.append(size)

    def fact(self) -> Dict[str, Any]:
        """The pool, and how many row groups waited after it on average; None for what it hides."""
        pool = getattr(self.reader, "_workers_pool", None)
        waiting = self._later()
        return {
            "pool": None if pool is None else type(pool).__name__,
            "workers": _count(getattr(pool, "workers_count", None)),
            "room": _count(getattr(pool, "_results_queue_size", None)),
            "waiting": sum(waiting) / len(waiting) if waiting else None,
            "looks": len(waiting),
            "batched": getattr(self.reader, "batched_output", None),
            "loader": self._loader,
        }

    def in_words(self) -> str:
        pool = getattr(self.reader, "_workers_pool", None)
        workers = getattr(pool, "workers_count", None)
        size = "" if workers is None else " of %s" % workers
        name = "Petastorm's pool (%s%s)" % (type(pool).__name__, size)
        return "%s: %s. %s" % (name, self._who_waits(), _ONCE)

    def _later(self) -> List[int]:
        """At the start the queue is empty, or filled beforehand, whichever side is slow."""
        return self._waiting[len(self._waiting) // 2 :]

    def _who_waits(self) -> str:
        later = self._later()
        if not later:
            return "it does not tell what waits in its queue"
        mean = sum(later) / len(later)
        room = getattr(getattr(self.reader, "_workers_pool", None), "_results_queue_size", None)
        if not room:
            return "%.3g row groups waited on average" % mean
        piled = mean > _PILED_UP * room
        slow = "what comes after it" if piled else "the pool, which reads and decodes,"
        return "%.3g row groups of at most %s waited on average: %s takes most" % (mean, room, slow)


def _count(value: Any) -> Optional[int]:
    return value if isinstance(value, int) else None


# Petastorm refuses to reset a reader in the middle of an epoch.
_ONCE = "Its reader does not begin again before its end: training needs another one"
