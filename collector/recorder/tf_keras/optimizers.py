"""Look into the nested optimizers of Keras and Horovod, and find the one that reduces gradients."""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

from ..guards import own_attributes
from ..job.job_facts import compression_name


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


# Not public, and missing from functions that a custom model makes.
_CONCRETE = "_list_all_concrete_functions"


def _aggregation(optimizer: Any) -> Any:
    """Return Horovod's helper that sums gradients over passes; None where nothing is summed."""
    helpers = [getattr(layer, "_agg_helper", None) for layer in layers_of(optimizer)]
    return next((helper for helper in helpers if helper is not None), None)
