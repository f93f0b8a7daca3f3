"""Random data in the shape of real data, as input of a baseline run."""

from __future__ import annotations

from typing import Any, Iterable

import jax
import numpy as np

from ..input.repeated_batch import RepeatedBatch
from ..keras_common.synthetic import first_batch, random_array, random_generator


def synthetic_like(batches: Iterable[Any]) -> RepeatedBatch:
    """Make random batches with the same structure, shapes and dtypes as real ones, held in memory.

    They are modelled on one real batch, and integers stay within its range, so that labels stay valid.
    One random batch is repeated. Arrays stay NumPy's or JAX's, on the same devices.

    Args:
        batches: any iterable of batches; of an iterator, the first one is used up.

    Returns:
        Batches, as many as the real ones where these have a length, otherwise endless.

    Raises:
        ValueError: if there is no batch.
    """
    generator = random_generator()
    real = first_batch(iter(batches))
    return RepeatedBatch(
        batches, jax.tree_util.tree_map(lambda leaf: _random_like(leaf, generator), real)
    )


def _random_like(leaf: Any, generator: np.random.Generator) -> Any:
    """Return a random array like this one; other leaves, and other processes' arrays, stay."""
    if isinstance(leaf, np.ndarray):
        return random_array(leaf, generator)
    if isinstance(leaf, jax.Array) and leaf.is_fully_addressable:
        if not jax.dtypes.issubdtype(leaf.dtype, np.number):
            return leaf
        return jax.device_put(
            random_array(np.asarray(leaf), generator).astype(leaf.dtype), leaf.sharding
        )
    return leaf
