"""``measure_input`` for Keras: how fast the input is when nothing trains."""

from __future__ import annotations

import os
from typing import Any, Iterator, Optional, Union

import tensorflow as tf

from ..identity import world_from_environment
from ..measured import MeasuredInput
from ..measuring import Loader, Stages, checked_folder, checked_steps, measure, name_of
from .facts import horovod_world
from .keras_2 import keras
from .pipeline import stages_of


def measure_input(
    data: Any,
    steps: int = 200,
    log_dir: Union[str, "os.PathLike[str]", None] = None,
) -> MeasuredInput:
    """Run the input alone, with no training, and keep its rate beside the run.

        print(measure_input(dataset, log_dir="logs/run-42"))

    On a ``tf.data`` pipeline its stages are measured as well: it runs again and again, each time up to
    a later operation, and a stage is by how much that takes longer. All ranks may do it at once, and
    should: their loaders share disks and CPU cores.

    Args:
        data: what ``fit`` takes: a ``tf.data.Dataset`` of batches, a ``keras.utils.Sequence``, an
            iterator or a generator of batches. What is taken from the last two is used up.
        steps: batches to take, at most.
        log_dir: the folder of the run's logs. Without it, where this process records, or will next.

    Returns:
        What was measured; printed, it is a table. What the data raises is told in it, and as a warning.

    Raises:
        TypeError, ValueError: for arguments that cannot be meant. Nothing else is ever raised.
    """
    loader = _loader(data)
    count, folder = checked_steps(steps), checked_folder(log_dir)
    world = horovod_world() or world_from_environment(os.environ)
    return measure(loader, count, folder, world, "tensorflow")


def _loader(data: Any) -> Loader:
    if isinstance(data, tf.data.Dataset):
        return Loader("tf.data", lambda: iter(data), samples_in, 1, lambda: stages_of(data))
    if hasattr(data, "__next__"):
        return Loader("iterator", lambda: data, samples_in, 1, _no_stages(data))
    if _is_sequence(data):
        return Loader("Sequence", lambda: _in_order(data), samples_in, 1, _no_stages(data))
    raise TypeError(
        "data is a tf.data.Dataset, a keras Sequence, an iterator or a generator of batches, not %s: "
        "arrays lie in memory, and no loader is there to measure" % type(data).__name__
    )


def _is_sequence(data: Any) -> bool:
    """Whether it gives batches by their number: Keras' own kinds, whatever its version calls them."""
    kinds = tuple(
        kind
        for name in ("Sequence", "PyDataset")
        if (kind := getattr(keras.utils, name, None)) is not None
    )
    return isinstance(data, kinds)


def _in_order(data: Any) -> Iterator[Any]:
    return (data[index] for index in range(len(data)))


def _no_stages(data: Any) -> Any:
    def stages() -> Stages:
        return [], "%s does not tell what it is made of: no stages" % name_of(data)

    return stages


def samples_in(batch: Any) -> Optional[int]:
    """Samples in a batch: the first dimension of its first tensor; None where it has none."""
    # What nearly all batches are: to flatten them takes longer than all the rest.
    first: Any = batch[0] if isinstance(batch, tuple) and batch else batch
    if not isinstance(first, tf.Tensor):
        leaves = tf.nest.flatten(batch)
        first = leaves[0] if leaves else None
    shape = getattr(first, "shape", None)
    return int(shape[0]) if shape and shape[0] is not None else None
