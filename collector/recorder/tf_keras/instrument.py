"""Puts timestamps into a model's train step and its optimizer, and takes them out again.

Where a timestamp sits decides what it means (the traps are described in docs/step-log.md):

- *data*: after the batch's tensors, before the model's own train step;
- *ready*: after the gradients, beside the allreduce, so that communication still overlaps backward;
- *reduced*: after identities of the reduced gradients. A control dependency on the reduced tensors
  themselves would not wait: Horovod wraps them in a function, and once that is inlined only its
  stateful ops are waited for, of which the allreduce is none.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, List, Optional, Tuple

import tensorflow as tf

try:
    from tensorflow.python.ops import control_flow_util
except ImportError:  # not public: without it only what Keras itself compiles is noticed
    control_flow_util = None

from ..sparse import largest_gathered
from .facts import known
from .optimizers import innermost, own_attributes, reductions_of
from .ring import DONE, READY, REDUCED, StampRing
from .tapes import TapesOfStep

# Every op that is added lies in a scope of this name. Horovod names tensors after their ops: the
# names of the model's own ops must be the same on ranks with the callback and on ranks without.
_SCOPE = "stallscope"


def _while_tracing(method: Callable[..., Any]) -> Callable[..., Any]:
    """What cannot be stamped is left alone, and its first argument handed on as it came.

    An error that a trace lets through ends the training, and autograph must not convert any of this.
    """

    @functools.wraps(method)
    def guarded(self: "Instrumentation", first: Any, *more: Any) -> Any:
        try:
            return method(self, first, *more)
        except Exception as error:
            self.active = False
            self.trouble = "the train step could not be stamped: %r" % error
            return first

    return tf.autograph.experimental.do_not_convert(guarded)  # type: ignore[no-any-return]


class Instrumentation:
    """The timestamps of one training session in one model.

    With ``ring`` None nothing is added to the graph; it is only noticed what gets traced.
    ``several_per_call`` says that one call of the train function may run more than one step.
    """

    def __init__(
        self, ring: Optional[StampRing], several_per_call: bool, single_process: bool
    ) -> None:
        self._ring = ring
        self._several_per_call = several_per_call
        self._single_process = single_process
        self._undo: List[Callable[[], None]] = []
        #: Whether this session still wants timestamps when something is traced.
        self.active = True
        #: Whether a reduction of gradients by Horovod's optimizer, or its tape, was traced.
        self.reduction_traced = False
        #: Whether several tapes reduce in one step: it would not be known which of them a timestamp
        #: belongs to.
        self.several_tapes = False
        self._tapes_in_step = 0
        #: Why a timestamp that was to be placed was not; None where nothing came in the way.
        self.trouble: Optional[str] = None
        #: Facts about the gradients, known after the first trace.
        self.gradients: Dict[str, Any] = {}
        #: Timestamps that were placed, in order.
        self.placed: List[str] = []
        #: Whether the caller of the traced train function takes the timestamps out of
        #: its logs.
        self.takes_out: Callable[[], bool] = lambda: False
        #: Their name in there.
        self.key = "~stallscope %x" % id(self)

    def install(self, model: Any) -> None:
        """Wrap the train step and the place where gradients are reduced, on the instances only."""
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
        """Leave model and optimizer as they were found."""
        self.active = False
        while self._undo:
            self._undo.pop()()

    def _replace(self, owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
        had_own = name in own_attributes(owner)
        original = getattr(owner, name)
        wrapper = wrap(original)
        setattr(owner, name, wrapper)

        def undo() -> None:
            # Something else was put there meanwhile: leave it.
            if own_attributes(owner).get(name) is not wrapper:
                return
            if had_own:
                setattr(owner, name, original)
            else:
                delattr(owner, name)

        self._undo.append(undo)

    # The wrappers themselves stay plain, so that autograph treats what they call as it would have
    # without them; what they add is never converted.

    def _train_step(self, original: Any) -> Any:
        def train_step(data: Any) -> Any:
            self._tapes_in_step = 0
            with TapesOfStep(self._reduction_of_tape):
                outputs = original(self._data_is_there(data))
            return self._step_is_done(outputs)

        return train_step

    def _reduction_of_tape(self, original: Any) -> Any:
        self._tapes_in_step += 1
        self.several_tapes = self.several_tapes or self._tapes_in_step > 1
        return self._reduction(original)

    def _reduction(self, original: Any) -> Any:
        def allreduce_grads(gradients: Any, *args: Any, **kwargs: Any) -> Any:
            self._gradients_are_ready(gradients, args[0] if args else None)
            reduced = original(gradients, *args, **kwargs)
            self._gradients_are_reduced(reduced, gradients, args[0] if args else None)
            return reduced

        return allreduce_grads

    def _gradients_only(self, original: Any) -> Any:
        def compute_gradients(*args: Any, **kwargs: Any) -> Any:
            gradients_and_variables = list(original(*args, **kwargs))
            self._gradients_are_ready(*_unzipped(gradients_and_variables))
            return gradients_and_variables

        return compute_gradients

    @_while_tracing
    def _data_is_there(self, data: Any) -> Any:
        """Timestamp the batch, and hand it on only then: on busy cores the timestamp would come late."""
        ring = self._ring_here()
        if ring is None:
            return data
        with tf.name_scope(_SCOPE):
            with tf.control_dependencies(done(tensors_of(data))):
                stamp = ring.begin_step(samples_of(data))
            self._place("data")
            with tf.control_dependencies([stamp]):
                return tf.nest.map_structure(_same, data, expand_composites=True)

    @_while_tracing
    def _step_is_done(self, outputs: Any) -> Any:
        """The step is over; in a call of several its end is stamped, as the host sees the last one's."""
        ring = self._ring_here()
        if ring is None:
            return outputs
        if self._several_per_call:
            # After the other timestamps as well: with accumulation they are in a branch of the
            # graph, for which what the step gives does not wait.
            self._stamp(ring, DONE, [*tensors_of(outputs), *ring.stamped()])
        with tf.name_scope(_SCOPE):
            stamps = ring.hand_out() if self._hands_out(outputs) else None
            if stamps is not None:
                return {**outputs, self.key: stamps}
            ring.write()
        return outputs

    def _hands_out(self, outputs: Any) -> bool:
        # TensorFlow puts the names of logs in order: others would not go with ours.
        named = type(outputs) is dict and all(type(name) is str for name in outputs)
        return named and not self._several_per_call and self.takes_out()

    @_while_tracing
    def _gradients_are_ready(self, gradients: Any, variables: Any) -> None:
        if not self.active:
            return
        self.gradients = gradient_facts(gradients, variables)
        ring = self._ring_here()
        tensors = tensors_of(gradients)
        if ring is not None and tensors:
            self._stamp(ring, READY, tensors)
            self._place("ready")

    @_while_tracing
    def _gradients_are_reduced(self, reduced: Any, gradients: Any, variables: Any) -> None:
        self.reduction_traced = True
        if self.active:
            # Timestamps matter more than this fact.
            gathered = known(lambda: _gathered(reduced, gradients, variables))
            self.gradients["sparse_gradients"] = gathered
        ring = self._ring_here()
        tensors = tensors_of(reduced)
        if ring is not None and tensors:
            self._stamp(ring, REDUCED, tensors)
            self._place("reduced")

    def _ring_here(self) -> Optional[StampRing]:
        """The ring, where a timestamp may be put into what is traced right now."""
        if self._ring is None or not self.active:
            return None
        if in_xla():
            self.trouble = "XLA compiles a part of the train step, and has no clock"
            return None
        return self._ring

    def _stamp(self, ring: StampRing, column: int, after: List[Any]) -> None:
        with tf.name_scope(_SCOPE), tf.control_dependencies(done(after)):
            ring.stamp(column)

    def _place(self, stamp: str) -> None:
        if stamp not in self.placed:
            self.placed.append(stamp)


