"""Random data in the shape of real data: the baseline run's input."""

from __future__ import annotations

from typing import Any, Iterator, Optional

import keras
import numpy as np

from .loader import is_data_loader, is_tf_data

_SEED = 20240229


def synthetic_like(data: Any) -> Any:
    """Random batches of the same structure, shapes and dtypes as ``data``, held in memory.

    One real batch is looked at: integers stay within the range of its own, so that labels stay
    labels, and text is its own text in another order.

    Args:
        data: a ``keras.utils.PyDataset``, a ``tf.data.Dataset`` of batches, a torch ``DataLoader``, an
            iterator or generator of batches, or arrays as ``fit`` takes them.

    Returns:
        The same kind of thing, of a ``DataLoader`` a ``PyDataset``: as long as ``data`` where it has a
        known length, otherwise endless.

    Raises:
        ValueError: if ``data`` has no batch.
    """
    if is_tf_data(data):
        from ..tf_keras.synthetic import synthetic_like as tensorflows

        return tensorflows(data)
    generator = np.random.default_rng(_SEED)
    if isinstance(data, keras.utils.PyDataset):
        return _SyntheticDataset(_random_like(data[0], generator), _length(data))
    if is_data_loader(data):
        batch = _random_like(_first(iter(data)), generator)
        length = _length(data)
        return _endless(batch) if length is None else _SyntheticDataset(batch, length)
    if hasattr(data, "__next__"):
        return _endless(_random_like(_first(data), generator))
    return _random_like(data, generator)


def _length(data: Any) -> Optional[int]:
    try:
        return len(data)
    except TypeError:
        return None


def _first(iterator: Iterator[Any]) -> Any:
    try:
        return next(iterator)
    except StopIteration:
        raise ValueError("the data has no batch to take shapes from") from None


def _endless(batch: Any) -> Iterator[Any]:
    while True:
        yield batch


class _SyntheticDataset(keras.utils.PyDataset):  # type: ignore[misc]  # Keras ships no types
    def __init__(self, batch: Any, batches: Optional[int]) -> None:
        super().__init__()
        self._batch = batch
        self._batches = batches

    @property
    def num_batches(self) -> Optional[int]:
        return self._batches

    def __len__(self) -> int:
        if self._batches is None:
            raise TypeError("it has no length")
        return self._batches

    def __getitem__(self, index: int) -> Any:
        return self._batch


def _random_like(structure: Any, generator: np.random.Generator) -> Any:
    if isinstance(structure, dict):
        return {name: _random_like(value, generator) for name, value in structure.items()}
    if isinstance(structure, (list, tuple)):
        # fit tells batches from arrays by tuples.
        return tuple(_random_like(value, generator) for value in structure)
    if not hasattr(structure, "shape"):
        return structure
    return _random_array(keras.ops.convert_to_numpy(structure), generator)


def _random_array(real: Any, generator: np.random.Generator) -> Any:
    if real.size == 0:
        return real
    kind = real.dtype.kind
    if kind == "f":
        finite = real[np.isfinite(real)]
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
        return (low + (high - low) * generator.random(real.shape)).astype(real.dtype)
    if kind in "iu":
        return generator.integers(real.min(), real.max(), real.shape, real.dtype, endpoint=True)
    return generator.permutation(real.reshape(-1)).reshape(real.shape)
