"""Put timestamps into a model's train step and its optimizer, and take them out again.

The place of a timestamp decides its meaning (docs/step-log.md describes the traps):

- *data*: after the batch's tensors, before the model's own train step;
- *ready*: after the gradients, parallel to the allreduce, so that communication still overlaps backward;
- *reduced*: after identities of the reduced gradients. A control dependency on the reduced tensors
  themselves would not wait: Horovod wraps them in a function, and after inlining only the function's
  stateful ops are waited for. The allreduce is not stateful.
"""

from __future__ import annotations

import functools
import sys
import threading
from typing import Any, Callable, Dict, List, Optional, Tuple

import tensorflow as tf

try:
    from tensorflow.python.ops import control_flow_util
except ImportError:  # not public: without it only Keras' own use of XLA is detected
    control_flow_util = None

from ..guards import patch
from ..job.job_facts import gradient_sizes, known, largest_gathered
from ..loop_steps import Lengths, padded_in
from .tf_keras_facts import innermost, reductions_of
from .timestamp_ring import DONE, READY, REDUCED, TimestampRing

# All added ops are in a scope of this name. Horovod names tensors after their ops, so the names of the
# model's own ops must be the same on ranks with the callback and on ranks without it.
_SCOPE = "stallscope"


def _while_tracing(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method that runs in a trace: on an error it returns its first argument unchanged.

    An error that leaves a trace would end the training. Autograph must not convert any of this.
    """

    @functools.wraps(method)
    def guarded(self: "Instrumentation", first: Any, *more: Any) -> Any:
        try:
            return method(self, first, *more)
        except Exception as error:
            self.active = False
            self.trouble = "no timestamps could be put into the train step: %r" % error
            return first

    return tf.autograph.experimental.do_not_convert(guarded)  # type: ignore[no-any-return]


class Instrumentation:
    """The timestamps of one training session in one model.

    Without a ``ring`` nothing is added to the graph; traces are only observed. ``several_per_call``:
    one call of the train function may run more than one step.
    """

    def __init__(
        self, ring: Optional[TimestampRing], several_per_call: bool, single_process: bool
    ) -> None:
        self._ring = ring
        self._several_per_call = several_per_call
        self._single_process = single_process
        self._undo: List[Callable[[], None]] = []
        #: Whether this session still adds timestamps to new traces.
        self.active = True
        #: Whether a reduction by Horovod's optimizer or tape was traced.
        self.reduction_traced = False
        #: Whether several tapes reduce in one step: a timestamp could belong to any of them.
        self.several_tapes = False
        self._tapes_in_step = 0
        #: Why a timestamp could not be placed; None without trouble.
        self.trouble: Optional[str] = None
        #: Facts about the gradients, known after the first trace.
        self.gradients: Dict[str, Any] = {}
        #: Timestamps that were placed, in order.
        self.placed: List[str] = []
        #: Whether the caller of the traced train function removes the timestamps from its logs.
        self.takes_out: Callable[[], bool] = lambda: False
        #: Their key in the logs.
        self.key = "~stallscope %x" % id(self)

    def install(self, model: Any) -> None:
        """Wrap the train step and the reduction of gradients, on the instances only."""
        optimizer = getattr(model, "optimizer", None)
        self._replace(model, "train_step", self._train_step)
        reductions = reductions_of(optimizer)
        for owner, name in reductions:
            self._replace(owner, name, self._reduction)
        if self._single_process and not reductions:
            owner = innermost(optimizer)
            for name in ("compute_gradients", "_compute_gradients"):
                if callable(getattr(owner, name, None)):
                    self._replace(owner, name, self._gradients_only)
                    break

    def remove(self) -> None:
        """Restore the model and the optimizer."""
        self.active = False
        while self._undo:
            self._undo.pop()()

    def _replace(self, owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
        self._undo.append(patch(owner, name, wrap(getattr(owner, name))))

    # The wrappers themselves are not decorated, so that autograph treats their callees as it would
    # without them; the wrappers' own functions are never converted.

    def _train_step(self, original: Any) -> Any:
        def train_step(data: Any) -> Any:
            self._tapes_in_step = 0
            with _TapesOfStep(self._reduction_of_tape):
                outputs = original(self._timestamp_data(data))
            return self._finish_step(outputs)

        return train_step

    def _reduction_of_tape(self, original: Any) -> Any:
        self._tapes_in_step += 1
        self.several_tapes = self.several_tapes or self._tapes_in_step > 1
        return self._reduction(original)

    def _reduction(self, original: Any) -> Any:
        def allreduce_grads(gradients: Any, *args: Any, **kwargs: Any) -> Any:
            self._timestamp_gradients(gradients, args[0] if args else None)
            reduced = original(gradients, *args, **kwargs)
            self._record_reduction(reduced, gradients, args[0] if args else None)
            return reduced

        return allreduce_grads

    def _gradients_only(self, original: Any) -> Any:
        def compute_gradients(*args: Any, **kwargs: Any) -> Any:
            pairs = list(original(*args, **kwargs))
            gradients, variables = [first for first, _ in pairs], [second for _, second in pairs]
            self._timestamp_gradients(gradients, variables)
            return pairs

        return compute_gradients

    @_while_tracing
    def _timestamp_data(self, data: Any) -> Any:
        """Timestamp the batch before passing it on: a parallel timestamp may come late on busy cores."""
        ring = self._ring_here()
        if ring is None:
            return data
        with tf.name_scope(_SCOPE):
            with tf.control_dependencies(done(tensors_of(data))):
                timestamp = ring.begin_step(
                    [*sizes_of(data), *(known(lambda: tokens_of(data)) or (-1, -1))]
                )
            self._note_placed("data")
            with tf.control_dependencies([timestamp]):
                return tf.nest.map_structure(_same, data, expand_composites=True)

    @_while_tracing
    def _finish_step(self, outputs: Any) -> Any:
        """Finish the step; with several steps per call, timestamp its end, which the host cannot see."""
        ring = self._ring_here()
        if ring is None:
            return outputs
        if self._several_per_call:
            # After the other timestamps too: with accumulation they are in a branch of the graph, and
            # the step's outputs do not wait for that branch.
            self._timestamp(ring, DONE, [*tensors_of(outputs), *ring.timestamps_so_far()])
        with tf.name_scope(_SCOPE):
            timestamps = ring.hand_out() if self._hands_out(outputs) else None
            if timestamps is not None:
                return {**outputs, self.key: timestamps}
            ring.write()
        return outputs

    def _hands_out(self, outputs: Any) -> bool:
        # TensorFlow sorts the keys of logs, and keys of other types cannot be compared with ours.
        named = type(outputs) is dict and all(type(name) is str for name in outputs)
        return named and not self._several_per_call and self.takes_out()

    @_while_tracing
    def _timestamp_gradients(self, gradients: Any, variables: Any) -> None:
        if not self.active:
            return
        self.gradients = gradient_facts(gradients, variables)
        ring = self._ring_here()
        tensors = tensors_of(gradients)
        if ring is not None and tensors:
            self._timestamp(ring, READY, tensors)
            self._note_placed("ready")

    @_while_tracing
    def _record_reduction(self, reduced: Any, gradients: Any, variables: Any) -> None:
        self.reduction_traced = True
        if self.active:
            # Timestamps matter more than this fact.
            gathered = known(lambda: _gathered(reduced, gradients, variables))
            self.gradients["sparse_gradients"] = gathered
        ring = self._ring_here()
        tensors = tensors_of(reduced)
        if ring is not None and tensors:
            self._timestamp(ring, REDUCED, tensors)
            self._note_placed("reduced")

    def _ring_here(self) -> Optional[TimestampRing]:
        """Return the ring if the current trace can take a timestamp; otherwise None."""
        if self._ring is None or not self.active:
            return None
        if in_xla():
            self.trouble = "XLA compiles a part of the train step and has no clock"
            return None
        return self._ring

    def _timestamp(self, ring: TimestampRing, column: int, after: List[Any]) -> None:
        with tf.name_scope(_SCOPE), tf.control_dependencies(done(after)):
            ring.timestamp(column)

    def _note_placed(self, timestamp: str) -> None:
        if timestamp not in self.placed:
            self.placed.append(timestamp)


class _TapesOfStep:
    """A context in which the tapes of this thread get a wrapped reduction.

    A train step makes its tapes whenever it is traced, from a class of Horovod that is not public. There
    is no instance to patch, so the class is patched during the trace.

    Args:
        wrap: takes a tape's function that reduces gradients and returns its replacement.
    """

    def __init__(self, wrap: Callable[[Any], Any]) -> None:
        self._wrap = wrap
        self._restore: Optional[Callable[[], None]] = None

    def __enter__(self) -> None:
        # Not public: where it is missing, reductions by tapes are not seen.
        tapes = getattr(sys.modules.get("horovod.tensorflow"), "_DistributedGradientTape", None)
        if tapes is None:
            return
        thread, original, wrap = threading.get_ident(), tapes.__init__, self._wrap

        def construct(tape: Any, *args: Any, **kwargs: Any) -> None:
            original(tape, *args, **kwargs)
            reduces = getattr(tape, "_allreduce_grads", None)
            if reduces is not None and threading.get_ident() == thread:
                tape._allreduce_grads = wrap(reduces)

        self._restore = patch(tapes, "__init__", construct)

    def __exit__(self, *_error: Any) -> None:
        if self._restore is not None:
            self._restore()


def tensors_of(structure: Any) -> List[Any]:
    """Return the dense tensors of a structure, with composites (ragged, sparse, slices) taken apart."""
    flat = tf.nest.flatten(structure, expand_composites=True)
    return [tensor for tensor in flat if isinstance(tensor, (tf.Tensor, tf.Variable))]


def done(tensors: List[Any]) -> List[Any]:
    """Return control inputs that wait for the tensors' values."""
    if not tensors:
        return []
    if not tf.config.list_logical_devices("GPU"):
        # One op for all of them: one op for each of hundreds of gradients would cost more than the
        # timestamp.
        return [tf.identity_n(tensors)[0]]
    identities = [tf.identity(tensor) for tensor in tensors]
    # On a GPU an op has run, for the executor, as soon as its kernel is enqueued. A copy of one
    # element to the host, ordered after all of them, arrives when the stream has finished them.
    with tf.control_dependencies(identities):
        element = tf.reshape(identities[-1], [-1])[:1]
    with tf.device("/CPU:0"):
        return [tf.identity(element)]


def _same(leaf: Any) -> Any:
    return tf.identity(leaf) if isinstance(leaf, tf.Tensor) else leaf


def sizes_of(data: Any) -> Tuple[Any, Any]:
    """Return the samples in a batch, and the numbers in each sample; -1 if unknown.

    Samples are the first dimension of the first tensor that has one. What the traced shape tells is a
    constant, which costs the graph nothing.
    """
    for leaf in tf.nest.flatten(data):
        if isinstance(leaf, tf.RaggedTensor):
            rows, numbers = leaf.nrows(), tf.size(leaf.flat_values, tf.int64)
            with tf.device("/CPU:0"):
                counts = tf.cast(numbers, tf.float64), tf.cast(rows, tf.float64)
                return rows, tf.math.divide_no_nan(*counts)
        if isinstance(leaf, tf.SparseTensor):
            return leaf.dense_shape[0], -1
        if isinstance(leaf, (tf.Tensor, tf.Variable)) and leaf.shape.rank not in (None, 0):
            static, tail = leaf.shape[0], leaf.shape[1:]
            samples = tf.shape(leaf)[0] if static is None else static
            if tail.rank == 0:
                return samples, -1
            each = tail.num_elements()
            return samples, tf.reduce_prod(tf.shape(leaf)[1:]) if each is None else each
    return -1, -1


def tokens_of(data: Any) -> Tuple[Any, Any]:
    """Return the tokens in a batch, and the places for them; -1 if nothing in it tells them.

    A mask or lengths tell them, under the names that all recorders know.
    """
    # Where there is a GPU, counting could be a part of the training.
    if tf.config.list_logical_devices("GPU"):
        return -1, -1
    padded = padded_in(data, _is_array, lambda array: tf.shape(array, tf.int64))
    if padded is None:
        return -1, -1
    if not isinstance(padded, Lengths):
        return tf.math.count_nonzero(padded), tf.size(padded)
    lengths, places = tf.cast(padded.lengths, tf.int64), padded.shape[:2]
    # Others are of something else, such as samples of sound before a model shortens them.
    fit = tf.reduce_all((lengths >= 0) & (lengths <= places[1])) & (
        tf.size(lengths, tf.int64) == places[0]
    )
    return tf.where(fit, tf.reduce_sum(lengths), tf.constant(-1, tf.int64)), tf.reduce_prod(places)


def _is_array(tensor: Any) -> bool:
    return isinstance(tensor, tf.Tensor) and tensor.shape.rank is not None


def _gathered(reduced: Any, gradients: Any, variables: Any) -> Dict[str, Any]:
    """Find gradients that stay sparse: Horovod gathers the rows of all ranks instead of reducing."""
    reduced, variables = list(reduced), list(variables) if variables is not None else []
    if len(variables) != len(reduced):
        variables = [None] * len(reduced)
    sparse = []
    for after, before, variable in zip(reduced, gradients, variables):
        if isinstance(after, tf.IndexedSlices) and variable is not None:
            rows = before.values.shape[0] if isinstance(before, tf.IndexedSlices) else None
            shape = [int(size) for size in variable.shape]
            name, itemsize = variable.name.partition(":")[0], after.values.dtype.size
            sparse.append({"name": name, "shape": shape, "itemsize": itemsize, "rows": rows})
    return largest_gathered(sparse)


def gradient_facts(gradients: Any, variables: Any) -> Dict[str, Any]:
    """Return the number of gradients and their bytes."""
    gradients = list(gradients)
    return {
        "gradient_tensors": len([gradient for gradient in gradients if gradient is not None]),
        **gradient_sizes(_sizes(gradients, variables)),
    }


def _sizes(gradients: Any, variables: Any) -> Optional[List[int]]:
    """Return the bytes of each gradient; None where a shape is unknown while tracing.

    A dense gradient has its variable's shape, known or not.
    """
    variables = list(variables) if variables is not None else []
    if len(variables) != len(gradients):
        variables = [None] * len(gradients)
    sizes = []
    for gradient, variable in zip(gradients, variables):
        size = 0
        for tensor in tensors_of(gradient):
            elements = tensor.shape.num_elements()
            if elements is None and tensor is gradient and variable is not None:
                elements = variable.shape.num_elements()
            if elements is None:
                return None
            size += elements * tensor.dtype.size
        if gradient is not None:
            sizes.append(size)
    return sizes


def in_xla() -> bool:
    """Return whether XLA will compile the current trace: XLA has no clock and fails on one."""
    return control_flow_util is not None and bool(
        control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())
    )
