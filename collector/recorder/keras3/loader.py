"""``measure_input`` for Keras 3: the speed of the input without training."""

from __future__ import annotations

import os
import sys
from typing import Any, Union

import keras

from ..measure_input import Loader, check_folder, check_steps, in_order, measure, without_stages
from ..measured_input import MeasuredInput
from .batches import samples_in
from .facts import framework, world_of_training


def measure_input(
    data: Any,
    steps: int = 200,
    log_dir: Union[str, "os.PathLike[str]", None] = None,
) -> MeasuredInput:
    """Run the input alone, without training, and store its rate with the run.

        print(measure_input(dataset, log_dir="logs/run-42"))

    The stages of a ``tf.data`` pipeline or a ``DataLoader`` are measured too. Let all ranks measure at
    once: their loaders share disks and CPU cores.

    Args:
        data: any input of ``fit``: a ``keras.utils.PyDataset``, a ``tf.data.Dataset`` of batches, a
            torch ``DataLoader``, an iterator or a generator of batches. The last two are used up.
        steps: the most batches to take.
        log_dir: the folder of the run's logs; by default the folder of this process's current, latest
            or next recording.

    Returns:
        The result; it prints as a table. It includes an error that the data raises, which is also
        logged as a warning.

    Raises:
        TypeError, ValueError: for invalid arguments. Nothing else is ever raised.
    """
    if is_tf_data(data):
        from ..tf_keras.loader import measure_input as tensorflows

        return tensorflows(data, steps, log_dir)
    if is_data_loader(data):
        from ..pytorch.loader import measure_input as torchs

        return torchs(data, steps, log_dir)
    loader = _loader(data)
    count, folder = check_steps(steps), check_folder(log_dir)
    return measure(loader, count, folder, world_of_training(), framework())


def is_tf_data(data: Any) -> bool:
    tensorflow = sys.modules.get("tensorflow")
    return tensorflow is not None and isinstance(data, tensorflow.data.Dataset)


def is_data_loader(data: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(data, torch.utils.data.DataLoader)


def _loader(data: Any) -> Loader:
    if hasattr(data, "__next__"):
        return Loader("iterator", lambda: data, samples_in, 1, without_stages(data))
    if isinstance(data, keras.utils.PyDataset):
        return Loader("PyDataset", lambda: in_order(data), samples_in, 1, without_stages(data))
    raise TypeError(
        "data is a keras PyDataset, a tf.data.Dataset, a DataLoader, an iterator or a generator of "
        "batches, not %s: arrays are in memory and have no loader to measure" % type(data).__name__
    )
