"""``measure_input`` for PyTorch: the speed of a loader without training."""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, Iterator, Optional

from torch.utils.data import DataLoader, IterableDataset

from ..input.measure import Loader, measure_input_of, name_of, without_stages
from .batches import samples_in
from .petastorm import is_petastorm_loader, petastorm_loader
from .pipeline import stages_of


def loader_of(data: Any) -> Loader:
    """Describe a loader; raise ``TypeError`` if it is not iterable."""
    if not hasattr(data, "__iter__"):
        raise TypeError(
            "data must be an iterable of batches; %s is not iterable" % type(data).__name__
        )
    kind, ahead, stages = name_of(type(data)), 1, without_stages(data)
    workers: Optional[Callable[[int, int], Iterator[Any]]] = None
    if isinstance(data, DataLoader):
        kind, ahead = "DataLoader", data.num_workers * (data.prefetch_factor or 1)
        stages, workers = functools.partial(stages_of, data), functools.partial(_with_workers, data)
    elif is_petastorm_loader(data):
        return petastorm_loader(data)
    elif hasattr(data, "__next__"):
        kind = "iterator"
    return Loader("pytorch", kind, lambda: iter(data), samples_in, ahead, stages, workers)


def _with_workers(data: "DataLoader[Any]", workers: int, prefetch: int) -> Iterator[Any]:
    """Return the batches of the same loader with other workers."""
    batches: Dict[str, Any] = {"batch_sampler": data.batch_sampler}
    if data.batch_sampler is None:
        batches = {"batch_size": None, "sampler": data.sampler}
    elif isinstance(data.dataset, IterableDataset):
        batches = {"batch_size": data.batch_size, "drop_last": data.drop_last}
    return iter(
        DataLoader(
            data.dataset,
            num_workers=workers,
            prefetch_factor=prefetch,
            collate_fn=data.collate_fn,
            pin_memory=data.pin_memory,
            timeout=data.timeout,
            worker_init_fn=data.worker_init_fn,
            multiprocessing_context=data.multiprocessing_context,
            generator=data.generator,
            **batches,
        )
    )


measure_input = measure_input_of(loader_of)
