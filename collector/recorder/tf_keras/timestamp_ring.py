"""Take timestamps in the training graph, and keep them in a ring buffer until the host reads them.

Where one call of the train function is one step, the graph returns its timestamps with the logs.
Otherwise it writes them. Reading a variable costs tens of microseconds, writing an element in the graph
costs ten, so the graph writes every step and the host reads once for many steps.
"""

from __future__ import annotations

from array import array
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, List, Optional, Sequence

import tensorflow as tf

from ..guards import read_clocks
from ..hangs import Position
from ..keras_common.finished_calls import LOST, MOST_WAITING, GraphStep, graph_step

#: Timestamps after the one that starts a step.
READY, REDUCED, DONE = range(3)
#: The timestamp that starts a step.
DATA = -1

#: Steps that the graph may be ahead of the reader.
CAPACITY = 2 * MOST_WAITING

#: The samples of a batch, the elements of each, the tokens, and the places for them, if unknown.
UNKNOWN_SIZES = (-1, -1, -1, -1)

# More steps than in any training.
_FOREVER = 2**62


class TimestampRing:
    """Timestamps of the traced step, and host slots for steps: step i has slot i modulo the capacity.

    A step is one row, which exists once the step has all its timestamps. An aborted step has no row.
    Only a timestamp in a branch of the graph, or in a nested function, is written at once, because
    later ops cannot reach it there. Nothing is cleared: a value left by an earlier step is older than
    its slot's data.

    Reading is not thread-safe: callers hold a lock.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self._read = 0
        #: Steps that were written and not taken at the last check.
        self.left = 0
        #: Whether a step's row was returned instead of written.
        self.handed_out = False
        # The traced step: its graph, the time of its data, the number of samples, of elements in each
        # of them, of tokens and of places for them, and its timestamps.
        self._graph: Any = None
        self._data: Any = None
        self._sizes: Sequence[Any] = UNKNOWN_SIZES
        self._timestamps: Dict[int, Any] = {}
        # Variables, made when there is something to write: the number of steps written, their rows,
        # and by column the timestamps from branches.
        self._written: Any = None
        self._rows: Any = None
        self._in_branches: Dict[int, Any] = {}
        # By column: a variable with the latest time of data and of ready.
        self._reached: Dict[int, Any] = {}
        # By slot: the data time of the latest step taken from it.
        self._taken: Any = None

    # -- in the graph ------------------------------------------------------------------------------

    def begin_step(self, sizes: Sequence[Any] = UNKNOWN_SIZES) -> Any:
        """Record now as the time of a step's data, and return it as a tensor.

        The caller's control dependencies decide what "now" is.

        Args:
            sizes: as UNKNOWN_SIZES, with -1 for what is unknown.
        """
        with tf.device("/CPU:0"):
            self._data = tf.timestamp()
            self._note_reached(DATA, self._data)
        self._graph, self._timestamps = _graph_here(), {}
        self._sizes = sizes
        return self._data

    def timestamp(self, column: int) -> None:
        """Record now in a column of the step."""
        with tf.device("/CPU:0"):
            now = tf.timestamp()
            if self._graph is _graph_here():
                self._timestamps[column] = now
                if column == READY:
                    self._note_reached(READY, now)
                return
            self._make_variables(column)
            slot = _value(self._written) % self.capacity
            _put(self._in_branches[column], slot, now)

    def _note_reached(self, column: int, now: Any) -> None:
        """Keep the latest time of a column where the host can read it while the step still runs."""
        if column not in self._reached:
            self._reached[column] = _variable([], tf.float64)
        tf.raw_ops.AssignVariableOp(resource=self._reached[column].handle, value=now)

    def timestamps_so_far(self) -> List[Any]:
        """Return tensors that depend on all timestamps so far, also those in branches."""
        with tf.device("/CPU:0"):
            branches = [
                tf.raw_ops.ResourceGather(resource=variable.handle, indices=0, dtype=tf.float64)
                for variable in self._in_branches.values()
            ]
        return [*self._timestamps.values(), *branches]

    def hand_out(self) -> Any:
        """Return the current step in this graph as one tensor, the input of ``graph_step``.

        None where the step must be written instead.
        """
        if not self._started_here() or self._in_branches:
            return None
        self.handed_out = True
        return self._row()

    def write(self) -> None:
        """Write the current step in this graph."""
        if not self._started_here():
            return
        self._make_variables()
        row = self._row()
        with tf.device("/CPU:0"):
            with tf.control_dependencies([row]):
                before = tf.raw_ops.ResourceCountUpTo(
                    resource=self._written.handle, limit=_FOREVER, T=tf.int64
                )
            _put(self._rows, before % self.capacity, row)

    def _started_here(self) -> bool:
        return self._data is not None and self._graph is _graph_here()

    def _row(self) -> Any:
        with tf.device("/CPU:0"):
            timestamps = [self._timestamps.get(column, 0.0) for column in (READY, REDUCED, DONE)]
            counts = (tf.cast(count, tf.float64) for count in self._sizes)
            row = tf.stack([self._data, *counts, *timestamps])
        self._graph = self._data = None
        return row

    def _make_variables(self, column: Optional[int] = None) -> None:
        """Make missing variables, with one for a column that is recorded in a branch."""
        if self._written is None:
            self._taken = array("d", bytes(8 * self.capacity))
            self._rows = _variable([self.capacity, 8], tf.float64)
            self._written = _variable([], tf.int64)
        if column is not None and column not in self._in_branches:
            self._in_branches[column] = _variable([self.capacity], tf.float64)

    # -- on the host -------------------------------------------------------------------------------

    def position(self, begin: int) -> Position:
        """Return the progress of the step whose call started at ``begin``, in monotonic nanoseconds."""
        clock = read_clocks()[1]
        data, ready = (
            round(self._reached[column].numpy() * 1e6) * 1000 - clock
            if column in self._reached
            else 0
            for column in (DATA, READY)
        )
        # An earlier step left an earlier time.
        data_or_none = data if data >= begin else None
        return Position(begin, data_or_none, ready if data_or_none and ready >= data else None)

    def count_waiting(self) -> int:
        """Return how many steps have been written and not taken yet."""
        self.left = self._count() - self._read
        return self.left

    def take(self, count: Optional[int] = None) -> List[GraphStep]:
        """Take the next ``count`` steps, or all of them.

        The result is shorter where the graph has written fewer.
        """
        written, first = self._count(), self._read
        self._read = written if count is None else min(written, first + count)
        self.left = written - self._read
        if self._read == first:
            return []
        rows = self._rows.numpy()
        branches = {
            column: variable.numpy() for column, variable in list(self._in_branches.items())
        }
        # The graph may have written others while these were read.
        overwritten = self._count() - self.capacity - first
        lost = max(0, min(self._read - first, overwritten))
        steps = [LOST] * lost
        for step in range(first + lost, self._read):
            slot = step % self.capacity
            data, samples, each, tokens, places, *timestamps = rows[slot].tolist()
            if data == self._taken[slot]:
                # Counted, and aborted before its row was written.
                continue
            self._taken[slot] = data
            for column, values in branches.items():
                timestamps[column] = max(timestamps[column], values.item(slot))
            steps.append(graph_step((data, samples, each, tokens, places, *timestamps)))
        return steps

    def _count(self) -> int:
        return 0 if self._written is None else int(self._written.numpy())


def _variable(shape: List[int], dtype: Any) -> Any:
    """Make a variable of zeros, in a separate thread.

    A ``tf.function`` lets the trace of its first call alone make variables, and a trace is a property of
    its thread. Timestamps may come with a later trace: for another shape, argument or world of ranks.
    """
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_variable_here, shape, dtype).result()


def _variable_here(shape: List[int], dtype: Any) -> Any:
    with tf.device("/CPU:0"):
        return tf.Variable(tf.zeros(shape, dtype), trainable=False, name="stallscope_stamps")


def _value(variable: Any) -> Any:
    return tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=variable.dtype)


def _graph_here() -> Any:
    """Return the graph that is being traced; None outside of a trace."""
    return None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()


def _put(variable: Any, index: Any, value: Any) -> None:
    tf.raw_ops.ResourceScatterUpdate(resource=variable.handle, indices=index, updates=value)
