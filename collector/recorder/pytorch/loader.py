"""``measure_input`` for PyTorch: the speed of a loader without training."""

from __future__ import annotations

import functools
from typing import Any

from torch.utils.data import DataLoader

from ..measure_input import Loader, measure_input_of, name_of, without_stages
from .batches import samples_in
from .petastorm import is_petastorm_loader, petastorm_loader
from .pipeline import stages_of


def loader_of(data: Any) -> Loader:
    """Describe a loader; what is no iterable raises ``TypeError``."""
    if not hasattr(data, "__iter__"):
        raise TypeError(
            "data must be an iterable of batches; %s is not iterable" % type(data).__name__
        )
    kind, ahead, stages = name_of(type(data)), 1, without_stages(data)
    if isinstance(data, DataLoader):
        kind, ahead = "DataLoader", data.num_workers * (data.prefetch_factor or 1)
        stages = functools.partial(stages_of, data)
    elif is_petastorm_loader(data):
        return petastorm_loader(data)
    elif hasattr(data, "__next__"):
        kind = "iterator"
    return Loader("pytorch", kind, lambda: iter(data), samples_in, ahead, stages)


measure_input = measure_input_of(loader_of)
