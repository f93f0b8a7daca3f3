"""Read facts of a running ``fit``: its callbacks in order, its data, and how that is shuffled."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional

import tensorflow as tf

from ..job.facts import known
from ..keras_common.fit_recording import fit_frame
from .keras_2 import keras
from .pipeline import operation_of, operations_of

#: The order of samples in later epochs: a new one each time, the shuffled order of the first epoch, or
#: the stored order.
ANEW, ALIKE, NEVER = "anew", "alike", "never"

_MOST_CALLBACKS = 32
_MOST_OPERATIONS = 64
_FRAMEWORKS = ("keras", "tf_keras", "tensorflow", "horovod")
# Callbacks that always act on a metric; a checkpoint does so only with save_best_only.
_BY_A_METRIC = ("ReduceLROnPlateau", "EarlyStopping")

# Operations that keep the order of elements, and sources with a fixed order.
_KEEP_ORDER = re.compile(
    r"Options|Prefetch|Repeat|Take|Skip|Cache|Map|ParallelMap|Batch|ParallelBatch|PaddedBatch|Shard|"
    r"Enumerate|TFRecord|TextLine|FixedLengthRecord|TensorSlice|Tensor|Range"
)
_PYTHON = re.compile(r"PyFunc")


def fit_facts(model: Any) -> Dict[str, Any]:
    """Return facts of the running ``fit``; unknown ones are None."""
    frame = fit_frame(model)
    seen = {} if frame is None else frame.f_locals
    callbacks = getattr(seen.get("callbacks"), "callbacks", None)
    callback_list = callbacks if isinstance(callbacks, list) else None
    return {
        "callbacks": known(lambda: _callbacks(callback_list)),
        "broadcasts": known(lambda: _broadcasts(callback_list)),
        "shuffled": known(lambda: _shuffled(seen)),
        "pipeline": known(lambda: _pipeline(seen.get("x"))),
        "loader_threads": known(lambda: _loader_threads(seen.get("x"))),
    }


def _callbacks(callbacks: Optional[List[Any]]) -> Optional[List[Dict[str, str]]]:
    """Return each callback's kind, and the metric that it acts on."""
    return None if callbacks is None else list(map(_callback, callbacks[:_MOST_CALLBACKS]))


def _callback(callback: Any) -> Dict[str, str]:
    kind = _kind(callback)
    described = {"name": "%s.%s" % (kind.__module__.partition(".")[0], kind.__name__)}
    by_a_metric = kind.__name__ in _BY_A_METRIC or getattr(callback, "save_best_only", False)
    if by_a_metric and isinstance(getattr(callback, "monitor", None), str):
        described["monitor"] = callback.monitor
    return described


def _kind(callback: Any) -> type:
    """Return the framework's class that it derives from; its own class if that is ``Callback``."""
    for kind in type(callback).__mro__:
        if kind.__module__.partition(".")[0] in _FRAMEWORKS and kind.__name__ != "Callback":
            return kind
    return type(callback)


def _broadcasts(callbacks: Optional[List[Any]]) -> Optional[int]:
    """Count the broadcasts of the whole model that Horovod's callbacks will make in this ``fit``."""
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
    """Return the operations of a ``tf.data`` pipeline from its source on; None for other data."""
    if not isinstance(data, tf.data.Dataset):
        return None
    before = [name for source in data._inputs() for name in _pipeline(source) or ()]
    # TFRecordDataset interleaves several files internally.
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
    """Return whether a ``Sequence`` may change its order after each epoch."""
    on_epoch_end = getattr(type(data), "on_epoch_end", None)
    return on_epoch_end is not None and on_epoch_end is not keras.utils.Sequence.on_epoch_end


def _of_dataset(dataset: Any, cached: bool = False) -> Optional[str]:
    """Return how a pipeline shuffles; ``cached`` if a later cache keeps the order of the first epoch."""
    operation = operation_of(dataset)
    cached = cached or operation == "Cache"
    before = [_of_dataset(source, cached) for source in dataset._inputs()]
    if operation == "Shuffle" and not cached and dataset._reshuffle_each_iteration:
        return ANEW
    if ANEW in before:
        return ANEW
    if operation == "Shuffle" or ALIKE in before:
        return ALIKE
    if None in before or not _KEEP_ORDER.fullmatch(operation):
        return None
    # A Python function may pick samples in any order.
    return None if any(map(_PYTHON.search, operations_of(dataset))) else NEVER
