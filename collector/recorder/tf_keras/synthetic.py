"""Random data in the shape of real data, as input of a baseline run."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from ..keras_common.synthetic import endless, first_batch, random_array, random_generator
from .keras_2 import keras


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
