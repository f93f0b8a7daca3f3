"""Record one training loop, and write its steps as rows."""

from __future__ import annotations

import contextlib
from time import monotonic_ns
from typing import Any, Dict, Iterator, List, Optional, Set

import jax
import numpy as np

from ..guards import never_raises, while_running
from ..hangs import Position, running_frame
from ..input.loader_wrappers import (
    LOST,
    UNKNOWN_KIND,
    BatchReader,
    Memory,
    RefusedError,
    RepeatedBatch,
)
from ..job.job_facts import SWITCHED_OFF, WHOLE_STEP, known, module_version
from ..job.world import World, world_of_training
from ..loop_recording import LoopRecording
from ..loop_steps import COUNTED, Shape, padded_in
from ..options import Options
from ..step_log.line_format import StepRow
from .jax_results import (
    DISPATCHED,
    END,
    OWN_NS,
    RESULTS,
    THERE,
    Interval,
    IterationStream,
    ResultTimes,
    RunningIteration,
)

_LIBRARIES = ("jax", "jaxlib", "flax", "optax")
#: What *ready* means in several processes: the host has dispatched the step.
HOST_WORK = "own work of the host"


class Recording(LoopRecording):
    """One StepLogger's training: its epochs, iterations and pauses."""

    # Slots, not a dict: training has just evicted everything from the CPU's caches.
    __slots__ = (
        "_devices",
        "_first_step",
        "_iteration",
        "_mesh",
        "_probe",
        "_stream",
        "_times",
        "_waiting",
    )

    def __init__(self, options: Options, first_step: Optional[int] = None) -> None:
        super().__init__(options)
        #: The number of the first step; None where the user does not give it.
        self._first_step = first_step
        self._probe = self._input_probe(READER, self._step_of_batch)
        # The current iteration; None outside of one.
        self._iteration: Optional[RunningIteration] = None
        self._times: Optional[ResultTimes] = None
        # How the first results are sharded, until that is recorded.
        self._mesh: Any = None
        # None until the log is open.
        self._stream: Optional[IterationStream] = None

    # -- start and stop --------------------------------------------------------------------------

    @never_raises
    def start(self) -> None:
        """Open the log."""
        options, world = self._options, self._world_of_training()
        self._devices = jax.local_device_count()
        facts = training_facts(world.size, options.stages)
        session = self._open_session(
            world, facts, self._first_step or 0, self._drain, self._position
        )
        if not session.recording:
            return
        if options.stages:
            self._times = ResultTimes()
            self._times.start()
        costs = session.cost.count_iteration
        stream = IterationStream(
            self._times,
            world.size == 1,
            costs,
            self._emit,
            self._emit_interval,
            self._emit_counted,
            self._samples_given,
        )
        self._waiting, self._stream = stream.waiting, stream

    @never_raises
    def stop(self) -> None:
        """Write what is left and close the log."""
        self.end_epoch()
        session = self._session
        if session is not None:
            if session.recording and self._stream is not None:
                self._stream.close()
                if self._stream.gave_up:
                    session.facts({"stamps": NO_RESULTS})
                elif self._stream.why_unseen is not None:
                    session.facts({"stamps": input_only(self._stream.why_unseen)})
            # JAX counts no steps.
            session.close(0 if self._first_step is None else None)
        if self._times is not None:
            self._times.stop()

    def _world_of_training(self) -> World:
        # Training with JAX has started its devices by now.
        return world_of_training(asks_jax=True)

    def _next_step(self) -> Optional[int]:
        if self._times is not None:
            self._times.settle()
        self._drain()
        return super()._next_step()

    def _step_of_batch(self) -> Optional[int]:
        """Return the number of the next batch's step, without waiting for the device."""
        session, stream = self._session, self._stream
        if session is None or stream is None:
            return None
        return (self._first_step or 0) + stream.steps()

    def _position(self) -> Position:
        """Return the progress of the step; called on the flushing thread."""
        on_device = None if self._stream is None else self._stream.unfinished()
        if on_device is not None:
            return Position(on_device[1], on_device[2])
        fetch = running_frame(self._thread, _ITERATE)
        if fetch is not None:
            return Position(fetch.f_locals.get("begin"))
        iteration = self._iteration
        return Position() if iteration is None else Position(iteration[1], iteration[2])

    # -- iterations of the loop ------------------------------------------------------------------

    def _interval(self, kind: str, began: int) -> None:
        # Its row follows those of the steps before it, which the device may not have finished.
        self._waiting.append(Interval(kind, max(self._epoch, 0), began, monotonic_ns()))

    def iterate(
        self, loader: Any, batches: Iterator[Any], probe_input: Optional[int] = None
    ) -> Iterator[Any]:
        """Yield the batches of a loop, which is an epoch, and record its iterations.

        Everything that runs in every iteration is in this one function with local variables: training
        has just evicted everything else from the CPU's caches.
        """
        loop, session = object(), self._session
        if session is None or not session.recording:
            yield from batches
            return
        self.begin_loop(loop, loader)
        self.begin_epoch()
        batches = self._probe.watch(loader, batches, probe_input)
        now, finished, epoch, times = monotonic_ns, self._waiting.append, self._epoch, self._times
        shape_in, ranks, devices = shape_of, session.world.size, self._devices
        begin, own_ns, left = now(), 0, 1
        try:
            for batch in batches:
                data, padded = now(), None
                try:
                    shape = shape_in(batch, ranks, devices)
                    left -= 1
                    if not left:
                        left = COUNTED
                        first = batch[0] if type(batch) in (tuple, list) and batch else batch
                        # Arrays have no names, and looking for some takes long.
                        if not hasattr(first, "shape"):
                            # A batch may have methods that raise.
                            with contextlib.suppress(Exception):
                                padded = padded_in(batch)
                except Exception as error:  # no error may reach training
                    self.fail(error)
                    shape = None
                if session.recording:
                    took = own_ns + now() - data
                    left_open = (0, None, padded, None, False)
                    self._iteration = [epoch, begin, data, shape, took, *left_open]
                yield batch
                end, iteration = now(), self._iteration
                if iteration is not None:
                    iteration[END] = end
                    if times is not None and times.are_there():
                        iteration[THERE], iteration[END] = True, now()
                    finished(iteration)
                    self._iteration = None
                # Free it before the next batch arrives.
                batch = None
                begin = now()
                own_ns = begin - end
        finally:
            self.end_loop(loop)

    def results(self, values: Any) -> None:
        """Note a result of the step: the step ends when it is ready."""
        iteration, times = self._iteration, self._times
        if iteration is None or times is None or self._failed:
            return
        began = monotonic_ns()
        try:
            array = _array_in(values)
            if self._mesh is None:
                self._mesh = getattr(array, "sharding", None)
            dispatched = times.add(array) and not iteration[RESULTS]
            iteration[DISPATCHED] = began if dispatched else None
            iteration[RESULTS] += 1
        except Exception as error:  # no error may reach training
            self.fail(error)
        iteration[OWN_NS] += monotonic_ns() - began

    @while_running
    def _end_iteration_early(self) -> None:
        """End the iteration where the user left the loop; it counts if it has given results."""
        iteration, self._iteration = self._iteration, None
        if iteration is not None and iteration[RESULTS]:
            iteration[END] = monotonic_ns()
            self._waiting.append(iteration)

    @while_running
    def _drain(self) -> None:
        """Make rows before a flush, on the flushing thread, which may be early."""
        if self._stream is not None:
            self._stream.drain()
            if self._times is not None and self._times.error is not None:
                self.fail(self._times.error)

    def _emit(self, rows: List[StepRow]) -> None:
        super()._emit(rows)
        if self._mesh is not None and self._mesh is not _RECORDED:
            sharding, self._mesh = self._mesh, _RECORDED
            assert self._session is not None
            self._session.facts({"groups": known(lambda: process_groups(sharding))})

    def _emit_interval(self, interval: Interval) -> None:
        session = self._session
        assert session is not None
        session.interval(interval.kind, interval.epoch, interval.begin, interval.end)


