"""Puts stamps into a model's train step and its optimizer, and takes them out again.

Where a stamp sits decides what it means (the traps are described in docs/step-log.md):

- *data*: behind the batch's tensors, in front of the model's own train step;
- *ready*: behind the gradients, beside the allreduce, so that communication still overlaps backward;
- *reduced*: behind identities of the reduced gradients. A control dependency on the reduced tensors
  themselves would not wait: Horovod wraps them in a function, and once that is inlined only its
  stateful ops are waited for, of which the allreduce is none.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Tuple

import tensorflow as tf

from .ring import DONE, READY, REDUCED, StampRing

_ORIGINAL = "_stallscope_original"


class Instrumentation:
    """The stamps of one training session in one model.

    With ``ring`` None nothing is added to the graph; it is only noticed what gets traced.
    """

    def __init__(
        self, ring: Optional[StampRing], steps_per_call: int, single_process: bool
    ) -> None:
        self._ring = ring
        self._steps_per_call = steps_per_call
        self._single_process = single_process
        self._undo: List[Callable[[], None]] = []
        #: Whether this session still wants stamps when something is traced.
        self.active = True
        #: Whether a reduction of gradients by Horovod's optimizer was traced.
        self.reduction_traced = False
        #: Facts about the gradients, known after the first trace.
        self.gradients: Dict[str, Any] = {}
        #: Stamps that were placed, in order.
        self.placed: List[str] = []

    def install(self, model: Any) -> None:
        """Wrap the train step and the place where gradients are reduced, on the instances only."""
        self._replace(model, "train_step", self._train_step)
        for owner, name in reductions_of(model.optimizer):
            self._replace(owner, name, self._reduction)
        if self._single_process and not reductions_of(model.optimizer):
            owner = innermost(model.optimizer)
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
        had_own = name in vars(owner)
        current = getattr(owner, name)
        # A session that ended with an exception leaves its wrapper behind: take the one inside.
        original = getattr(current, _ORIGINAL, current)
        if original is not current:
            had_own = getattr(current, _ORIGINAL + "_own")
        wrapper = wrap(original)
        setattr(wrapper, _ORIGINAL, original)
        setattr(wrapper, _ORIGINAL + "_own", had_own)
        setattr(owner, name, wrapper)

        def undo() -> None:
            if had_own:
                setattr(owner, name, original)
            else:
                delattr(owner, name)

        self._undo.append(undo)

    # The wrappers themselves stay plain, so that autograph treats what they call as it would have
    # without them; what they add is never converted.

    def _train_step(self, original: Any) -> Any:
        def train_step(data: Any) -> Any:
            outputs = original(self._data_is_there(data))
            self._step_is_done(outputs)
            return outputs

        return train_step

    def _reduction(self, original: Any) -> Any:
        def allreduce_grads(gradients: Any, *args: Any, **kwargs: Any) -> Any:
            self._gradients_are_ready(gradients)
            reduced = original(gradients, *args, **kwargs)
            self._gradients_are_reduced(reduced)
            return reduced

        return allreduce_grads

    def _gradients_only(self, original: Any) -> Any:
        def compute_gradients(*args: Any, **kwargs: Any) -> Any:
            gradients_and_variables = list(original(*args, **kwargs))
            self._gradients_are_ready([gradient for gradient, _ in gradients_and_variables])
            return gradients_and_variables

        return compute_gradients

    @tf.autograph.experimental.do_not_convert
    def _data_is_there(self, data: Any) -> Any:
        """Stamp the batch, and hand it on only then: on busy cores the stamp would come late."""
        if self._ring is None or not self.active:
            return data
        with tf.control_dependencies(_done(tensors_of(data))):
            stamp = self._ring.begin_step(_samples(data))
        self._place("data")
        with tf.control_dependencies([stamp]):
            return tf.nest.map_structure(_same, data, expand_composites=True)

    @tf.autograph.experimental.do_not_convert
    def _step_is_done(self, outputs: Any) -> None:
        """Stamp the end of a step inside a call of several: the host only sees the last one's."""
        if self._ring is None or not self.active or self._steps_per_call == 1:
            return
        with tf.control_dependencies(_done(tensors_of(outputs))):
            self._ring.stamp(DONE)

    @tf.autograph.experimental.do_not_convert
    def _gradients_are_ready(self, gradients: Any) -> None:
        if not self.active:
            return
        tensors = tensors_of(gradients)
        self.gradients = {
            "gradient_tensors": len([gradient for gradient in gradients if gradient is not None]),
            "gradient_bytes": _bytes(tensors),
        }
        if self._ring is not None and tensors:
            with tf.control_dependencies(_done(tensors)):
                self._ring.stamp(READY)
            self._place("ready")

    @tf.autograph.experimental.do_not_convert
    def _gradients_are_reduced(self, reduced: Any) -> None:
        self.reduction_traced = True
        if self._ring is None or not self.active:
            return
        tensors = tensors_of(reduced)
        if tensors:
            with tf.control_dependencies(_done(tensors)):
                self._ring.stamp(REDUCED)
            self._place("reduced")

    def _place(self, stamp: str) -> None:
        if stamp not in self.placed:
            self.placed.append(stamp)


