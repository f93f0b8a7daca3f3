"""The data of TensorFlow: measured alone, synthetic like the real data, or fetched ahead by a probe."""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections import Counter
from typing import Any, Dict, List, Optional, Sequence

import numpy as np
import tensorflow as tf

from ..input.input_times import FactPace, StageSums
from ..input.loader_wrappers import BatchReader, InputProbe, Loop, Memory, RefusedError
from ..input.measuring_input import Loader, in_order, measure_input_of, without_stages
from ..job.job_facts import known
from ..keras_common.fit_recording import TimedFunction
from ..keras_common.random_arrays import endless, first_batch, random_array, random_generator
from .dataset_pipeline import operation_of, stages_of

# -- Find the program's Keras 2: ``tf.keras`` where that is Keras 2, otherwise ``tf_keras`` -------


def _keras_2() -> Any:
    # Keras 3 always has the attribute.
    if str(getattr(tf.keras, "__version__", None) or "2.").startswith("2."):
        return tf.keras
    return sys.modules.get("tf_keras") or tf.keras


keras: Any = _keras_2()


def keras_version() -> str:
    """Return the version of Keras 2, from the module that has it."""
    for module in (keras, sys.modules.get("tf_keras"), sys.modules.get("keras")):
        version = getattr(module, "__version__", None)
        if version is not None:
            return str(version)
    return "2"


def loader_of(data: Any) -> Loader:
    """Describe an input of ``fit``; arrays raise ``TypeError``."""
    if isinstance(data, tf.data.Dataset):
        return Loader(
            "tensorflow", "tf.data", lambda: iter(data), samples_in, 1, lambda: stages_of(data)
        )
    if hasattr(data, "__next__"):
        return Loader("tensorflow", "iterator", lambda: data, samples_in, 1, without_stages(data))
    if _is_sequence(data):
        return Loader(
            "tensorflow", "Sequence", lambda: in_order(data), samples_in, 1, without_stages(data)
        )
    raise TypeError(
        "data is a tf.data.Dataset, a keras Sequence, an iterator or a generator of batches, not %s: "
        "arrays are in memory and have no loader to measure" % type(data).__name__
    )


def _is_sequence(data: Any) -> bool:
    """Return whether it gives batches by number: Keras' own kinds, under the names of all versions."""
    kinds = tuple(
        kind
        for name in ("Sequence", "PyDataset")
        if (kind := getattr(keras.utils, name, None)) is not None
    )
    return isinstance(data, kinds)


def samples_in(batch: Any) -> Optional[int]:
    """Return the samples in a batch: the first dimension of its first tensor; None without one."""
    shape = shape_in(batch)
    return int(shape[0]) if shape and shape[0] is not None else None


def shape_in(batch: Any) -> Any:
    """Return the shape of the first tensor in a batch; None without one."""
    # The usual kind of batch: flattening takes longer than everything else.
    first: Any = batch[0] if isinstance(batch, tuple) and batch else batch
    if not isinstance(first, tf.Tensor):
        leaves = tf.nest.flatten(batch)
        first = leaves[0] if leaves else None
    shape = getattr(first, "shape", None)
    return None if shape is None else tuple(shape)


measure_input = measure_input_of(loader_of)


# -- The input probe: the graph takes its batches from an iterator, so that one is replaced --------

# They pass on what the operation before them has made.
_AFTER_PREFETCHING = ("Options", "Model", "AssertNext", "Take", "Repeat")
# The kinds of tensors that a batch in memory can have.
_KEPT = (tf.TensorSpec, tf.RaggedTensorSpec, tf.SparseTensorSpec)


def _why_not(iterator: Any, _is_named: bool) -> Optional[str]:
    if not isinstance(iterator, tf.data.Iterator):
        return "%s gives each replica its batches" % type(iterator).__name__
    for spec in tf.nest.flatten(iterator.element_spec):
        if not isinstance(spec, _KEPT):
            return "batches with a %s cannot be kept" % type(spec).__name__
    return None


def _makes_batches_in_background(iterator: Any) -> bool:
    """Return whether the data set ends in prefetching; other threads may make batches nevertheless.

    Unless its options say otherwise, TensorFlow adds prefetching at the end where there is none.
    """
    dataset = getattr(iterator, "_dataset", None)
    options: Any = None if dataset is None else known(dataset.options)
    optimization: Any = getattr(options, "experimental_optimization", None)
    # Versions before 2.9 do not add any, and have no such option.
    adds = hasattr(optimization, "inject_prefetch") and optimization.inject_prefetch is not False
    if adds and options.autotune.enabled is not False:
        return True
    while dataset is not None and operation_of(dataset) in _AFTER_PREFETCHING:
        dataset = next(iter(dataset._inputs()), None)
    return dataset is not None and operation_of(dataset) == "Prefetch"


