"""Facts of a Keras model, of its nested optimizers, and of TensorFlow's settings."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional, Tuple

import tensorflow as tf

from ..guards import own_attributes
from ..job.job_facts import (
    SWITCHED_OFF,
    compression_name,
    horovod_transports,
    known,
    module_version,
    optimizer_facts,
)
from ..keras_common.fit_recording import fit_frame
from .dataset_pipeline import operation_of, operations_of
from .loader import NO_STAGES, keras, keras_version

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
# Not public, and missing from functions that a custom model makes.
_CONCRETE = "_list_all_concrete_functions"


def model_facts(model: Any, size: int) -> Dict[str, Any]:
    """Return facts of the model and its optimizer; None where a custom model stores them elsewhere."""
    optimizer = innermost(getattr(model, "optimizer", None))
    rate = learning_rate(optimizer)
    return {
        "framework": "tensorflow",
        "versions": {
            "tensorflow": tf.__version__,
            "keras": keras_version(),
            "horovod": module_version("horovod"),
        },
        "model": known(lambda: model.name),
        "parameters": parameters(model),
        **optimizer_facts(optimizer, "learning_rate", rate, size),
        "backward_passes_per_step": passes_per_step(optimizer),
        "compression": known(lambda: compression_of(model.optimizer)),
        "compute_dtypes": known(lambda: sorted({layer.compute_dtype for layer in model.layers})),
        "steps_per_execution": known(lambda: steps_per_execution(model)),
        "threads": {
            "inter_op": tf.config.threading.get_inter_op_parallelism_threads(),
            "intra_op": tf.config.threading.get_intra_op_parallelism_threads(),
        },
        "loader_workers": None,
        "reduces_with": horovod_transports() if size > 1 else None,
        "devices": [device.device_type for device in tf.config.list_logical_devices()],
    }


def parameters(model: Any) -> Optional[int]:
    """Return the number of parameters; None before the model is built."""
    return known(lambda: int(model.count_params()) if model.built else None)


def why_no_timestamps(model: Any, stages: bool) -> Optional[str]:
    """Return why timestamps must not go into this model's graph; None where they may.

    An error inside a running graph cannot be caught, so this is decided before the trace.
    """
    if not stages:
        return SWITCHED_OFF
    if not keras_version().startswith("2."):
        return "Keras %s builds its train step differently" % keras_version()
    if getattr(model, "_jit_compile", None):
        return "jit_compile=True: XLA has no clock"
    if type(model.distribute_strategy).__name__ != "_DefaultDistributionStrategy":
        return "tf.distribute runs the train step in replicas"
    return None


def steps_per_execution(model: Any) -> int:
    variable = getattr(model, "_steps_per_execution", None)
    return 1 if variable is None else int(variable.numpy())


def learning_rate(optimizer: Any) -> Optional[float]:
    """Return the current learning rate."""

    def read() -> float:
        rate = innermost(optimizer).learning_rate
        return float(rate.numpy() if hasattr(rate, "numpy") else rate)

    return known(read)


def weights(model: Any) -> Optional[Dict[str, Any]]:
    """Return some numbers of the smallest trained matrix, which are equal on ranks that train one model.

    None where they may differ: with variables or process sets of single ranks.
    """

    def read() -> Optional[Dict[str, Any]]:
        # Vectors mostly start as zeros or ones, equal on all ranks anyway.
        matrices = [
            variable for variable in model.trainable_variables if (variable.shape.rank or 0) > 1
        ]
        if not matrices or not tf.executing_eagerly() or has_own_variables(model.optimizer):
            return None
        smallest = min(matrices, key=lambda matrix: matrix.shape.num_elements())
        if smallest.shape.num_elements() > _LARGEST_READ:
            return None
        numbers = smallest.numpy().reshape(-1)[:_SOME_WEIGHTS]
        return {
            "of": smallest.name.partition(":")[0],
            "values": [float(number) for number in numbers],
        }

    return known(read)


# Numbers that may be copied from a device once; only a few of them are kept.
_LARGEST_READ = 1_000_000


_SOME_WEIGHTS = 8

# -- Read facts of a running ``fit`` --------------------------------------------------------------
#
# Its callbacks in order, its data, and how that is shuffled.


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
        "loader": known(lambda: _hidden_loader(seen.get("x"))),
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


def _hidden_loader(data: Any) -> Optional[Dict[str, Any]]:
    """Return why training shows no stages of a ``tf.data`` pipeline; None for other data."""
    if not isinstance(data, tf.data.Dataset):
        return None
    reason = NO_STAGES
    if hasattr(tf.data.experimental, "get_model_proto"):
        reason = "Keras 2 hides the iterator of its pipeline, which counts their stages"
    return {"kind": "tf.data", "batches": 0, "reason": reason}


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


# -- Look into the nested optimizers of Keras and Horovod, and find the one that reduces gradients ---


def layers_of(optimizer: Any) -> List[Any]:
    """Return the optimizer and those inside it (loss scaling wraps another), from the outside in."""
    layers = []
    while optimizer is not None:
        layers.append(optimizer)
        optimizer = getattr(optimizer, "inner_optimizer", None)
    return layers


def innermost(optimizer: Any) -> Any:
    """Return the optimizer inside loss-scaling wrappers; None where there is none."""
    return layers_of(optimizer)[-1] if optimizer is not None else None


def reductions_of(optimizer: Any) -> List[Tuple[Any, str]]:
    """Return owner and name of the function with which Horovod's Keras optimizer reduces gradients.

    With ``backward_passes_per_step`` the function was captured by the aggregation helper when the
    optimizer was made, so the helper's is the one that is called.
    """
    for owner in layers_of(optimizer):
        if getattr(owner, "_allreduce_grads", None) is not None:
            helper = getattr(owner, "_agg_helper", None)
            if helper is None:
                return [(owner, "_allreduce_grads")]
            names = ("allreduce_grads", "_allreduce_grads")
            return [(helper, name) for name in names if name in own_attributes(helper)]
    return []


def compression_of(optimizer: Any) -> Optional[str]:
    """Return Horovod's gradient compression, which only its reducing function stores."""
    for owner, name in reductions_of(optimizer):
        function = getattr(owner, name)
        function = getattr(function, "python_function", function)
        captured = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
        return compression_name(captured["compression"].cell_contents)
    return None


