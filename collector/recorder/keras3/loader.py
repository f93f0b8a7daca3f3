"""``measure_input`` for Keras 3: the speed of the input without training."""

from __future__ import annotations

import functools
import sys
from typing import Any

import keras

from ..input.measure import Loader, in_order, measure_input_of, without_stages
from .batches import samples_in
from .facts import framework


def is_tf_data(data: Any) -> bool:
    tensorflow = sys.modules.get("tensorflow")
    return tensorflow is not None and isinstance(data, tensorflow.data.Dataset)


def is_data_loader(data: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(data, torch.utils.data.DataLoader)


def loader_of(data: Any) -> Loader:
    """Describe an input of ``fit``; arrays raise ``TypeError``."""
    if is_tf_data(data):
        from ..tf_keras.loader import loader_of as tensorflows

        return tensorflows(data)
    if is_data_loader(data):
        from ..pytorch.loader import loader_of as torchs

        return torchs(data)
    if hasattr(data, "__next__"):
        return Loader(framework(), "iterator", lambda: data, samples_in, 1, without_stages(data))
    if isinstance(data, keras.utils.PyDataset):
        batches = functools.partial(in_order, data)
        return Loader(framework(), "PyDataset", batches, samples_in, 1, without_stages(data))
    raise TypeError(
        "data is a keras PyDataset, a tf.data.Dataset, a DataLoader, an iterator or a generator of "
        "batches, not %s: arrays are in memory and have no loader to measure" % type(data).__name__
    )


measure_input = measure_input_of(loader_of)