def innermost(optimizer: Any) -> Any:
    """The optimizer inside loss-scaling wrappers."""
    while getattr(optimizer, "inner_optimizer", None) is not None:
        optimizer = optimizer.inner_optimizer
    return optimizer


def reductions_of(optimizer: Any) -> List[Tuple[Any, str]]:
    """Where Horovod's Keras optimizer keeps the function that reduces gradients: owner and name.

    With ``backward_passes_per_step`` the function was captured by the aggregation helper when the
    optimizer was made, so the helper's is the one that is called.
    """
    owner = innermost(optimizer)
    if getattr(owner, "_allreduce_grads", None) is None:
        return []
    helper = getattr(owner, "_agg_helper", None)
    if helper is None:
        return [(owner, "_allreduce_grads")]
    return [(helper, name) for name in ("allreduce_grads", "_allreduce_grads") if name in vars(helper)]


def passes_per_step(optimizer: Any) -> int:
    """Backward passes that Horovod sums into one reduction."""
    helper = getattr(innermost(optimizer), "_agg_helper", None)
    return int(getattr(helper, "backward_passes_per_step", 1) or 1)


def tensors_of(structure: Any) -> List[Any]:
    """The dense tensors of a structure: composites (ragged, sparse, IndexedSlices) taken apart."""
    flat = tf.nest.flatten(structure, expand_composites=True)
    return [tensor for tensor in flat if isinstance(tensor, (tf.Tensor, tf.Variable))]


def _done(tensors: List[Any]) -> List[Any]:
    """Control inputs that are only satisfied once the tensors' values exist."""
    identities = [tf.identity(tensor) for tensor in tensors]
    if not identities or not tf.config.list_logical_devices("GPU"):
        return identities
    # On a GPU an op has run, for the executor, as soon as its kernel is enqueued. A copy of one
    # element to the host that is ordered behind all of them comes when the stream has got there.
    with tf.control_dependencies(identities):
        element = tf.reshape(identities[-1], [-1])[:1]
    with tf.device("/CPU:0"):
        return [tf.identity(element)]


def _same(leaf: Any) -> Any:
    return tf.identity(leaf) if isinstance(leaf, tf.Tensor) else leaf


def _samples(data: Any) -> Any:
    """Samples in a batch: the first dimension of its first tensor, -1 where it has none."""
    flat = tf.nest.flatten(data)
    first = flat[0] if flat else None
    if isinstance(first, tf.RaggedTensor):
        return first.nrows()
    if isinstance(first, tf.SparseTensor):
        return first.dense_shape[0]
    if isinstance(first, (tf.Tensor, tf.Variable)) and first.shape.rank not in (None, 0):
        static = first.shape[0]
        return tf.shape(first)[0] if static is None else static
    return -1


def _bytes(tensors: List[Any]) -> Optional[int]:
    """Bytes of tensors whose shapes are known while tracing; None where one is not."""
    total = 0
    for tensor in tensors:
        elements = tensor.shape.num_elements()
        if elements is None:
            return None
        total += elements * tensor.dtype.size
    return total