def passes_per_step(optimizer: Any) -> int:
    """Return the backward passes that Horovod sums into one reduction."""
    return int(getattr(_aggregation(optimizer), "backward_passes_per_step", 1) or 1)


def passes_done(optimizer: Any) -> int:
    """Return the backward passes that an earlier training summed for the next reduction."""
    counter = getattr(_aggregation(optimizer), "counter", None)
    return 0 if counter is None else int(counter.numpy())


def passes_counted(optimizer: Any) -> int:
    """Return the backward passes that the optimizer has ever counted; 0 where it counts none."""
    iterations = getattr(optimizer, "iterations", None)
    return 0 if iterations is None else int(iterations.numpy())


def graph_reduces(model: Any) -> Optional[bool]:
    """Return whether the traced train function contains Horovod's ops; None where that is unknown."""
    function = getattr(model, "train_tf_function", None)
    if function is None or model.run_eagerly or not hasattr(function, _CONCRETE):
        return None
    for concrete in getattr(function, _CONCRETE)():
        graph = concrete.graph.as_graph_def()
        nodes = list(graph.node)
        for inner in graph.library.function:
            nodes.extend(inner.node_def)
        if any(node.op.startswith("Horovod") for node in nodes):
            return True
    return False


def has_own_variables(optimizer: Any) -> bool:
    """Return whether some variables differ between ranks, or only some of the ranks reduce together."""
    layers = layers_of(optimizer)
    holders = [*layers, *(getattr(layer, "_agg_helper", None) for layer in layers)]
    process_sets = [getattr(layer, "process_set", None) for layer in layers]
    return any(getattr(holder, "_local_vars", None) for holder in holders) or any(
        getattr(process_set, "process_set_id", 0) for process_set in process_sets
    )


def _aggregation(optimizer: Any) -> Any:
    """Return Horovod's helper that sums gradients over passes; None where nothing is summed."""
    helpers = [getattr(layer, "_agg_helper", None) for layer in layers_of(optimizer)]
    return next((helper for helper in helpers if helper is not None), None)
