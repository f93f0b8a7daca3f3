"""``StepLogger`` for Keras 3, and ``measure_input`` and ``synthetic_like`` for its data."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any, Optional

import keras
import numpy as np

from ..input.measuring_input import Loader, in_order, measure_input_of, without_stages
from ..job.job_facts import batches_in
from ..keras_common.fit_callback import FitCallback
from ..keras_common.random_arrays import endless, first_batch, random_array, random_generator
from ..options import LogDir, OptionArguments, Options, with_options
from .keras3_recording import Recording, framework
from .stages import samples_in

if TYPE_CHECKING:
    from typing_extensions import Unpack


class StepLogger(FitCallback, keras.callbacks.Callback):  # type: ignore[misc]  # Keras ships no types
    """Record where the time of every step goes, on every rank, into one small file per rank.

        model.fit(data, callbacks=[StepLogger("logs/run-42")])

    Args:
        log_dir, options: see ``__init__``.
    """

    recording_type = Recording

    @with_options
    def __init__(self, log_dir: LogDir, **options: Unpack[OptionArguments]) -> None:
        super().__init__()
        self._options = Options(log_dir, **options)


# -- ``measure_input`` for Keras 3: the speed of the input without training -----------------------


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
        from ..pytorch.loader_pipeline import loader_of as torchs

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

# -- Random data in the shape of real data, as input of a baseline run ----------------------------


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
        from ..tf_keras.loader import synthetic_like as tensorflows

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
