"""Set the marks of a custom loop: on the host, and in the graph of a ``tf.function``."""

from __future__ import annotations

import functools
from collections import deque
from time import monotonic_ns
from typing import Any, Deque, Dict, List, NamedTuple, Optional, Tuple

import tensorflow as tf

from ..job.job_facts import known
from ..keras_common.finished_calls import RESOLUTION_NS, GraphStep
from ..loop_steps import COUNTED, Lengths, Shape, padded_in
from .instrument import done, in_xla, sizes_of, tensors_of, tokens_of
from .loader import shape_in
from .timestamp_ring import UNKNOWN_SIZES, TimestampRing

#: The marks, in the order of a step.
DATA, GRADIENTS, REDUCED = "data", "gradients", "reduced"
MARKS = (DATA, GRADIENTS, REDUCED)
#: A step while it goes on, with the fields of a FinishedStep: to make one takes ten times as long.
RunningStep = List[Any]
#: The places of its fields.
BEGIN, END, SHAPES, PADDED, OWN_NS = 1, 2, 6, 7, 8
PLACES = {DATA: 3, GRADIENTS: 4, REDUCED: 5}

_SCOPE = "stallscope"


class FinishedStep(NamedTuple):
    """A finished step with the host's marks; monotonic nanoseconds."""

    epoch: int
    begin: int
    end: int
    #: The marks.
    data: Optional[int]
    gradients: Optional[int]
    reduced: Optional[int]
    #: The shapes of the batches that were passed.
    shapes: Tuple[Shape, ...]
    #: What tells the tokens in the first of them, for some batches.
    padded: Any
    #: Nanoseconds that recording took up to the step's end, and when the recorder was done with the
    #: previous step.
    own_ns: int
    recorded_at: Optional[int]


class StepMarks(NamedTuple):
    """The time of each mark in a step, monotonic nanoseconds; None where it was not set."""

    data: Optional[int]
    gradients: Optional[int]
    reduced: Optional[int]
    #: The batches that a graph has marked in the step, with their times and sizes.
    batches: Tuple[GraphStep, ...]


class TracedMarks:
    """The marks that traces have put into graphs: graphs outlive a recording, and its ranks."""

    __slots__ = ("gradients", "rings")

    def __init__(self) -> None:
        #: For each mark in a graph: its timestamps.
        self.rings: Dict[str, TimestampRing] = {}
        #: Facts about the gradients that were marked first.
        self.gradients: Dict[str, Any] = {}


