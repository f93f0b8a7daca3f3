"""``measure_input`` for PyTorch: the speed of a loader without training."""

from __future__ import annotations

import os
from typing import Any, Iterable, Union

import torch
from torch.utils.data import DataLoader

from ..measure_input import Loader, check_folder, check_steps, measure, name_of, without_stages
from ..measured_input import MeasuredInput
from .batches import samples_in
from .facts import world_of_training
from .petastorm import is_petastorm_loader, loader_of
from .pipeline import stages_of


def measure_input(
    data: Iterable[Any],
    steps: int = 200,
    log_dir: Union[str, "os.PathLike[str]", None] = None,
) -> MeasuredInput:
    """Run the loader alone, without training, and store its rate with the run.

        print(measure_input(loader, log_dir="logs/run-42"))

    The stages of a ``DataLoader`` are measured too, in this process and without its workers: the
    functions and transforms that its data set calls for a sample, and collating samples. Let all ranks
    measure at once: their loaders share disks and CPU cores. The random states of torch, NumPy and
    Python's ``random`` are restored.

    Args:
        data: a ``DataLoader``, or any other iterable of batches. An iterator or a generator is used
            up.
        steps: the most batches to take.
        log_dir: the folder of the run's logs; by default the folder of this process's current, latest
            or next recording.

    Returns:
        The result; it prints as a table. It includes an error that the data raises, which is also
        logged as a warning.

    Raises:
        TypeError, ValueError: for invalid arguments. Nothing else is ever raised.
    """
    if not hasattr(data, "__iter__"):
        raise TypeError(
            "data must be an iterable of batches; %s is not iterable" % type(data).__name__
        )
    count, folder = check_steps(steps), check_folder(log_dir)
    with torch.random.fork_rng(devices=[]):
        return measure(_loader(data), count, folder, world_of_training(), "pytorch")


def _loader(data: Any) -> Loader:
    if isinstance(data, DataLoader):
        ahead = data.num_workers * (data.prefetch_factor or 1)
        return Loader("DataLoader", lambda: iter(data), samples_in, ahead, lambda: stages_of(data))
    if is_petastorm_loader(data):
        return loader_of(data)
    kind = "iterator" if hasattr(data, "__next__") else name_of(type(data))
    return Loader(kind, lambda: iter(data), samples_in, 1, without_stages(data))