def tensors_of(structure: Any) -> List[Any]:
    """The dense tensors of a structure: composites (ragged, sparse, IndexedSlices) taken apart."""
    flat = tf.nest.flatten(structure, expand_composites=True)
    return [tensor for tensor in flat if isinstance(tensor, (tf.Tensor, tf.Variable))]


def done(tensors: List[Any]) -> List[Any]:
    """Control inputs that are only satisfied once the tensors' values exist."""
    if not tensors:
        return []
    if not tf.config.list_logical_devices("GPU"):
        # One op for all of them: an op each, of hundreds of gradients, would cost more than the
        # timestamp.
        return [tf.identity_n(tensors)[0]]
    identities = [tf.identity(tensor) for tensor in tensors]
    # On a GPU an op has run, for the executor, as soon as its kernel is enqueued. A copy of one
    # element to the host that is ordered after all of them comes when the stream has got there.
    with tf.control_dependencies(identities):
        element = tf.reshape(identities[-1], [-1])[:1]
    with tf.device("/CPU:0"):
        return [tf.identity(element)]


def _same(leaf: Any) -> Any:
    return tf.identity(leaf) if isinstance(leaf, tf.Tensor) else leaf


def samples_of(data: Any) -> Any:
    """Samples in a batch: the first dimension of the first tensor that has one, otherwise -1."""
    for leaf in tf.nest.flatten(data):
        if isinstance(leaf, tf.RaggedTensor):
            return leaf.nrows()
        if isinstance(leaf, tf.SparseTensor):
            return leaf.dense_shape[0]
        if isinstance(leaf, (tf.Tensor, tf.Variable)) and leaf.shape.rank not in (None, 0):
            static = leaf.shape[0]
            return tf.shape(leaf)[0] if static is None else static
    return -1