class Marks:
    """Sets marks, and keeps those that graphs have set since the last reading."""

    # Slots, not a dict: training has just evicted everything from the CPU's caches.
    __slots__ = (
        "_batches",
        "_read",
        "_traced",
        "eager",
        "has_news",
        "on_host",
        "placed",
        "samples",
        "trouble",
    )

    def __init__(self, traced: TracedMarks) -> None:
        self._traced = traced
        #: Marks that were set at least once, or are in a graph.
        self.placed: List[str] = list(traced.rings)
        #: Why a requested mark could not be placed; None without trouble.
        self.trouble: Optional[str] = None
        #: Whether ``placed`` or ``trouble`` has changed since they were recorded.
        self.has_news = True
        #: Samples of the first batch that was passed.
        self.samples: Optional[int] = None
        # How many batches may have told their tokens.
        self._batches = 0
        #: Marks that the host has set at least once, and the type of eager tensors.
        self.on_host: List[str] = []
        self.eager: Optional[type] = None
        # For each mark in a graph: its timestamps, with the sizes of batches, that were read and not yet
        # assigned to a step.
        self._read: Dict[str, Deque[Tuple[int, GraphStep]]] = {}

    def mark(self, name: str, tensors: Any, step: Optional[RunningStep]) -> None:
        """Mark now; in a trace, mark every run of the graph.

        Args:
            step: the current step; None for a mark between steps, which belongs to none.
        """
        if name not in MARKS:
            self._trouble("there is no mark %r: use one of %s" % (name, ", ".join(MARKS)))
        elif not tf.executing_eagerly():
            self._mark_in_graph(name, tensors)
        elif name != DATA and tf.config.list_logical_devices("GPU"):
            self._trouble("on a GPU the host runs ahead of gradients outside of a tf.function")
        else:
            # The first batch of a step, and the last of its gradients.
            if step is not None and (name != DATA or step[PLACES[name]] is None):
                step[PLACES[name]] = monotonic_ns()
            self._note_placed(name)
            if name not in self.on_host:
                self.on_host.append(name)
            self._learn(tensors)
            if name == DATA and tensors is not None:
                self._add(shape_in(tensors), step)
                if step is not None and not self._batches % COUNTED:
                    step[PADDED] = known(functools.partial(padded_in, tensors, _is_on_host))
                self._batches += 1

    def read(self) -> None:
        """Read the marks of graphs, once for many steps; not thread-safe."""
        # A trace may add a mark meanwhile.
        for name, ring in list(self._traced.rings.items()):
            marks = ((mark.data, mark) for mark in ring.take() if mark.data is not None)
            self._read.setdefault(name, deque()).extend(marks)

    def forget_read(self) -> None:
        """Drop marks that were read: the host's clock has changed since."""
        for waiting in self._read.values():
            waiting.clear()

    def marks_of(self, step: FinishedStep, next_begin: Optional[int], clock: int) -> StepMarks:
        """Return the marks in a step.

        Args:
            step: the step after the last one that was asked for.
            next_begin: when the next step started, if that has ended.
            clock: wall time minus monotonic time, in nanoseconds: graphs use wall time.
        """
        by_host = zip(MARKS, (step.data, step.gradients, step.reduced))
        marked = {name: at for name, at in by_host if at is not None}
        until = step.end + RESOLUTION_NS
        if next_begin is not None:
            until = min(until, next_begin)
        batches: Tuple[GraphStep, ...] = ()
        for name in self._read:
            inside = self._inside(name, step, until, clock)
            if inside:
                at, _ = inside[0] if name == DATA else inside[-1]
                marked.setdefault(name, min(max(at, step.begin), step.end))
            if name == DATA:
                batches = tuple(batch for _, batch in inside)
        low, times = step.begin, []
        for name in MARKS:
            at_or_none = marked.get(name)
            # The meaning of a mark out of order is unknown.
            times.append(at_or_none if at_or_none is not None and at_or_none >= low else None)
            low = times[-1] or low
        data, gradients, reduced = times
        return StepMarks(data, gradients, reduced, batches)

    def _inside(
        self, name: str, step: FinishedStep, until: int, clock: int
    ) -> List[Tuple[int, GraphStep]]:
        """Return the times of a mark in this step, with sizes; later ones wait for later steps."""
        waiting, inside = self._read[name], []
        while waiting and waiting[0][0] - clock <= until:
            at, mark = waiting.popleft()
            if at - clock >= step.begin - RESOLUTION_NS:
                inside.append((at - clock, mark))
        return inside

    def _mark_in_graph(self, name: str, tensors: Any) -> None:
        flat = [] if tensors is None else tensors_of(tensors)
        if not flat:
            self._trouble(
                "log.mark(%r) in a tf.function needs the tensors that it waits for" % name
            )
        elif in_xla():
            self._trouble("XLA compiles the step and has no clock")
        elif tf.distribute.has_strategy():
            self._trouble("tf.distribute runs the step in replicas")
        else:
            rings = self._traced.rings
            ring = rings.get(name) or rings.setdefault(name, TimestampRing())
            try:
                with tf.name_scope(_SCOPE), tf.control_dependencies(done(flat)):
                    sizes = known(functools.partial(_sizes_of, tensors)) if name == DATA else None
                    ring.begin_step(sizes or UNKNOWN_SIZES)
                    ring.write()
            except Exception as error:  # the host's marks are still good
                self._trouble("no mark of %s could be put into a graph: %r" % (name, error))
            else:
                self._note_placed(name)

    def _add(self, shape: Optional[Shape], step: Optional[RunningStep]) -> None:
        """Add the shape of a batch; a step may have several batches."""
        if shape and shape[0] is not None:
            self.samples = int(shape[0]) if self.samples is None else self.samples
            if step is not None:
                step[SHAPES] += (shape,)

    def _learn(self, tensors: Any) -> None:
        """Learn the type of eager tensors; symbolic tensors have another one."""
        leaves = [] if tensors is None else tf.nest.flatten(tensors)
        if leaves and tf.is_tensor(leaves[0]) and hasattr(leaves[0], "_shape_tuple"):
            kind = type(leaves[0])
            self.eager = None if kind is tf.Tensor else kind

    def _trouble(self, reason: str) -> None:
        if self.trouble is None:
            self.trouble, self.has_news = reason, True

    def _note_placed(self, name: str) -> None:
        if name not in self.placed:
            self.placed.append(name)
            self.has_news = True


def _sizes_of(tensors: Any) -> Tuple[Any, ...]:
    """Return the sizes of a batch as ``TimestampRing.begin_step`` takes them."""
    return (*sizes_of(tensors), *tokens_of(tensors))


def counted_on_host(padded: Any) -> Any:
    """Return what ``padded_in`` has returned as NumPy's arrays."""
    if isinstance(padded, Lengths):
        return Lengths(padded.lengths.numpy(), tuple(padded.shape))
    return None if padded is None else padded.numpy()


def _is_on_host(tensor: Any) -> bool:
    return isinstance(tensor, tf.Tensor) and "CPU" in tensor.device