def _array_in(values: Any) -> Any:
    """Return one of the arrays that the step computes; None without any."""
    if hasattr(values, "block_until_ready"):
        return values
    leaves = jax.tree_util.tree_leaves(values)
    return next((leaf for leaf in leaves if hasattr(leaf, "block_until_ready")), None)


#: While a thread runs this generator, and not the body of its loop, it fetches a batch.
_ITERATE = Recording.iterate.__code__


# -- What an input probe knows about loaders and batches of JAX -----------------------------------


def _why_not_ahead(loader: Any, is_named: bool) -> Optional[str]:
    kind = type(loader).__name__
    if isinstance(loader, RepeatedBatch):
        return "the data is synthetic"
    if hasattr(loader, "__next__"):
        return LOST % kind
    if hasattr(loader, "state_dict") or hasattr(loader, "get_state"):
        return "a checkpoint of %s would count batches that were fetched and not trained" % kind
    known_kind = isinstance(loader, (list, tuple)) or kind in _LOADERS
    if not is_named and not known_kind:
        return UNKNOWN_KIND % kind
    if kind == "DataLoader" and hasattr(loader.dataset, "__next__") and not loader.num_workers:
        return LOST % type(loader.dataset).__name__
    return None


#: PyTorch's, whose batches have their own memory, without communication.
_LOADERS = ("DataLoader",)