def _memory_of(batch: Any) -> Memory:
    """Return the bytes of a batch; tensors never change, so none shares memory with a later one."""
    size = 0
    for tensor in tf.nest.flatten(batch, expand_composites=True):
        if not tensor.device.endswith("CPU:0"):
            raise RefusedError("its batches are on a device, whose memory is the model's")
        if tensor.dtype == tf.string:
            size += int(tf.reduce_sum(tf.strings.length(tensor))) + 16 * int(tf.size(tensor))
        else:
            size += tensor.shape.num_elements() * tensor.dtype.size
    return Memory(size, set())


READER = BatchReader(_why_not, _memory_of, in_background=_makes_batches_in_background)


class ProbedFunction(TimedFunction):
    """A train function that takes batches which were fetched ahead, while there are any.

    Args:
        function: takes an iterator over a ``tf.data.Dataset``.
        probe: fetches batches ahead.
        length: batches of an epoch; None if unknown.
    """

    def __init__(self, function: Any, probe: InputProbe, length: Optional[int]) -> None:
        super().__init__(function)
        self._probe = probe
        self._length = length
        self._loop: Optional[Loop] = None
        # Batches that are ready, how many are left, and the iterator that gave them.
        self._ready: Any = None
        self._left = 0
        self._source: Any = None
        # Without elements, but with dimensions of unknown size where the data has them.
        self._empty: Any = None

    def __call__(self, iterator: Any, *args: Any, **kwargs: Any) -> Any:
        if self._ready is not None or not self._probe.is_over:
            iterator = self._next_iterator(iterator)
        return self._function(iterator, *args, **kwargs)

    def begin_epoch(self) -> None:
        self._loop = None

    def end_probe(self) -> None:
        """End the probe if one runs: its batches have been trained, or the training has ended."""
        ready, self._ready, self._source = self._ready, None, None
        if ready is not None:
            self._probe.end()

    def _next_iterator(self, iterator: Any) -> Any:
        """Return the iterator that has the next batch."""
        probe = self._probe
        if self._left and iterator is self._source:
            self._left -= 1
            if self._loop is not None:
                probe.count(self._loop)
            return self._ready
        self.end_probe()
        loop = self._loop
        if loop is None:
            loop = self._loop = self._new_loop(iterator)
        if loop is None:
            return iterator
        if loop.error is not None:
            raise loop.error
        batches: List[Any] = []
        if probe.is_due(loop):
            batches = list(probe.fetch(loop, iterator))
            if loop.error is not None and not batches:
                probe.end()
                raise loop.error
            self._left, self._source = len(batches) - 1, iterator
            self._ready = ready = self._iterator_over(batches, iterator)
        elif probe.observes():
            # At the end of the data the graph finds none either.
            with contextlib.suppress(StopIteration):
                batches = [probe.next_observed(loop, iterator)]
            ready = self._iterator_over(batches, iterator)
        else:
            ready = iterator
        probe.count(loop)
        return ready

    def _new_loop(self, iterator: Any) -> Optional[Loop]:
        loop = self._probe.loop_over(iterator, self._length)
        if loop is not None and self._empty is None:
            try:
                spec = iterator.element_spec
                self._empty = tf.data.Dataset.from_generator(tuple, output_signature=spec)
            except Exception as error:  # no error may reach training
                self._probe.refuse(error)
                return None
        return loop

    def _iterator_over(self, batches: Sequence[Any], source: Any) -> Any:
        """Return an iterator over batches in memory; without any, it is their source.

        Both have one type, so that the graph needs no new trace.
        """
        if not batches:
            return source
        data = tf.data.Dataset.from_tensors(batches[0])
        for batch in batches[1:]:
            data = data.concatenate(tf.data.Dataset.from_tensors(batch))
        options = tf.data.Options()
        options.autotune.enabled = False
        options.experimental_optimization.apply_default_optimizations = False
        return iter(data.concatenate(self._empty).with_options(options))


# -- TensorFlow's own statistics of a tf.data pipeline --------------------------------------------

#: Why an older version shows none.
NO_STAGES = "TensorFlow %s counts no stages of pipelines" % tf.__version__
# The most operations between the pipeline's end and its prefetching.
_NEAR_THE_END = 4


