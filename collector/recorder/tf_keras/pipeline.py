"""Stages of a ``tf.data`` pipeline: what each operation adds to the time of a batch.

A dataset knows the datasets that it is made from. So the pipeline can be run up to any of its
operations, and that is what is timed. Operations that run in parallel hide behind each other: what a
stage adds is then by how much it holds the pipeline up, which is what making it faster can win.
"""

from __future__ import annotations

import re
from time import monotonic_ns
from typing import Any, List, NamedTuple, Optional, Tuple

import tensorflow as tf

from ..measured import (
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
    usual_of,
)
from ..measuring import Stages, name_of

# Batches by which each part of a pipeline is timed, twice, and how long that may take at most.
_BATCHES = 20
_LONGEST_SECONDS = 5.0
_FEWEST_BATCHES = 2
_DEEPEST = 100

# One element for each that they take, and next to no work of their own: part of what comes after.
_PASSING = ("Options", "Prefetch", "Repeat", "Take", "Skip", "Cache", "Model", "AssertNext")
# One element for each that they take.
_ONE_TO_ONE = (*_PASSING, "Map", "ParallelMap", "Shuffle", "Enumerate", "PrefetchToDevice")
# What lies before them are names of files mostly, which cost nothing.
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
# Names that people give to functions, in the order in which they tell most.
_WORDS = (
    (AUGMENT, re.compile(r"aug|random|flip|crop|jitter|rotat|distort|mixup|cutout", re.IGNORECASE)),
    (DECODE, re.compile(r"decod|pars|deserial|preproc|resiz|normali", re.IGNORECASE)),
    (READ, re.compile(r"read|load|open|fetch|download", re.IGNORECASE)),
)
_OPERATIONS = (
    (AUGMENT, re.compile(r"Random|Multinomial")),
    (DECODE, re.compile(r"Decode|Parse|Resize")),
    (READ, re.compile(r"ReadFile")),
)
# A function whose graph is Python's own says nothing about itself.
_PYTHON = re.compile(r"PyFunc")


class _Part(NamedTuple):
    """A pipeline up to one of its operations."""

    dataset: Any
    operation: str
    #: Elements that make one batch of the whole pipeline.
    elements: int


def stages_of(dataset: Any) -> Stages:
    """The stages, in the order in which a sample goes through them."""
    parts, rest = _parts(dataset)
    options = dataset.options()
    # Once from the first to the last, and back: what else the machine does may come and go meanwhile.
    there = [_times(part, options) for part in parts]
    back = [_times(part, options) for part in reversed(parts)]
    stages: List[Stage] = []
    before: Optional[Mean] = None
    for part, one, other in zip(parts, there, reversed(back)):
        if len(one + other) < 2 * _FEWEST_BATCHES:
            return stages, "the data ends too soon to measure %s and what follows" % part.operation
        usual = usual_of(one + other)
        stages.append(Stage(_kind(part, before is None), _name(part), difference(usual, before)))
        before = usual
    return stages, rest


def _parts(dataset: Any) -> Tuple[List[_Part], Optional[str]]:
    """Parts that end where something is worked on, from the source on; and what they leave out."""
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
            if operation not in _READING or _works(inputs[0]):
                rest = "%s holds what lies before it: how much of that it takes is not told"
                rest %= operation
            break
        elements *= ratio
        dataset = inputs[0]
    parts.reverse()
    return parts, rest


def _works(dataset: Any) -> bool:
    """Whether a pipeline calls functions of the user's."""
    return bool(dataset._functions()) or any(map(_works, dataset._inputs()))


def operation_of(dataset: Any) -> str:
    """``ParallelMap``: the class's name without what all of them have in common."""
    return re.sub(r"^_|Dataset(V\d)?$|V\d$", "", re.sub(r"V\d$", "", type(dataset).__name__))


def _taken(dataset: Any, operation: str) -> Optional[int]:
    """Elements that an operation takes for each that it gives; None where that is not fixed."""
    if operation in _ONE_TO_ONE:
        return 1
    name = "_batch_size" if operation in _BATCHING else "_num_shards"
    fixed = operation in _BATCHING or operation == "Shard"
    value = tf.get_static_value(getattr(dataset, name, None)) if fixed else None
    return int(value) if value is not None else None


def _times(part: _Part, options: Any) -> List[int]:
    """Nanoseconds that the elements of a batch take, for some batches; fewer where the data ends."""
    dataset = part.dataset.with_options(options)
    if part.elements > 1:
        dataset = dataset.window(part.elements, drop_remainder=True)
    # Elements stay where they are: handing them to Python, one by one, would cost more than some stages.
    batches = iter(dataset.map(lambda *_: 0))
    times: List[int] = []
    # The first one starts threads and fills buffers.
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
    """What a function does, by its name or by the operations that it is made of."""
    name = name_of(wrapped._func)
    for kind, words in _WORDS:
        if words.search(name):
            return kind
    types = _operations_in(wrapped.function.graph)
    if any(map(_PYTHON.search, types)):
        return None
    for kind, words in _OPERATIONS:
        if any(map(words.search, types)):
            return kind
    return None


def operations_of(dataset: Any) -> List[str]:
    """The types of the operations in the functions that a dataset calls."""
    graphs = [one.function.graph for one in dataset._functions() if hasattr(one, "function")]
    return [operation for graph in graphs for operation in _operations_in(graph)]


def _operations_in(graph: Any) -> List[str]:
    """The types of a function's operations, with those of the functions that it calls."""
    definition = graph.as_graph_def(add_shapes=False)
    types = [node.op for node in definition.node]
    for function in definition.library.function:
        types += [node.op for node in function.node_def]
    return types


def _name(part: _Part) -> str:
    """``ParallelMap(decode)``, ``Batch(32)``"""
    inside = [name_of(wrapped._func) for wrapped in _functions(part)]
    if part.operation in _BATCHING:
        inside = [str(_taken(part.dataset, part.operation))]
    if any("_from_generator" in name for name in inside):
        return "from_generator"
    return "%s(%s)" % (part.operation, ", ".join(inside)) if inside else part.operation


def _functions(part: _Part) -> List[Any]:
    return [one for one in part.dataset._functions() if hasattr(one, "_func")]
