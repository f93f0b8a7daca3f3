"""``measure_input`` for Keras 3: how fast the input is when nothing trains."""

from __future__ import annotations

import os
import sys
from typing import Any, Iterator, Union

import keras

from ..measured import MeasuredInput
from ..measuring import Loader, Stages, checked_folder, checked_steps, measure, name_of
from .batches import samples_in
from .facts import framework, world_of_training


def measure_input(
    data: Any,
    steps: int = 200,
    log_dir: Union[str, "os.PathLike[str]", None] = None,
) -> MeasuredInput:
    """Run the input alone, with no training, and keep its rate beside the run.

        print(measure_input(dataset, log_dir="logs/run-42"))

    Of a ``tf.data`` pipeline and of a ``DataLoader`` the stages are measured as well. All ranks may do
    it at once, and should: their loaders share disks and CPU cores.

    Args:
        data: what ``fit`` takes: a ``keras.utils.PyDataset``, a ``tf.data.Dataset`` of batches, a torch
            ``DataLoader``, an iterator or a generator of batches. What is taken from the last two is
            used up.
        steps: batches to take, at most.
        log_dir: the folder of the run's logs. Without it, where this process records, or will next.

    Returns:
        What was measured; printed, it is a table. What the data raises is told in it, and as a warning.

    Raises:
        TypeError, ValueError: for arguments that cannot be meant. Nothing else is ever raised.
    """
    if is_tf_data(data):
        from ..tf_keras.loader import measure_input as tensorflows

        return tensorflows(data, steps, log_dir)
    if is_data_loader(data):
        from ..pytorch.loader import measure_input as torchs

        return torchs(data, steps, log_dir)
    loader = _loader(data)
    count, folder = checked_steps(steps), checked_folder(log_dir)
    return measure(loader, count, folder, world_of_training(), framework())


def is_tf_data(data: Any) -> bool:
    tensorflow = sys.modules.get("tensorflow")
    return tensorflow is not None and isinstance(data, tensorflow.data.Dataset)


def is_data_loader(data: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(data, torch.utils.data.DataLoader)


def _loader(data: Any) -> Loader:
    if hasattr(data, "__next__"):
        return Loader("iterator", lambda: data, samples_in, 1, _no_stages(data))
    if isinstance(data, keras.utils.PyDataset):
        return Loader("PyDataset", lambda: _in_order(data), samples_in, 1, _no_stages(data))
    raise TypeError(
        "data is a keras PyDataset, a tf.data.Dataset, a DataLoader, an iterator or a generator of "
        "batches, not %s: arrays lie in memory, and no loader is there to measure"
        % type(data).__name__
    )


def _in_order(data: Any) -> Iterator[Any]:
    return (data[index] for index in range(len(data)))


def _no_stages(data: Any) -> Any:
    def stages() -> Stages:
        return [], "%s does not tell what it is made of: no stages" % name_of(data)

    return stages