class PipelineFigures:
    """The time that each operation of a fit's pipeline has worked, which TensorFlow counts anyway.

    It does so to tune the pipeline. The flushing thread reads it once a second.
    """

    def __init__(self, epoch_iterator: Any) -> None:
        # A fit that outlives its recording must not keep the epoch iterator alive.
        self._epoch_iterator = weakref.ref(epoch_iterator)
        self._sums = StageSums("tf.data")
        self._pace = FactPace()
        self._reason: Optional[str] = None
        # How often the prefetched batches were counted, and how often there was none.
        self._looks = self._empty = 0
        if not hasattr(tf.data.experimental, "get_model_proto"):
            self._reason = NO_STAGES

    @classmethod
    def of(cls, epoch_iterator: Any) -> Optional["PipelineFigures"]:
        """Return the figures of Keras 3's epoch iterator; None if it has no pipeline, or replicas."""
        data = getattr(epoch_iterator, "_distributed_dataset", None)
        return cls(epoch_iterator) if isinstance(data, tf.data.Dataset) else None

    def fact(self, now: int, at_the_end: bool) -> Optional[Dict[str, Any]]:
        """Read the statistics, and return them now and then, and at the end."""
        iterator = None if self._reason else self._iterator()
        if iterator is not None:
            try:
                self._read(iterator)
            except Exception as error:  # such as a pipeline that is not tuned
                self._reason = "this pipeline counts no stages: %s" % type(error).__name__
        if not self._pace.is_due(now, at_the_end):
            return None
        fact = self._sums.fact() or {"kind": "tf.data", "batches": 0}
        return {
            "loader": {**fact, "asked": self._looks, "empty": self._empty, "reason": self._reason}
        }

    def _iterator(self) -> Any:
        """Return the iterator of this epoch; None between epochs, and for other data."""
        epoch_iterator = self._epoch_iterator()
        frame = getattr(getattr(epoch_iterator, "_epoch_iterator", None), "gi_frame", None)
        # Without a known number of batches, Keras keeps it in a local variable.
        local = None if frame is None else frame.f_locals.get("iterator")
        iterator = local or getattr(epoch_iterator, "_current_iterator", None)
        return iterator if isinstance(iterator, tf.data.Iterator) else None

    def _read(self, iterator: Any) -> None:
        model = tf.data.experimental.get_model_proto(iterator)
        stages: Counter[str] = Counter()
        for node in model.nodes.values():
            # The root only passes batches on.
            if node.id != model.output:
                stages[node.name] += node.processing_time
        self._sums.update(iterator, int(model.nodes[model.output].num_elements), stages)
        node = model.nodes[model.output]
        for _ in range(_NEAR_THE_END):
            if node.name == "Prefetch":
                self._looks += 1
                self._empty += not node.buffered_elements
            if node.name == "Prefetch" or len(node.inputs) != 1:
                return
            node = model.nodes[node.inputs[0]]


# -- Random data in the shape of real data, as input of a baseline run ----------------------------


def synthetic_like(data: Any) -> Any:
    """Make random batches with the same structure, shapes and dtypes as ``data``, held in memory.

    They are modelled on one real batch: integers stay within its range, so that labels stay valid, and
    text is the batch's own text in another order.

    Args:
        data: a ``tf.data.Dataset`` of batches, a ``keras.utils.Sequence``, an iterator or generator
            of batches, or arrays for ``fit``.

    Returns:
        The same kind of data: as long as ``data`` where it has a known length, otherwise endless.

    Raises:
        ValueError: if ``data`` has no batch.
    """
    generator = random_generator()
    if isinstance(data, tf.data.Dataset):
        return _dataset_like(data, generator)
    if isinstance(data, keras.utils.Sequence):
        return _SyntheticSequence(_random_like(data[0], generator), len(data))
    if hasattr(data, "__next__"):
        return endless(_random_like(first_batch(data), generator))
    return _random_like(data, generator)


def _dataset_like(data: "tf.data.Dataset", generator: np.random.Generator) -> "tf.data.Dataset":
    batch = _random_like(first_batch(iter(data)), generator)
    batches = int(data.cardinality())
    return tf.data.Dataset.from_tensors(batch).repeat(batches if batches >= 0 else None)


class _SyntheticSequence(keras.utils.Sequence):  # type: ignore[misc]  # Keras ships no types
    def __init__(self, batch: Any, batches: int) -> None:
        self._batch = batch
        self._batches = batches

    def __len__(self) -> int:
        return self._batches

    def __getitem__(self, index: int) -> Any:
        return self._batch


def _random_like(structure: Any, generator: np.random.Generator) -> Any:
    return tf.nest.map_structure(lambda leaf: _random_leaf(leaf, generator), structure)


def _random_leaf(leaf: Any, generator: np.random.Generator) -> Any:
    # Row lengths and positions of values decide how much work there is: keep them.
    if isinstance(leaf, tf.RaggedTensor):
        return leaf.with_flat_values(_random_leaf(leaf.flat_values, generator))
    if isinstance(leaf, tf.SparseTensor):
        return tf.SparseTensor(leaf.indices, _random_leaf(leaf.values, generator), leaf.dense_shape)
    if isinstance(leaf, (tf.Tensor, tf.Variable)):
        if leaf.dtype == tf.bfloat16:
            numbers = random_array(tf.cast(leaf, tf.float32).numpy(), generator)
            return tf.cast(numbers, leaf.dtype)
        return tf.constant(random_array(leaf.numpy(), generator), dtype=leaf.dtype)
    if isinstance(leaf, np.ndarray):
        return random_array(leaf, generator)
    return leaf
