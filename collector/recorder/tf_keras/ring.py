"""A small ring of stamps that the training graph writes and the host reads now and then.

Reading a variable costs tens of microseconds, writing one of its elements in the graph a few: so
the graph writes every step and the host reads once for many steps.
"""

from __future__ import annotations

from array import array
from typing import Any, Dict, List, Optional

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

    Every op of a graph costs about a microsecond per step, and one that writes a variable several: so a
    step is one row, which is written when the step has all of its stamps. A step that is broken off is
    none. Only what is stamped in a branch of the graph, or in a function of its own, where nobody behind
    it can take it from, is written there at once. Nothing is cleared: what an earlier step left is older
    than its slot's data.

    Reading is not safe against another thread's: callers hold a lock.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self._read = 0
        #: Steps that had been written at the last look and were not taken.
        self.left = 0
        # Of the step that is traced: the graph, when its data was there and how many samples that is,
        # and its stamps.
        self._graph: Any = None
        self._data: Any = None
        self._samples: Any = -1
        self._stamps: Dict[int, Any] = {}
        # Stamps of branches, where there are any.
        self._aside: Dict[int, Any] = {}
        with tf.init_scope(), tf.device("/CPU:0"):
            self._written = _variable(tf.zeros([], tf.int64))
            # When a step's data was there, how many samples that is, and its other stamps.
            self._rows = _variable(tf.zeros([capacity, 5], tf.float64))
        # By slot, when the data was there of the step that was taken from it last.
        self._taken = array("d", bytes(8 * capacity))

    def begin_step(self, samples: Any) -> Any:
        """In the graph: stamp a step's data with now.

        Control dependencies of the caller decide what "now" is; it is returned as a tensor.
        """
        with tf.device("/CPU:0"):
            self._data = tf.timestamp()
        self._graph, self._samples, self._stamps = _graph_here(), samples, {}
        return self._data

    def stamp(self, column: int) -> None:
        """In the graph: stamp a column of the step with now."""
        with tf.device("/CPU:0"):
            now = tf.timestamp()
            if self._graph is _graph_here():
                self._stamps[column] = now
            else:
                _put(self._beside(column), self._slot(_value(self._written)), now)

    def stamped(self) -> List[Any]:
        """In the graph: tensors that are there when all stamps up to here are, in branches, too."""
        with tf.device("/CPU:0"):
            beside = [
                tf.raw_ops.ResourceGather(resource=one.handle, indices=0, dtype=tf.float64)
                for one in self._aside.values()
            ]
        return [*self._stamps.values(), *beside]

    def end_step(self) -> None:
        """In the graph: the step that began in it has all of its stamps."""
        if self._data is None or self._graph is not _graph_here():
            return
        with tf.device("/CPU:0"):
            stamps = [self._stamps.get(column, 0.0) for column in (READY, REDUCED, DONE)]
            row = tf.stack([self._data, tf.cast(self._samples, tf.float64), *stamps])
            with tf.control_dependencies([row]):
                before = tf.raw_ops.ResourceCountUpTo(
                    resource=self._written.handle, limit=_FOREVER, T=tf.int64
                )
            _put(self._rows, self._slot(before), row)
        self._graph = self._data = None

    def look(self) -> int:
        """On the host: how many steps have been written that were not taken yet."""
        self.left = int(self._written.numpy()) - self._read
        return self.left

    def take(self, count: Optional[int] = None) -> List[GraphStep]:
        """On the host: the next ``count`` steps that were not taken yet, otherwise all of them.

        Fewer come back where the graph has written fewer.
        """
        written, first = int(self._written.numpy()), self._read
        self._read = written if count is None else min(written, first + count)
        self.left = written - self._read
        rows = self._rows.numpy()
        aside = {column: one.numpy() for column, one in list(self._aside.items())}
        # Others may have been written while these were read.
        overwritten = int(self._written.numpy()) - self.capacity - first
        lost = max(0, min(self._read - first, overwritten))
        steps = [LOST] * lost
        for step in range(first + lost, self._read):
            slot = step % self.capacity
            data, samples, *stamps = rows[slot].tolist()
            if data == self._taken[slot]:
                # Counted, and broken off in front of its row.
                continue
            self._taken[slot] = data
            for column, values in aside.items():
                stamps[column] = max(stamps[column], values.item(slot))
            at, ready, reduced, done = (_nanoseconds(one, data) for one in (data, *stamps))
            counted = int(samples) if samples >= 0 else None
            steps.append(GraphStep(at, ready, reduced, done, counted))
        return steps

    def _beside(self, column: int) -> Any:
        """The variable of a stamp in branches."""
        found = self._aside.get(column)
        if found is None:
            with tf.init_scope(), tf.device("/CPU:0"):
                found = _variable(tf.zeros([self.capacity], tf.float64))
            self._aside[column] = found
        return found

    def _slot(self, step: Any) -> Any:
        return step % self.capacity


def _variable(initial: Any) -> Any:
    return tf.Variable(initial, trainable=False, name="stallscope_stamps")


def _value(variable: Any) -> Any:
    return tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)


def _graph_here() -> Any:
    """The graph that is being traced; None where nothing is."""
    return None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()


def _put(variable: Any, index: Any, value: Any) -> None:
    tf.raw_ops.ResourceScatterUpdate(resource=variable.handle, indices=index, updates=value)


def _nanoseconds(seconds: float, began: float) -> Optional[int]:
    # tf.timestamp has microseconds; the rounding takes the noise of the float away again.
    return round(seconds * 1e6) * 1000 if seconds >= began > 0 else None
