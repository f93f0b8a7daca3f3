"""``measure_input`` for Keras 2: the speed of the input without training."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

from ..input.measure import Loader, in_order, measure_input_of, without_stages
from .keras_2 import keras
from .pipeline import stages_of


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
