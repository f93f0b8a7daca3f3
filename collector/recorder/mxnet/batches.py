"""Count the samples of a batch without MXNet's own, slower ``shape``."""

from __future__ import annotations

import ctypes
from typing import Any, Optional, Tuple

from mxnet.gluon.data import BatchSampler, DataLoader
from mxnet.gluon.data import dataloader as _loaders
from mxnet.ndarray import NDArray
from mxnet.ndarray.ndarray import _int64_enabled

from .engine import library

_Size = ctypes.c_int64 if _int64_enabled() else ctypes.c_int
_OF_GLUON = (_loaders.default_batchify_fn, _loaders.default_mp_batchify_fn)
_shape_of = library.MXNDArrayGetShapeEx64 if _int64_enabled() else library.MXNDArrayGetShapeEx


class Samples:
    """Counts the samples of batches; for one thread."""

    __slots__ = ("_answer", "_dimensions", "_sizes")

    def __init__(self) -> None:
        self._dimensions = ctypes.c_int()
        self._sizes = ctypes.POINTER(_Size)()
        # Where the library writes its result.
        self._answer = ctypes.byref(self._dimensions), ctypes.byref(self._sizes)

    def of(self, batch: Any) -> Optional[int]:
        """Return the first dimension of the first array that has one; None without any."""
        kind = type(batch)
        first = batch[0] if (kind is list or kind is tuple) and batch else batch
        # The usual kind of batch. An unknown shape has -1 dimensions.
        if (
            type(first) is NDArray
            and _shape_of(first.handle, *self._answer) == 0
            and self._dimensions.value > 0
        ):
            return int(self._sizes[0])
        return _of_any(batch)


def full_batches(loader: Any) -> Tuple[int, Optional[int]]:
    """Return the number of batches at the start that are certainly full, and their samples.

    Reading a batch's shape takes most of the time of an iteration. It is known for Gluon's own loader
    with its own batchify function; elsewhere the result is 0.
    """
    if type(loader) is not DataLoader or loader._batchify_fn not in _OF_GLUON:
        return 0, None
    batches = loader._batch_sampler
    # A custom sampler may give fewer samples than its length says, or have no length.
    if type(batches) is not BatchSampler or not _is_mxnet_sampler(batches._sampler):
        return 0, None
    return len(batches._sampler) // batches._batch_size, batches._batch_size


def _is_mxnet_sampler(sampler: Any) -> bool:
    return type(sampler).__module__.startswith("mxnet.")


def _of_any(batch: Any) -> Optional[int]:
    data = getattr(batch, "data", None)
    if isinstance(data, list):
        # A DataBatch of a legacy iterator.
        batch = data
    if isinstance(batch, dict):
        batch = list(batch.values())
    if isinstance(batch, (list, tuple)):
        return next((samples for samples in map(_of_any, batch) if samples is not None), None)
    shape = getattr(batch, "shape", None)
    return int(shape[0]) if shape else None
