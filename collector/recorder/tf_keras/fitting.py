"""What a running ``fit`` shows of itself: its callbacks in their order, and how its data is shuffled."""

from __future__ import annotations

import re
import sys
from types import FrameType
from typing import Any, Dict, List, Optional

import tensorflow as tf

from .facts import known
from .keras_2 import keras
from .pipeline import operation_of, operations_of

#: In which order samples come in later epochs: in a new one, in the one that they were shuffled into at
#: first, or as they lie.
ANEW, ALIKE, NEVER = "anew", "alike", "never"

_MOST_CALLBACKS = 32
_MOST_OPERATIONS = 64
_FRAMEWORKS = ("keras", "tf_keras", "tensorflow", "horovod")
# Callbacks that do something by a metric whatever their options; a checkpoint only with save_best_only.
_BY_A_METRIC = ("ReduceLROnPlateau", "EarlyStopping")

# Operations that leave elements in their order, and sources that have one.
_KEEP_ORDER = re.compile(
    r"Options|Prefetch|Repeat|Take|Skip|Cache|Map|ParallelMap|Batch|ParallelBatch|PaddedBatch|Shard|"
    r"Enumerate|TFRecord|TextLine|FixedLengthRecord|TensorSlice|Tensor|Range"
)
_PYTHON = re.compile(r"PyFunc")


def fit_frame(model: Any) -> Optional[FrameType]:
    """The call of the model's ``fit`` that this thread is in; None outside of one."""
    frame: Optional[FrameType] = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "fit" and frame.f_locals.get("self") is model:
            return frame
        frame = frame.f_back
    return None


def fit_facts(model: Any) -> Dict[str, Any]:
    """Facts of the ``fit`` that runs; None for what it does not show."""
    frame = fit_frame(model)
    seen = {} if frame is None else frame.f_locals
    callbacks = getattr(seen.get("callbacks"), "callbacks", None)
    found = callbacks if isinstance(callbacks, list) else None
    return {
        "callbacks": known(lambda: _callbacks(found)),
        "broadcasts": known(lambda: _broadcasts(found)),
        "shuffled": known(lambda: _shuffled(seen)),
        "pipeline": known(lambda: _pipeline(seen.get("x"))),
        "loader_threads": known(lambda: _loader_threads(seen.get("x"))),
    }


def _callbacks(callbacks: Optional[List[Any]]) -> Optional[List[Dict[str, str]]]:
    """Each callback's kind, and the metric that it goes by."""
    return None if callbacks is None else list(map(_callback, callbacks[:_MOST_CALLBACKS]))


def _callback(callback: Any) -> Dict[str, str]:
    kind = _kind(callback)
    told = {"name": "%s.%s" % (kind.__module__.partition(".")[0], kind.__name__)}
    by_a_metric = kind.__name__ in _BY_A_METRIC or getattr(callback, "save_best_only", False)
    if by_a_metric and isinstance(getattr(callback, "monitor", None), str):
        told["monitor"] = callback.monitor
    return told


def _kind(callback: Any) -> type:
    """The class of a framework that it is derived from; its own where it is only a ``Callback``."""
    for kind in type(callback).__mro__:
        if kind.__module__.partition(".")[0] in _FRAMEWORKS and kind.__name__ != "Callback":
            return kind
    return type(callback)


def _broadcasts(callbacks: Optional[List[Any]]) -> Optional[int]:
    """Broadcasts of the whole model that Horovod's callbacks are going to make in this ``fit``."""
    if callbacks is None:
        return None
    return sum(getattr(callback, "broadcast_done", None) is False for callback in callbacks)


def _shuffled(seen: Dict[str, Any]) -> Optional[str]:
    data = seen.get("x")
    if isinstance(data, tf.data.Dataset):
        return _of_dataset(data)
    if _shuffles_itself(data):
        return None
    adapter = getattr(seen.get("data_handler"), "_adapter", None)
    for name in ("_shuffle", "_shuffle_sequence"):
        if hasattr(adapter, name):
            return ANEW if getattr(adapter, name) else NEVER
    return None


def _pipeline(data: Any) -> Optional[List[str]]:
    """The operations of a ``tf.data`` pipeline, from its source on; None for other data."""
    if not isinstance(data, tf.data.Dataset):
        return None
    before = [name for one in data._inputs() for name in _pipeline(one) or ()]
    # TFRecordDataset reads several files at once by interleaving them itself.
    at_once = getattr(data, "_num_parallel_reads", None) is not None
    return [*before, *(["ParallelInterleave"] if at_once else []), operation_of(data)][
        -_MOST_OPERATIONS:
    ]


def _loader_threads(data: Any) -> Optional[int]:
    """Return the size of a ``tf.data`` pipeline's private thread pool; 0 where it has none."""
    if not isinstance(data, tf.data.Dataset):
        return None
    return int(data.options().threading.private_threadpool_size or 0)


def _shuffles_itself(data: Any) -> bool:
    """Whether a ``Sequence`` may come in another order after each epoch."""
    own = getattr(type(data), "on_epoch_end", None)
    return own is not None and own is not keras.utils.Sequence.on_epoch_end


def _of_dataset(dataset: Any, cached: bool = False) -> Optional[str]:
    """How a pipeline shuffles; ``cached`` where a cache after it keeps the order of the first epoch."""
    operation = operation_of(dataset)
    cached = cached or operation == "Cache"
    before = [_of_dataset(one, cached) for one in dataset._inputs()]
    if operation == "Shuffle" and not cached and dataset._reshuffle_each_iteration:
        return ANEW
    if ANEW in before:
        return ANEW
    if operation == "Shuffle" or ALIKE in before:
        return ALIKE
    if None in before or not _KEEP_ORDER.fullmatch(operation):
        return None
    # A function in Python may take samples from wherever it likes.
    return None if any(map(_PYTHON.search, operations_of(dataset))) else NEVER
