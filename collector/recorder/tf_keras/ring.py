"""A small ring of stamps that the training graph writes and the host reads now and then.

Reading a variable costs tens of microseconds, writing one of its elements in the graph a few: so
the graph writes every step and the host reads once for many steps.
"""

from __future__ import annotations

from typing import Any, List, Optional

import tensorflow as tf

from .steps import LOST, GraphStep
from .stream import MOST_PENDING

# Columns of one slot. What is 0 was not written in that step.
DATA, READY, REDUCED, DONE, SAMPLES = range(5)
_COLUMNS = 5
# Element 0 counts the steps that the graph has begun.
_FIRST = 1

#: Steps that the graph may be ahead of who reads them.
CAPACITY = 2 * MOST_PENDING


class StampRing:
    """Slots of stamps in one variable on the host; slot of step i is i modulo the capacity.

    Reading is not safe against another thread's: callers hold a lock.
    """

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.capacity = capacity
        self._read = 0
        #: Steps that had begun at the last look and were not taken.
        self.left = 0
        with tf.init_scope(), tf.device("/CPU:0"):
            self._cells = tf.Variable(
                tf.zeros([_FIRST + capacity * _COLUMNS], tf.float64),
                trainable=False,
                name="stallscope_stamps",
            )

    def begin_step(self, samples: Any) -> Any:
        """In the graph: take the next slot, clear it, and stamp its data column with now.

        Control dependencies of the caller decide what "now" is; it is returned as a tensor.
        """
        with tf.device("/CPU:0"):
            now = tf.timestamp()
            with tf.control_dependencies([now]):
                self._add(0, tf.constant(1.0, tf.float64))
            start = self._slot_start()
            self._put(start + DATA, [now, 0.0, 0.0, 0.0, tf.cast(samples, tf.float64)])
            return now

    def stamp(self, column: int) -> None:
        """In the graph: stamp a column of the current step's slot with now."""
        with tf.device("/CPU:0"):
            now = tf.timestamp()
            self._put(self._slot_start() + column, [now])

    def look(self) -> int:
        """On the host: how many steps have begun that were not taken yet."""
        self.left = int(self._cells.numpy()[0]) - self._read
        return self.left

    def take(self, count: Optional[int] = None) -> List[GraphStep]:
        """On the host: the next ``count`` steps that were not taken yet, otherwise all that have begun.

        Fewer come back where the graph has begun fewer.
        """
        cells = self._cells.numpy()
        begun = int(cells[0])
        first = self._read
        self._read = begun if count is None else min(begun, first + count)
        self.left = begun - self._read
        overwritten = max(0, min(self._read, begun - self.capacity) - first)
        steps = [LOST] * overwritten
        for step in range(first + overwritten, self._read):
            start = _FIRST + (step % self.capacity) * _COLUMNS
            data, ready, reduced, done, samples = cells[start : start + _COLUMNS].tolist()
            steps.append(
                GraphStep(
                    _nanoseconds(data),
                    _nanoseconds(ready),
                    _nanoseconds(reduced),
                    _nanoseconds(done),
                    int(samples) if samples >= 0 else None,
                )
            )
        return steps

    def _slot_start(self) -> Any:
        begun = tf.cast(
            tf.raw_ops.ResourceGather(
                resource=self._cells.handle, indices=tf.constant(0), dtype=tf.float64
            ),
            tf.int64,
        )
        return _FIRST + ((begun - 1) % self.capacity) * _COLUMNS

    def _add(self, index: int, value: Any) -> None:
        tf.raw_ops.ResourceScatterAdd(
            resource=self._cells.handle, indices=tf.constant([index], tf.int64), updates=[value]
        )

    def _put(self, start: Any, values: List[Any]) -> None:
        tf.raw_ops.ResourceScatterUpdate(
            resource=self._cells.handle,
            indices=start + tf.range(len(values), dtype=tf.int64),
            updates=tf.stack([tf.cast(value, tf.float64) for value in values]),
        )


def _nanoseconds(seconds: float) -> Optional[int]:
    # tf.timestamp has microseconds; the rounding takes the noise of the float away again.
    return round(seconds * 1e6) * 1000 if seconds > 0 else None
