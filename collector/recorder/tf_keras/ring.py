"""The timestamps of steps in the training graph, and a small ring that they wait in for the host.

Where one call of the train function is one step, the graph hands its timestamps out with the logs.
Otherwise it writes them: to read a variable costs tens of microseconds, to write an element of one
in the graph ten, so the graph writes every step and the host reads once for many steps.
"""

from __future__ import annotations

from array import array
from typing import Any, Dict, List, Optional

import tensorflow as tf

from .calls import MOST_WAITING
from .steps import LOST, GraphStep, graph_step

#: Timestamps besides the one that begins a step.
READY, REDUCED, DONE = range(3)

#: Steps that the graph may be ahead of who reads them.
CAPACITY = 2 * MOST_WAITING

# More steps than anybody trains.
_FOREVER = 2**62


class StampRing:
    """Timestamps of the traced step, and slots for steps on the host; step i has slot i modulo its size.

    A step is one row, which is there when the step has all its timestamps. One that is broken off is
    none. Only what is stamped in a branch of the graph, or in a function of its own, where nobody
    after it can take it from, is written there at once. Nothing is cleared: what an earlier step
    left is older than its slot's data.

    Reading is not safe against another thread's: callers hold a lock.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self._read = 0
        #: Steps that had been written at the last look and were not taken.
        self.left = 0
        #: Whether a step's row was handed out, rather than written.
        self.handed_out = False
        # Of the step that is traced: the graph, when its data was there and how many samples that is,
        # and its timestamps.
        self._graph: Any = None
        self._data: Any = None
        self._samples: Any = -1
        self._stamps: Dict[int, Any] = {}
        # Variables, as soon as there is something to write: how many steps were written, their rows, and
        # by column what was stamped in branches.
        self._written: Any = None
        self._rows: Any = None
        self._in_branches: Dict[int, Any] = {}
        # By slot, when the data was there of the step that was taken from it last.
        self._taken: Any = None

    # -- in the graph ------------------------------------------------------------------------------

    def begin_step(self, samples: Any) -> Any:
        """Record now as the time of a step's data.

        Control dependencies of the caller decide what "now" is; it is returned as a tensor.
        """
        with tf.device("/CPU:0"):
            self._data = tf.timestamp()
        self._graph, self._samples, self._stamps = _graph_here(), samples, {}
        return self._data

    def stamp(self, column: int) -> None:
        """Record now in a column of the step."""
        with tf.device("/CPU:0"):
            now = tf.timestamp()
            if self._graph is _graph_here():
                self._stamps[column] = now
                return
            self._make_variables(column)
            slot = _value(self._written) % self.capacity
            _put(self._in_branches[column], slot, now)

    def stamped(self) -> List[Any]:
        """Tensors that are there when all timestamps up to here are, in branches, too."""
        with tf.device("/CPU:0"):
            branches = [
                tf.raw_ops.ResourceGather(resource=one.handle, indices=0, dtype=tf.float64)
                for one in self._in_branches.values()
            ]
        return [*self._stamps.values(), *branches]

    def hand_out(self) -> Any:
        """The step that has begun in this graph as one tensor, as ``graph_step`` takes it.

        None where that has to be written instead.
        """
        if not self._begun_here() or self._in_branches:
            return None
        self.handed_out = True
        return self._row()

    def write(self) -> None:
        """Write the step that has begun in this graph."""
        if not self._begun_here():
            return
        self._make_variables()
        row = self._row()
        with tf.device("/CPU:0"):
            with tf.control_dependencies([row]):
                before = tf.raw_ops.ResourceCountUpTo(
                    resource=self._written.handle, limit=_FOREVER, T=tf.int64
                )
            _put(self._rows, before % self.capacity, row)

    def _begun_here(self) -> bool:
        return self._data is not None and self._graph is _graph_here()

    def _row(self) -> Any:
        with tf.device("/CPU:0"):
            stamps = [self._stamps.get(column, 0.0) for column in (READY, REDUCED, DONE)]
            row = tf.stack([self._data, tf.cast(self._samples, tf.float64), *stamps])
        self._graph = self._data = None
        return row

    def _make_variables(self, column: Optional[int] = None) -> None:
        """Those that are missing, with that of a column that is stamped in a branch."""
        with tf.init_scope(), tf.device("/CPU:0"):
            if self._written is None:
                self._taken = array("d", bytes(8 * self.capacity))
                self._rows = _variable(tf.zeros([self.capacity, 5], tf.float64))
                self._written = _variable(tf.zeros([], tf.int64))
            if column is not None and column not in self._in_branches:
                self._in_branches[column] = _variable(tf.zeros([self.capacity], tf.float64))

    # -- on the host -------------------------------------------------------------------------------

    def look(self) -> int:
        """How many steps have been written that were not taken yet."""
        self.left = self._count() - self._read
        return self.left

    def take(self, count: Optional[int] = None) -> List[GraphStep]:
        """The next ``count`` steps that were not taken yet, otherwise all of them.

        Fewer come back where the graph has written fewer.
        """
        written, first = self._count(), self._read
        self._read = written if count is None else min(written, first + count)
        self.left = written - self._read
        if self._read == first:
            return []
        rows = self._rows.numpy()
        branches = {column: one.numpy() for column, one in list(self._in_branches.items())}
        # Others may have been written while these were read.
        overwritten = self._count() - self.capacity - first
        lost = max(0, min(self._read - first, overwritten))
        steps = [LOST] * lost
        for step in range(first + lost, self._read):
            slot = step % self.capacity
            data, samples, *stamps = rows[slot].tolist()
            if data == self._taken[slot]:
                # Counted, and broken off before its row.
                continue
            self._taken[slot] = data
            for column, values in branches.items():
                stamps[column] = max(stamps[column], values.item(slot))
            steps.append(graph_step((data, samples, *stamps)))
        return steps

    def _count(self) -> int:
        return 0 if self._written is None else int(self._written.numpy())


def _variable(initial: Any) -> Any:
    return tf.Variable(initial, trainable=False, name="stallscope_stamps")


def _value(variable: Any) -> Any:
    return tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)


def _graph_here() -> Any:
    """The graph that is being traced; None where nothing is."""
    return None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()


def _put(variable: Any, index: Any, value: Any) -> None:
    tf.raw_ops.ResourceScatterUpdate(resource=variable.handle, indices=index, updates=value)
