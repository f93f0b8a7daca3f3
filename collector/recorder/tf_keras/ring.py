"""A small ring of stamps that the training graph writes and the host reads now and then.

Reading a variable costs tens of microseconds, writing one of its elements in the graph a few: so
the graph writes every step and the host reads once for many steps.
"""

from __future__ import annotations

from typing import Any, List, Optional

import tensorflow as tf

from .calls import MOST_WAITING
from .steps import LOST, GraphStep

#: Stamps besides the one that begins a step.
READY, REDUCED, DONE = range(3)

#: Steps that the graph may be ahead of who reads them.
CAPACITY = 2 * MOST_WAITING

# More steps than anybody trains.
_FOREVER = 2**62


class StampRing:
    """Slots of stamps in variables on the host; slot of step i is i modulo the capacity.

    Every op of a graph costs about a microsecond per step, so there is a variable for each stamp, of
    which one op writes an element. Nothing is cleared: what an earlier step left is older than its
    slot's data.

    Reading is not safe against another thread's: callers hold a lock.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self._read = 0
        #: Steps that had begun at the last look and were not taken.
        self.left = 0
        # The slot of the step that is traced, and the graph that it is traced in.
        self._slot: Any = None
        self._graph: Any = None
        with tf.init_scope(), tf.device("/CPU:0"):
            self._begun = _variable(tf.zeros([], tf.int64))
            # When a step's data was there, and how many samples that is.
            self._data = _variable(tf.zeros([capacity, 2], tf.float64))
            self._stamps = [_variable(tf.zeros([capacity], tf.float64)) for _ in range(3)]

    def begin_step(self, samples: Any) -> Any:
        """In the graph: take the next slot, and stamp its data with now.

        Control dependencies of the caller decide what "now" is; it is returned as a tensor.
        """
        with tf.device("/CPU:0"):
            now = tf.timestamp()
            with tf.control_dependencies([now]):
                before = tf.raw_ops.ResourceCountUpTo(
                    resource=self._begun.handle, limit=_FOREVER, T=tf.int64
                )
            self._slot, self._graph = before % self.capacity, _graph_here()
            _put(self._data, self._slot, tf.stack([now, tf.cast(samples, tf.float64)]))
            return now

    def stamp(self, column: int) -> None:
        """In the graph: stamp a column of the current step's slot with now."""
        with tf.device("/CPU:0"):
            now = tf.timestamp()
            _put(self._stamps[column], self._slot_here(), now)

    def stamped(self) -> List[Any]:
        """In the graph: tensors that are there when all stamps up to here are, in branches, too."""
        with tf.device("/CPU:0"):
            return [
                tf.raw_ops.ResourceGather(resource=one.handle, indices=0, dtype=tf.float64)
                for one in self._stamps[:DONE]
            ]

    def look(self) -> int:
        """On the host: how many steps have begun that were not taken yet."""
        self.left = int(self._begun.numpy()) - self._read
        return self.left

    def take(self, count: Optional[int] = None) -> List[GraphStep]:
        """On the host: the next ``count`` steps that were not taken yet, otherwise all that have begun.

        Fewer come back where the graph has begun fewer.
        """
        begun, first = int(self._begun.numpy()), self._read
        self._read = begun if count is None else min(begun, first + count)
        self.left = begun - self._read
        data = self._data.numpy()
        ready, reduced, done = (one.numpy() for one in self._stamps)
        # Others may have begun while these were read.
        written = int(self._begun.numpy())
        overwritten = max(0, min(self._read, written - self.capacity) - first)
        steps = [LOST] * overwritten
        for step in range(first + overwritten, self._read):
            slot = step % self.capacity
            began, samples = data[slot].tolist()
            steps.append(
                GraphStep(
                    _nanoseconds(began, began),
                    _nanoseconds(ready.item(slot), began),
                    _nanoseconds(reduced.item(slot), began),
                    _nanoseconds(done.item(slot), began),
                    int(samples) if samples >= 0 else None,
                )
            )
        return steps

    def _slot_here(self) -> Any:
        """The slot of the step that runs; from the graph that began it only where that is traced now.

        A function inside of it, or a branch, may be called from other graphs as well.
        """
        if self._graph is _graph_here():
            return self._slot
        begun = tf.raw_ops.ReadVariableOp(resource=self._begun.handle, dtype=tf.int64)
        return (begun - 1) % self.capacity


def _variable(initial: Any) -> Any:
    return tf.Variable(initial, trainable=False, name="stallscope_stamps")


def _graph_here() -> Any:
    """The graph that is being traced; None where nothing is."""
    return None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()


def _put(variable: Any, index: Any, value: Any) -> None:
    tf.raw_ops.ResourceScatterUpdate(resource=variable.handle, indices=index, updates=value)


def _nanoseconds(seconds: float, began: float) -> Optional[int]:
    # tf.timestamp has microseconds; the rounding takes the noise of the float away again.
    return round(seconds * 1e6) * 1000 if seconds >= began > 0 else None
