"""``measure_input`` for Keras 2: the speed of the input without training."""

from __future__ import annotations

import os
from typing import Any, Optional, Union

import tensorflow as tf

from ..measure_input import Loader, check_folder, check_steps, in_order, measure, without_stages
from ..measured_input import MeasuredInput
from .facts import world_of_training
from .keras_2 import keras
from .pipeline import stages_of


def measure_input(
    data: Any,
    steps: int = 200,
    log_dir: Union[str, "os.PathLike[str]", None] = None,
) -> MeasuredInput:
    """Run the input alone, without training, and store its rate with the run.

        print(measure_input(dataset, log_dir="logs/run-42"))

    The stages of a ``tf.data`` pipeline are measured too: it runs repeatedly, each time up to a later
    operation, and a stage is the time that its operation adds. Let all ranks measure at once: their
    loaders share disks and CPU cores.

    Args:
        data: any input of ``fit``: a ``tf.data.Dataset`` of batches, a ``keras.utils.Sequence``, an
            iterator or a generator of batches. The last two are used up.
        steps: the most batches to take.
        log_dir: the folder of the run's logs; by default the folder of this process's current, latest
            or next recording.

    Returns:
        The result; it prints as a table. It includes an error that the data raises, which is also
        logged as a warning.

    Raises:
        TypeError, ValueError: for invalid arguments. Nothing else is ever raised.
    """
    loader = _loader(data)
    count, folder = check_steps(steps), check_folder(log_dir)
    world = world_of_training()
    return measure(loader, count, folder, world, "tensorflow")


def _loader(data: Any) -> Loader:
    if isinstance(data, tf.data.Dataset):
        return Loader("tf.data", lambda: iter(data), samples_in, 1, lambda: stages_of(data))
    if hasattr(data, "__next__"):
        return Loader("iterator", lambda: data, samples_in, 1, without_stages(data))
    if _is_sequence(data):
        return Loader("Sequence", lambda: in_order(data), samples_in, 1, without_stages(data))
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