def _gathered(reduced: Any, gradients: Any, variables: Any) -> Dict[str, Any]:
    """Gradients that stay sparse: Horovod gathers the rows of all ranks, rather than to reduce them."""
    reduced, variables = list(reduced), list(variables) if variables is not None else []
    if len(variables) != len(reduced):
        variables = [None] * len(reduced)
    found = []
    for after, before, variable in zip(reduced, gradients, variables):
        if isinstance(after, tf.IndexedSlices) and variable is not None:
            rows = before.values.shape[0] if isinstance(before, tf.IndexedSlices) else None
            shape = [int(size) for size in variable.shape]
            name, itemsize = variable.name.partition(":")[0], after.values.dtype.size
            found.append({"name": name, "shape": shape, "itemsize": itemsize, "rows": rows})
    return largest_gathered(found)


def gradient_facts(gradients: Any, variables: Any) -> Dict[str, Any]:
    """How many there are, and their bytes."""
    gradients = list(gradients)
    return {
        "gradient_tensors": len([gradient for gradient in gradients if gradient is not None]),
        "gradient_bytes": _bytes(gradients, variables),
    }


def _bytes(gradients: Any, variables: Any) -> Optional[int]:
    """Bytes of all gradients; None where a shape is not known while tracing.

    A dense gradient has its variable's shape, known or not.
    """
    variables = list(variables) if variables is not None else []
    if len(variables) != len(gradients):
        variables = [None] * len(gradients)
    total = 0
    for gradient, variable in zip(gradients, variables):
        for tensor in tensors_of(gradient):
            elements = tensor.shape.num_elements()
            if elements is None and tensor is gradient and variable is not None:
                elements = variable.shape.num_elements()
            if elements is None:
                return None
            total += elements * tensor.dtype.size
    return total


def _unzipped(pairs: List[Any]) -> Tuple[List[Any], List[Any]]:
    return [first for first, _ in pairs], [second for _, second in pairs]


def in_xla() -> bool:
    """Whether XLA will compile what is traced now: it has no clock, and fails where there is one."""
    return control_flow_util is not None and bool(
        control_flow_util.GraphOrParentsInXlaContext(tf.compat.v1.get_default_graph())
    )
