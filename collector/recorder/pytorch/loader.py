"""``measure_input`` for PyTorch: how fast a loader is when nothing trains."""

from __future__ import annotations

import os
from typing import Any, Iterable, Union

import torch
from torch.utils.data import DataLoader

from ..measured import MeasuredInput
from ..measuring import Loader, Stages, checked_folder, checked_steps, measure, name_of
from .batches import samples_in
from .facts import world_of_training
from .petastorm import is_petastorms, loader_of
from .pipeline import stages_of


def measure_input(
    data: Iterable[Any],
    steps: int = 200,
    log_dir: Union[str, "os.PathLike[str]", None] = None,
) -> MeasuredInput:
    """Run the loader alone, with no training, and keep its rate beside the run.

        print(measure_input(loader, log_dir="logs/run-42"))

    Of a ``DataLoader`` the stages are measured as well, in this process and without its workers: the
    functions and transforms that its data set calls for a sample, and putting samples together. All
    ranks may do it at once, and should: their loaders share disks and CPU cores. Random numbers of
    torch, NumPy and Python's ``random`` stay where they were.

    Args:
        data: a ``DataLoader``, or anything else that gives batches. What is taken from an iterator or
            a generator is used up.
        steps: batches to take, at most.
        log_dir: the folder of the run's logs. Without it, where this process records, or will next.

    Returns:
        What was measured; printed, it is a table. What the data raises is told in it, and as a warning.

    Raises:
        TypeError, ValueError: for arguments that cannot be meant. Nothing else is ever raised.
    """
    if not hasattr(data, "__iter__"):
        raise TypeError(
            "data gives batches when it is looped over; %s does not" % type(data).__name__
        )
    count, folder = checked_steps(steps), checked_folder(log_dir)
    with torch.random.fork_rng(devices=[]):
        return measure(_loader(data), count, folder, world_of_training(), "pytorch")


def _loader(data: Any) -> Loader:
    if isinstance(data, DataLoader):
        ahead = data.num_workers * (data.prefetch_factor or 1)
        return Loader("DataLoader", lambda: iter(data), samples_in, ahead, lambda: stages_of(data))
    if is_petastorms(data):
        return loader_of(data)
    kind = "iterator" if hasattr(data, "__next__") else name_of(type(data))

    def no_stages() -> Stages:
        return [], "%s does not tell what it is made of: no stages" % name_of(data)

    return Loader(kind, lambda: iter(data), samples_in, 1, no_stages)
