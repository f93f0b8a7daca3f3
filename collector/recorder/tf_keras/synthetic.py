"""Random data in the shape of real data: the baseline run's input."""

from __future__ import annotations

from typing import Any, Iterator, Tuple

import numpy as np
import tensorflow as tf

from .keras_2 import keras

_SEED = 20240229


def synthetic_like(data: Any) -> Any:
    """Random batches of the same structure, shapes and dtypes as ``data``, held in memory.

    One real batch is looked at: integers stay within the range of its own, so that labels stay
    labels, and text is its own text in another order.

    Args:
        data: a ``tf.data.Dataset`` of batches, a ``keras.utils.Sequence``, an iterator or generator
            of batches, or arrays as ``fit`` takes them.

    Returns:
        The same kind of thing: as long as ``data`` where it has a known length, otherwise endless.

    Raises:
        ValueError: if ``data`` has no batch.
    """
    generator = np.random.default_rng(_SEED)
    if isinstance(data, tf.data.Dataset):
        return _dataset_like(data, generator)
    if isinstance(data, keras.utils.Sequence):
        return _SyntheticSequence(_random_like(data[0], generator), len(data))
    if hasattr(data, "__next__"):
        return _endless(_random_like(_first(data), generator))
    return _random_like(data, generator)


def _dataset_like(data: "tf.data.Dataset", generator: np.random.Generator) -> "tf.data.Dataset":
    batch = _random_like(_first(iter(data)), generator)
    batches = int(data.cardinality())
    return tf.data.Dataset.from_tensors(batch).repeat(batches if batches >= 0 else None)


def _first(iterator: Iterator[Any]) -> Any:
    try:
        return next(iterator)
    except StopIteration:
        raise ValueError("the data has no batch to take shapes from") from None


def _endless(batch: Any) -> Iterator[Any]:
    while True:
        yield batch


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
    # Row lengths and places of values decide how much work there is: they stay as they are.
    if isinstance(leaf, tf.RaggedTensor):
        return leaf.with_flat_values(_random_leaf(leaf.flat_values, generator))
    if isinstance(leaf, tf.SparseTensor):
        return tf.SparseTensor(leaf.indices, _random_leaf(leaf.values, generator), leaf.dense_shape)
    if isinstance(leaf, (tf.Tensor, tf.Variable)):
        if leaf.dtype == tf.bfloat16:
            numbers = _random_array(tf.cast(leaf, tf.float32).numpy(), generator)
            return tf.cast(numbers, leaf.dtype)
        return tf.constant(_random_array(leaf.numpy(), generator), dtype=leaf.dtype)
    if isinstance(leaf, np.ndarray):
        return _random_array(leaf, generator)
    return leaf


def _random_array(real: Any, generator: np.random.Generator) -> Any:
    real = np.asarray(real)
    if real.size == 0:
        return real
    kind = real.dtype.kind
    if kind == "f":
        low, high = _finite_range(real)
        return (low + (high - low) * generator.random(real.shape)).astype(real.dtype)
    if kind in "iu":
        low, high = real.min(), real.max()
        return generator.integers(low, high, real.shape, real.dtype, endpoint=True)
    return generator.permutation(real.reshape(-1)).reshape(real.shape)


def _finite_range(real: Any) -> Tuple[float, float]:
    finite = real[np.isfinite(real)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
