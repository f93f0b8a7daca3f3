"""Measure the stages of a ``tf.data`` pipeline: the time that each operation adds to a batch.

A dataset knows its input datasets, so the pipeline can be run and timed up to any of its operations.
Parallel operations overlap: a stage's time is by how much it slows the pipeline down, the gain of making
it faster.
"""

from __future__ import annotations

import re
from time import monotonic_ns
from typing import Any, List, NamedTuple, Optional, Tuple

import tensorflow as tf

from ..input.input_times import (
    AUGMENT,
    BATCH,
    COPY,
    DECODE,
    OTHER,
    READ,
    SHUFFLE,
    Mean,
    Stage,
    difference,
    kind_of_function,
    median_of,
)
from ..input.measuring_input import Stages, name_of

# Batches that time each part of a pipeline, twice, and the longest time for that.
_BATCHES = 20
_LONGEST_SECONDS = 5.0
_FEWEST_BATCHES = 2
_DEEPEST = 100

# They give one element for each that they take, at almost no cost: part of the next stage.
_PASSING = ("Options", "Prefetch", "Repeat", "Take", "Skip", "Cache", "Model", "AssertNext")
# They give one element for each that they take.
_ONE_TO_ONE = (*_PASSING, "Map", "ParallelMap", "Shuffle", "Enumerate", "PrefetchToDevice")
# Their inputs are mostly names of files, which cost nothing.
_READING = ("Interleave", "ParallelInterleave", "FlatMap")
_BATCHING = ("Batch", "ParallelBatch", "PaddedBatch")
_KINDS = {
    "Shuffle": SHUFFLE,
    "Batch": BATCH,
    "ParallelBatch": BATCH,
    "PaddedBatch": BATCH,
    "PrefetchToDevice": COPY,
    "CopyToDevice": COPY,
}
_OPERATIONS = (
    (AUGMENT, re.compile(r"Random|Multinomial")),
    (DECODE, re.compile(r"Decode|Parse|Resize")),
    (READ, re.compile(r"ReadFile")),
)
# The graph does not show the content of a Python function.
_PYTHON = re.compile(r"PyFunc")


class _Part(NamedTuple):
    """A pipeline up to one of its operations."""

    dataset: Any
    operation: str
    #: Elements that make one batch of the whole pipeline.
    elements: int


def stages_of(dataset: Any) -> Stages:
    """Return the stages, in the order in which a sample passes through them."""
    parts, rest = _parts(dataset)
    options = dataset.options()
    # Once forwards and once backwards, because other load on the machine may come and go.
    forwards = [_times(part, options) for part in parts]
    back = [_times(part, options) for part in reversed(parts)]
    stages: List[Stage] = []
    before: Optional[Mean] = None
    for part, forward, backward in zip(parts, forwards, reversed(back)):
        if len(forward + backward) < 2 * _FEWEST_BATCHES:
            return stages, "the data ends too soon to measure %s and what follows" % part.operation
        median = median_of(forward + backward)
        stages.append(Stage(_kind(part, before is None), _name(part), difference(median, before)))
        before = median
    return stages, rest


def _parts(dataset: Any) -> Tuple[List[_Part], Optional[str]]:
    """Return parts that end at an operation with work, source first, and why others are missing."""
    parts: List[_Part] = []
    elements = 1
    rest: Optional[str] = None
    for _ in range(_DEEPEST):
        operation = operation_of(dataset)
        if operation not in _PASSING:
            parts.append(_Part(dataset, operation, elements))
        inputs = dataset._inputs()
        if len(inputs) != 1:
            break
        ratio = _taken(dataset, operation)
        if ratio is None:
            if operation not in _READING or _calls_user_functions(inputs[0]):
                rest = "%s contains the operations before it: their share of its time is unknown"
                rest %= operation
            break
        elements *= ratio
        dataset = inputs[0]
    parts.reverse()
    return parts, rest


def _calls_user_functions(dataset: Any) -> bool:
    """Return whether a pipeline calls functions of the user."""
    return bool(dataset._functions()) or any(map(_calls_user_functions, dataset._inputs()))


def operation_of(dataset: Any) -> str:
    """Return the class's name without the common parts, such as ``ParallelMap``."""
    return re.sub(r"^_|Dataset(V\d)?$|V\d$", "", re.sub(r"V\d$", "", type(dataset).__name__))


def _taken(dataset: Any, operation: str) -> Optional[int]:
    """Return the elements that an operation takes for each that it gives; None where that varies."""
    if operation in _ONE_TO_ONE:
        return 1
    name = "_batch_size" if operation in _BATCHING else "_num_shards"
    fixed = operation in _BATCHING or operation == "Shard"
    value = tf.get_static_value(getattr(dataset, name, None)) if fixed else None
    return int(value) if value is not None else None


def _times(part: _Part, options: Any) -> List[int]:
    """Return the nanoseconds per batch for some batches; fewer where the data ends."""
    dataset = part.dataset.with_options(options)
    if part.elements > 1:
        dataset = dataset.window(part.elements, drop_remainder=True)
    # Elements stay in the pipeline: passing each to Python would cost more than some stages.
    batches = iter(dataset.map(lambda *_: 0))
    times: List[int] = []
    # The first batch starts threads and fills buffers.
    if next(batches, None) is None:
        return times
    end = monotonic_ns()
    deadline = end + int(_LONGEST_SECONDS * 1e9)
    for _ in batches:
        begin, end = end, monotonic_ns()
        times.append(end - begin)
        if len(times) == _BATCHES or (end > deadline and len(times) >= _FEWEST_BATCHES):
            break
    return times


def _kind(part: _Part, is_first: bool) -> str:
    kind = _KINDS.get(part.operation)
    if kind is not None:
        return kind
    if is_first:
        return READ
    return next((kind for kind in map(_kind_of, _functions(part)) if kind is not None), OTHER)


def _kind_of(wrapped: Any) -> Optional[str]:
    """Guess a function's kind of stage from its name or its operations."""
    named = kind_of_function(name_of(wrapped._func))
    if named is not None:
        return named
    types = _operations_in(wrapped.function.graph)
    if any(map(_PYTHON.search, types)):
        return None
    for kind, words in _OPERATIONS:
        if any(map(words.search, types)):
            return kind
    return None


def operations_of(dataset: Any) -> List[str]:
    """Return the types of the operations in the functions that a dataset calls."""
    graphs = [
        function.function.graph
        for function in dataset._functions()
        if hasattr(function, "function")
    ]
    return [operation for graph in graphs for operation in _operations_in(graph)]


def _operations_in(graph: Any) -> List[str]:
    """Return the types of a function's operations, including functions that it calls."""
    definition = graph.as_graph_def(add_shapes=False)
    types = [node.op for node in definition.node]
    for function in definition.library.function:
        types += [node.op for node in function.node_def]
    return types


def _name(part: _Part) -> str:
    """Return a name such as ``ParallelMap(decode)`` or ``Batch(32)``."""
    inside = [name_of(wrapped._func) for wrapped in _functions(part)]
    if part.operation in _BATCHING:
        inside = [str(_taken(part.dataset, part.operation))]
    if any("_from_generator" in name for name in inside):
        return "from_generator"
    return "%s(%s)" % (part.operation, ", ".join(inside)) if inside else part.operation


def _functions(part: _Part) -> List[Any]:
    return [function for function in part.dataset._functions() if hasattr(function, "_func")]