def memory_of(batch: Any) -> Memory:
    """Return the bytes of a batch's arrays, and the addresses of NumPy's: those of JAX never change.

    Raises:
        RefusedError: if they are on a device.
    """
    size = 0
    addresses: Set[int] = set()
    for array in jax.tree_util.tree_leaves(batch):
        if any(device.platform != "cpu" for device in getattr(array, "devices", tuple)()):
            raise RefusedError("its batches are on a device, whose memory is the model's")
        size += getattr(array, "nbytes", 0)
        if hasattr(array, "ctypes"):
            addresses.add(array.ctypes.data)
    return Memory(size, addresses)


READER = BatchReader(_why_not_ahead, memory_of)

# -- Facts of JAX and its devices -----------------------------------------------------------------

_RECORDED = object()


def process_groups(sharding: Any) -> Optional[List[Dict[str, Any]]]:
    """Return this process's groups of evenly spaced processes, one for each axis of the mesh.

    None without a mesh. Axes within a process, and those of all processes, are no groups.
    """
    mesh = getattr(sharding, "mesh", None)
    if mesh is None:
        return None
    processes = np.array([device.process_index for device in mesh.devices.flat])
    processes = processes.reshape(mesh.devices.shape)
    place = np.argwhere(processes == jax.process_index())[0]
    groups = []
    for axis, name in enumerate(mesh.axis_names):
        along = tuple(slice(None) if each == axis else at for each, at in enumerate(place))
        members = np.unique(processes[along])
        strides = set(np.diff(members).tolist())
        if len(members) < jax.process_count() and len(strides) == 1:
            entry = {"name": str(name), "first": int(members[0]), "stride": int(strides.pop())}
            groups.append({**entry, "size": len(members)})
    return groups


def training_facts(size: int, stages: bool) -> Dict[str, Any]:
    """Return facts of a training by ``size`` processes; the compiled step shows none."""
    return {
        "framework": "jax",
        "versions": {name: module_version(name) for name in _LIBRARIES},
        "devices": known(
            lambda: sorted({device.platform.upper() for device in jax.local_devices()})
        ),
        # Whether the step reduces its gradients cannot be seen.
        "gradients_reduced": True if size == 1 else None,
        "stamps": timestamps(size, stages),
    }


def timestamps(size: int, stages: bool) -> Dict[str, Any]:
    """Return which timestamps are taken, and why others are not."""
    if not stages:
        return {"placed": ["data"], "reason": SWITCHED_OFF}
    placed = {"placed": ["data", "ready", "reduced"], "reason": None}
    if size > 1:
        return {**placed, "ready": HOST_WORK, "input_exposed": True}
    return {**placed, "ready": WHOLE_STEP}


def input_only(reason: str) -> Dict[str, Any]:
    """Return which timestamps are taken where only input is known, and why."""
    return {"placed": ["data"], "reason": reason, "input_exposed": True}


#: The timestamps of a loop that never calls ``log.results``.
NO_RESULTS = {
    "placed": ["data"],
    "reason": "log.results was never called, so a step ends when the host is done with it",
}

# -- Read the shape of a batch --------------------------------------------------------------------


def shape_of(batch: Any, processes: int, devices: int) -> Optional[Shape]:
    """Return the shape of this process's part of a batch's first array; None if unknown.

    The first dimension counts the samples.

    Args:
        batch: arrays in any structure.
        processes: the number of processes, for arrays that are spread over the devices of all.
        devices: the number of this process's devices. An array with such a first dimension may be one
            for ``pmap``, with a part for each device: its samples are unknown.
    """
    # The usual kinds of batch. Training has just filled the caches, and flattening takes longest.
    kind = type(batch)
    first = batch[0] if (kind is tuple or kind is list) and batch else batch
    shape = getattr(first, "shape", None)
    if not shape:
        leaves = jax.tree_util.tree_leaves(batch)
        first = next((leaf for leaf in leaves if getattr(leaf, "shape", None)), None)
        if first is None:
            return None
        shape = first.shape
    # A single process addresses all devices.
    if processes > 1 and not getattr(first, "is_fully_addressable", True):
        return (shape[0] // processes, *shape[1:])
    return None if shape[0] == devices else shape
