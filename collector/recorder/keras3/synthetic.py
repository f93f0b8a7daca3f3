"""Random data in the shape of real data, as input of a baseline run."""

from __future__ import annotations

from typing import Any, Optional

import keras
import numpy as np

from ..job.facts import batches_in
from ..keras_common.synthetic import endless, first_batch, random_array, random_generator
from .loader import is_data_loader, is_tf_data


def synthetic_like(data: Any) -> Any:
    """Make random batches with the same structure, shapes and dtypes as ``data``, held in memory.

    They are modelled on one real batch: integers stay within its range, so that labels stay valid, and
    text is the batch's own text in another order.

    Args:
        data: a ``keras.utils.PyDataset``, a ``tf.data.Dataset`` of batches, a torch ``DataLoader``, an
            iterator or generator of batches, or arrays for ``fit``.

    Returns:
        The same kind of data, for a ``DataLoader`` a ``PyDataset``: as long as ``data`` where it has a
        known length, otherwise endless.

    Raises:
        ValueError: if ``data`` has no batch.
    """
    if is_tf_data(data):
        from ..tf_keras.synthetic import synthetic_like as tensorflows

        return tensorflows(data)
    generator = random_generator()
    if isinstance(data, keras.utils.PyDataset):
        return _SyntheticDataset(_random_like(data[0], generator), batches_in(data))
    if is_data_loader(data):
        batch = _random_like(first_batch(iter(data)), generator)
        length = batches_in(data)
        return endless(batch) if length is None else _SyntheticDataset(batch, length)
    if hasattr(data, "__next__"):
        return endless(_random_like(first_batch(data), generator))
    return _random_like(data, generator)


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
        # fit recognises a batch by its tuple.
        return tuple(_random_like(value, generator) for value in structure)
    if not hasattr(structure, "shape"):
        return structure
    return random_array(keras.ops.convert_to_numpy(structure), generator)
