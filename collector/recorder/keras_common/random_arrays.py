"""Make random arrays in the shape of real ones, for synthetic data."""

from __future__ import annotations

from typing import Any, Iterator

import numpy as np

_SEED = 20240229


def random_generator() -> np.random.Generator:
    """Return a seeded generator: every rank and every run makes the same data."""
    return np.random.default_rng(_SEED)


def first_batch(batches: Iterator[Any]) -> Any:
    """Return the batch that the random data is modelled on.

    Raises:
        ValueError: if there is none.
    """
    try:
        return next(batches)
    except StopIteration:
        raise ValueError("the data has no batch to take shapes from") from None


def endless(batch: Any) -> Iterator[Any]:
    """Repeat a batch."""
    while True:
        yield batch


def random_array(real: Any, generator: np.random.Generator) -> Any:
    """Make a random array in the range of a real one; text and other types are only reordered."""
    real = np.asarray(real)
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
