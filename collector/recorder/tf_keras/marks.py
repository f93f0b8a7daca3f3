"""Marks that a loop of the user's own sets: on the host, and in the graph of a ``tf.function``."""

from __future__ import annotations

from collections import deque
from time import monotonic_ns
from typing import Any, Deque, Dict, List, NamedTuple, Optional, Tuple

import tensorflow as tf

from .instrument import done, in_xla, tensors_of
from .loader import samples_in
from .ring import StampRing
from .steps import RESOLUTION_NS

#: What can be marked, in the order in which it comes.
DATA, GRADIENTS, REDUCED = "data", "gradients", "reduced"
MARKS = (DATA, GRADIENTS, REDUCED)

_SCOPE = "stallscope"


class EndedStep(NamedTuple):
    """A step that has ended, with what the host has marked in it; monotonic nanoseconds."""

    epoch: int
    begin: int
    end: int
    #: The marks.
    data: Optional[int]
    gradients: Optional[int]
    reduced: Optional[int]
    samples: Optional[int]
    #: Nanoseconds that recording it took up to its end, and when recording the step before was over.
    own_ns: int
    over: Optional[int]


class Marks:
    """The marks of the step that runs, and those that graphs have set since the last look."""

    # Not a dict: in every step the training has just driven it out of the processor's caches.
    __slots__ = (
        "_read",
        "_rings",
        "are_news",
        "data",
        "eager",
        "gradients",
        "on_host",
        "placed",
        "reduced",
        "samples",
        "samples_now",
        "trouble",
    )

    def __init__(self) -> None:
        #: Marks that were set at all.
        self.placed: List[str] = []
        #: Why one that the user has asked for is not; None where nothing came in the way.
        self.trouble: Optional[str] = None
        #: Whether one of these two has changed; for who tells of it, who sets it back.
        self.are_news = True
        #: Samples of the first batch that was handed over.
        self.samples: Optional[int] = None
        #: Samples of the batches of the step that runs; None where none was handed over.
        self.samples_now: Optional[int] = None
        #: What the host has marked in it, by the name of the mark.
        self.data: Optional[int] = None
        self.gradients: Optional[int] = None
        self.reduced: Optional[int] = None
        #: Marks that the host has set at all, and of what kind tensors outside of graphs are.
        self.on_host: List[str] = []
        self.eager: Optional[type] = None
        # Of each mark in a graph its times, and those that were read and belong to no step yet.
        self._rings: Dict[str, StampRing] = {}
        self._read: Dict[str, Deque[int]] = {}

    def mark(self, name: str, tensors: Any) -> None:
        """Now is when this is there: where a graph is traced, in every run of it."""
        if name not in MARKS:
            self._trouble("there is no mark %r: %s" % (name, ", ".join(MARKS)))
        elif not tf.executing_eagerly():
            self._mark_in_graph(name, tensors)
        elif name != DATA and tf.config.list_logical_devices("GPU"):
            self._trouble("on a GPU the host runs ahead of gradients outside of a tf.function")
        else:
            # The first batch of a step, and the last of its gradients.
            if name != DATA or self.data is None:
                setattr(self, name, monotonic_ns())
            self._place(name)
            if name not in self.on_host:
                self.on_host.append(name)
            self._learn(tensors)
            if name == DATA and tensors is not None:
                self._count(samples_in(tensors))

    def data_again(self, first: Any, now: int) -> None:
        """As ``mark``, where the host has set that before; ``first`` of the batch is in no graph."""
        if self.data is None:
            self.data = now
        # What ``shape`` makes of it takes longer. _learn has seen that it is there.
        shape = first._shape_tuple()
        if shape:
            self.samples_now = (self.samples_now or 0) + shape[0]

    def read(self) -> None:
        """Fetch what graphs have marked, once for many steps; not safe against another thread's."""
        # A graph that is traced meanwhile may bring another one.
        for name, ring in list(self._rings.items()):
            stamps = (step.data for step in ring.take())
            self._read.setdefault(name, deque()).extend(at for at in stamps if at is not None)

    def forget_read(self) -> None:
        """What was read has other clocks than the host has now."""
        for waiting in self._read.values():
            waiting.clear()

    def times_of(
        self, step: EndedStep, next_begin: Optional[int], clock: int
    ) -> Tuple[Optional[int], ...]:
        """When each mark was there in a step; None where it was not marked.

        Args:
            step: the one after those that were asked for before.
            next_begin: when the one after it began, if that has ended.
            clock: wall time minus monotonic time, in nanoseconds: graphs timestamp with the former.
        """
        by_host = zip(MARKS, (step.data, step.gradients, step.reduced))
        found = {name: at for name, at in by_host if at is not None}
        until = step.end + RESOLUTION_NS
        if next_begin is not None:
            until = min(until, next_begin)
        for name in self._read:
            inside = self._inside(name, step, until, clock)
            if inside:
                at = inside[0] if name == DATA else inside[-1]
                found.setdefault(name, min(max(at, step.begin), step.end))
        low, times = step.begin, []
        for name in MARKS:
            at_or_none = found.get(name)
            # Set in another order they would not be what they are called.
            times.append(at_or_none if at_or_none is not None and at_or_none >= low else None)
            low = times[-1] or low
        return tuple(times)

    def _inside(self, name: str, step: EndedStep, until: int, clock: int) -> List[int]:
        """Times of a mark in this step; later ones are left for later steps."""
        waiting, inside = self._read[name], []
        while waiting and waiting[0] - clock <= until:
            at = waiting.popleft() - clock
            if at >= step.begin - RESOLUTION_NS:
                inside.append(at)
        return inside

    def _mark_in_graph(self, name: str, tensors: Any) -> None:
        flat = [] if tensors is None else tensors_of(tensors)
        if not flat:
            self._trouble(
                "log.mark(%r) in a tf.function needs the tensors that it waits for" % name
            )
        elif in_xla():
            self._trouble("XLA compiles the step, and has no clock")
        elif tf.distribute.has_strategy():
            self._trouble("tf.distribute runs the step in replicas")
        else:
            ring = self._rings.get(name) or self._rings.setdefault(name, StampRing())
            with tf.name_scope(_SCOPE), tf.control_dependencies(done(flat)):
                ring.begin_step(-1)
                ring.write()
            self._place(name)

    def _count(self, samples: Optional[int]) -> None:
        """Several batches in a step are turns of it."""
        if samples is not None:
            self.samples = samples if self.samples is None else self.samples
            self.samples_now = (self.samples_now or 0) + samples

    def _learn(self, tensors: Any) -> None:
        """Of what kind tensors outside of graphs are; one in a graph is of another."""
        leaves = [] if tensors is None else tf.nest.flatten(tensors)
        if leaves and tf.is_tensor(leaves[0]) and hasattr(leaves[0], "_shape_tuple"):
            kind = type(leaves[0])
            self.eager = None if kind is tf.Tensor else kind

    def _trouble(self, reason: str) -> None:
        if self.trouble is None:
            self.trouble, self.are_news = reason, True

    def _place(self, name: str) -> None:
        if name not in self.placed:
            self.placed.append(name)
            self.are_news = True
