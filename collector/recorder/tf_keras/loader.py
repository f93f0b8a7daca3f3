"""``measure_input`` and ``synthetic_like`` for Keras 2."""

from __future__ import annotations

import sys
from typing import Any, Optional

import numpy as np
import tensorflow as tf

from ..input.measuring_input import Loader, in_order, measure_input_of, without_stages
from ..keras_common.random_arrays import endless, first_batch, random_array, random_generator
from .dataset_pipeline import stages_of

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
    # The usual kind of batch: flattening takes longer than everything else.
    first: Any = batch[0] if isinstance(batch, tuple) and batch else batch
    if not isinstance(first, tf.Tensor):
        leaves = tf.nest.flatten(batch)
        first = leaves[0] if leaves else None
    shape = getattr(first, "shape", None)
    return int(shape[0]) if shape and shape[0] is not None else None


measure_input = measure_input_of(loader_of)


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
