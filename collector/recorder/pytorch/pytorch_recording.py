"""Record one training: patch it, and write its steps as rows."""

from __future__ import annotations

import functools
import logging
from time import monotonic_ns
from typing import Any, Callable, Dict, Iterator, List, Optional

import torch

from ..guards import never_raises, while_running
from ..hangs import Position
from ..job.job_facts import known
from ..job.world import world_of_training
from ..loop_steps import StepAssembler
from ..options import Options
from .batches import full_batches, memory_of, shape_in
from .cuda import CudaClock, capture_mode_exchange
from .device_causes import AllocatorRetries, DeviceCopies, HostSyncs
from .device_steps import DeviceSteps
from .gradient_timestamps import GradientClock
from .iterations import MOST_WAITING, FinishedIterations, IterationRecording
from .pytorch_facts import (
    LateFacts,
    computes_on_host,
    cuda_device,
    device_types,
    model_facts,
    parameters_of,
    steps_counted,
    why_no_timestamps,
)
from .reductions import (
    DdpReductions,
    HorovodReductions,
    Reductions,
    Updates,
    innermost_model,
    innermost_optimizer,
)
from .sharded import OWN_WORK, CollectiveReductions, sharding_of
from .waits import Waits

logger = logging.getLogger("stallscope")

#: Recordings that still run.
open_recordings: List["Recording"] = []


class Recording(IterationRecording):
    """One StepLogger's training: its epochs, iterations, reductions and pauses."""

    __slots__ = (
        "_causes",
        "_first_step",
        "_model",
        "_optimizer",
        "_times_gradients",
        "_undo",
        "_waits",
    )

    def __init__(
        self, optimizer: Any, model: Any, options: Options, first_step: Optional[int] = None
    ) -> None:
        super().__init__(options)
        #: The number of the first step; None where the optimizer counts.
        self._first_step = first_step
        self._optimizer = innermost_optimizer(optimizer)
        self._model = model
        self._undo: List[Callable[[], None]] = []
        #: Return facts of what delays this rank or its device; called with whether the recording ends.
        self._causes: List[Callable[[bool], Optional[Dict[str, Any]]]] = []

    # -- start and stop --------------------------------------------------------------------------

    def start(self) -> None:
        """Open the log and watch gradients and reductions."""
        try:
            self._take_over()
            self._start()
        except Exception as error:
            self.fail(error)
            self._undo_all()

    @never_raises
    def stop(self) -> None:
        """Restore optimizer and model, write what is left and close the log."""
        self._end_iteration_early()
        self._settle()
        self._give_up()
        self.end_epoch()
        if self in open_recordings:
            open_recordings.remove(self)
        self._undo_all()
        if self._session is not None:
            self._session.close(self._counted())

    def _counted(self) -> Optional[int]:
        """Return the steps that the optimizer has counted; None if the user counts them."""
        return steps_counted(self._optimizer) if self._first_step is None else None

    def _next_step(self) -> Optional[int]:
        self._settle()
        return super()._next_step()

    def _take_over(self) -> None:
        for recording in list(open_recordings):
            if self._same_training(recording):
                logger.warning(
                    "stallscope: another StepLogger records this training from here on; one is enough"
                )
                recording.stop()

    def _same_training(self, recording: "Recording") -> bool:
        mine, theirs = (self._optimizer, self._model), (recording._optimizer, recording._model)
        return any(left is not None and left is right for left, right in zip(mine, theirs))

    def _start(self) -> None:
        optimizer, model, options = self._optimizer, self._model, self._options
        world = world_of_training()
        parameters = parameters_of(optimizer, model)
        reductions = reductions_of(optimizer, model, world.size)
        no_timestamps = why_no_timestamps(reductions, parameters, options.stages)
        self._single = world.size == 1
        seen = reductions.counts and reductions.averages and not reductions.reason
        reduced = True if self._single or seen else None
        if not no_timestamps:
            self._device = known(lambda: _clock_of(parameters))
            if self._device is None and device_types(parameters) == ["cuda"]:
                no_timestamps = "the CUDA device gives no times"
        self._timestamps = {
            "placed": ["data"] if no_timestamps else ["data", "ready", "reduced"],
            "reason": no_timestamps,
        }
        if self._device is not None:
            self._timestamps["clock"] = "cuda"
        elif isinstance(reductions, CollectiveReductions) and not no_timestamps:
            self._timestamps["ready"] = OWN_WORK
        elif no_timestamps and computes_on_host(parameters):
            # The host computes itself, so nothing computes while it waits for a batch.
            self._timestamps["input_exposed"] = True
        facts = {
            **model_facts(optimizer, model, parameters, world.size),
            "loader_workers": None,
            "gradients_reduced": reduced,
            "stamps": self._timestamps,
        }
        self._assembler = StepAssembler(reductions.counts, self._single)
        self._finished = FinishedIterations(
            self._assembler,
            self._samples_given,
            self._emit_finished,
            self._emit_counted,
            self._emit_routed,
            self._loader_figures,
        )
        self._waiting = self._finished.waiting
        counted = steps_counted(optimizer) if self._first_step is None else self._first_step
        session = self._open_session(world, facts, counted, self._before_flush, self._position)
        self._late_facts = LateFacts(
            session, optimizer, model, world.size, options.batch_size, reductions.facts
        )
        if not session.recording:
            return
        open_recordings.append(self)
        self._gradients = GradientClock(self._device)
        if self._device is not None:
            assembler = StepAssembler(reductions.counts, self._single)
            self._device_steps = DeviceSteps(self._device, assembler, session.late_step)
            syncs = HostSyncs(torch.cuda, self._finished.count)
            retries = AllocatorRetries(torch.cuda, self._device.index, lambda: session.next_step)
            copies = DeviceCopies(
                self._device, self._has_batch, lambda batch: memory_of(batch).size
            )
            session.after_failure = syncs.close
            self._undo += copies.watch()
            self._causes += [syncs.turn, lambda _: retries.turn(), copies.turn]
        self._waits = Waits(self._iteration_began, self._gradients.timestamp, self._fetched)
        self._times_gradients = not no_timestamps and reductions.needs_gradients
        self._undo.append(self._gradients.remove)
        self._undo.append(self._loader_figures.stop)
        self._undo.append(reductions.remove)
        gradients = None if no_timestamps else self._gradients
        reductions.install(gradients, self._reduced, self._waits)
        self._causes.append(reductions.waits_by_group)

    def _has_batch(self) -> Optional[bool]:
        """Return whether the iteration has its batch; None outside of iterations."""
        iteration = self._iteration
        return None if iteration is None else iteration.data is not None

    def _iteration_began(self) -> Optional[int]:
        """Return when the running iteration began; None until its batch is there."""
        iteration = self._iteration
        return None if iteration is None or iteration.data is None else iteration.begin

    def _fetched(self, ns: int) -> None:
        """Count the time of a batch that training has fetched within the iteration as input."""
        iteration = self._iteration
        if iteration is not None and iteration.data is not None:
            iteration.data += ns

    def _undo_all(self) -> None:
        while self._undo:
            try:
                self._undo.pop()()
            except Exception as error:
                self.fail(error)

    # -- iterations of the loop ------------------------------------------------------------------

    @while_running
    def before_loop(self, loader: Any) -> None:
        """Prepare for a loop over the loader; called before it makes its iterator."""
        self._loader_figures.follow(loader)

    def iterate(
        self,
        loader: Any,
        batches: Iterator[Any],
        is_epoch: bool = True,
        probe_input: Optional[int] = None,
    ) -> Iterator[Any]:
        """Yield the batches of a loop, and record its iterations.

        The work of every iteration is in this one function with local variables: training has just
        evicted everything else from the CPU's caches.
        """
        if not self.running:
            yield from batches
            return
        loop = object()
        self.begin_loop(loop, loader)
        self._loader_figures.begin(batches)
        full, shape = full_batches(loader)
        if is_epoch:
            self.begin_epoch()
        batches = self._probe.watch(loader, batches, probe_input)
        now, gradients, waiting = monotonic_ns, self._gradients, self._waiting
        finished, most_waiting, tensor = waiting.append, MOST_WAITING, torch.Tensor
        device, device_steps, read_some = self._device, self._device_steps, None
        times_gradients = self._times_gradients
        # A loader that begins to capture a graph, and leaves its end to training, is none.
        timestamp = None if device is None else device.timestamp
        arrived = None if device is None else device.timestamp_outside_captures
        if device_steps is not None and not device_steps.is_read_beside:
            read_some = device_steps.read_some
        try:
            self.begin_iteration()
            for batch in batches:
                iteration = self._iteration
                if iteration is not None:
                    data = iteration.data = now()
                    if full > 0 and arrived is None:
                        # Nothing else is done that another reading of the clock could measure.
                        iteration.shape = shape
                    else:
                        if arrived is not None:
                            iteration.device_data = arrived()
                        if full > 0:
                            iteration.shape = shape
                        elif type(batch) is tensor:
                            iteration.shape = batch.shape
                        else:
                            try:
                                iteration.shape = shape_in(batch)
                            except Exception as error:
                                self.fail(error)
                        self._own_ns += now() - data
                full -= 1
                yield batch
                iteration = self._iteration
                if iteration is None or len(waiting) >= most_waiting:
                    self.next_iteration()
                    continue
                try:
                    end, ready, on_device = now(), gradients.last, None
                    if timestamp is not None:
                        device_end = timestamp()
                        on_device = (
                            iteration.device_begin,
                            iteration.device_data,
                            gradients.device_last,
                            device_end,
                            True,
                        )
                        iteration.device_begin, iteration.device_data = device_end, None
                        gradients.device_last = None
                        if read_some is not None:
                            read_some(end)
                    # As _keep does, without the call.
                    finished(
                        (
                            iteration.epoch,
                            iteration.begin,
                            iteration.data,
                            iteration.shape,
                            iteration.reductions,
                            end,
                            ready,
                            self._own_ns,
                            1,
                            on_device,
                        )
                    )
                    if ready is not None and gradients.on_gradient is not None:
                        # A backward pass that ended normally leaves nothing else to reset.
                        gradients.last = None
                    elif times_gradients:
                        gradients.forget()
                    # Reuse the object, which is in the CPU's caches.
                    iteration.data = iteration.shape = None
                    iteration.reductions = []
                    begin = iteration.begin = now()
                    self._own_ns = begin - end
                except Exception as error:
                    self.fail(error)
            self.drop_iteration()
        finally:
            self.end_loop(loop, is_epoch)

    # -- epochs, and events between steps --------------------------------------------------------

    @while_running
    def begin_loop(self, loop: object, loader: Any) -> None:
        self._end_iteration_early()
        self._loop = loop
        self._late_facts.begin_loop(loader)
        if self._times_gradients:
            self._gradients.hook(parameters_of(self._optimizer, self._model))

    @while_running
    def begin_epoch(self, number: Optional[int] = None) -> None:
        is_first = self._epoch < 0
        super().begin_epoch(number)
        if not is_first:
            self._late_facts.record_rate(self._epoch)

    @while_running
    def end_epoch(self) -> None:
        in_epoch = self._epoch_start is not None
        super().end_epoch()
        if in_epoch:
            self._late_facts.end_epoch()

    def _before_flush(self) -> None:
        """Make rows before a flush, on the flushing thread, and at the end on the training thread."""
        device_steps, session = self._device_steps, self._session
        self._finished.settle()
        if self._iteration is not None:
            self._late_facts.sample_queue()
        if session is not None:
            figures = self._loader_figures.fact(monotonic_ns(), session.closed)
            if figures is not None:
                session.facts(figures)
            for cause in self._causes:
                # Versions differ, and the recording works without it.
                facts = known(functools.partial(cause, session.closed))
                if facts:
                    session.facts(facts)
        if device_steps is not None:
            ends = session is not None and session.closed
            if ends or device_steps.is_read_beside:
                device_steps.read(last=ends)
            device_steps.settle()
            if ends:
                self._record_device_clock()

    def _position(self) -> Position:
        """Return the progress of the iteration on the host; called on the flushing thread."""
        iteration = self._iteration
        if iteration is None:
            return Position()
        if self._waits.is_fetching:
            return Position(iteration.begin)
        reduced = iteration.reductions[-1].reduced if iteration.reductions else None
        # A collective before the last gradient waits for the other ranks, too.
        ready = self._gradients.last if self._gradients.is_complete else self._waits.since
        return Position(iteration.begin, iteration.data, ready, reduced)

    def _record_device_clock(self) -> None:
        """Record the quality of the device's times, at the end."""
        device_steps, device, session = self._device_steps, self._device, self._session
        assert device_steps is not None
        assert device is not None
        assert session is not None
        described: Dict[str, Any] = {
            "clock_error_us": None if device.error_ns is None else round(device.error_ns / 1e3, 1),
            "turns_without_times": device_steps.lost,
        }
        if device.broken is not None:
            described["reason"] = "the device gave no more times: %s" % device.broken
        session.facts({"stamps": {**self._timestamps, **described}})

    @while_running
    def begin_pause(self, kind: str) -> None:
        """Start a pause. A step with reduced gradients ends before it."""
        if self._iteration is not None and self._iteration.reductions:
            self.end_iteration()
        assert self._session is not None
        self._session.pause(kind)

    def _interval(self, kind: str, began: int) -> None:
        session, end = self._session, monotonic_ns()
        assert session is not None
        self._loader_figures.pause(began, end)
        # Write earlier steps first: the interval row names the next step.
        self._settle()
        session.interval(kind, max(self._epoch, 0), began, end)


def _clock_of(parameters: List[torch.Tensor]) -> Optional[CudaClock]:
    """Return the clock of the parameters' CUDA device; None where the host sees gradients itself."""
    index = cuda_device(parameters)
    # torch.cuda makes a new object of the stream at every call.
    stream_of = getattr(torch._C, "_cuda_getCurrentStream", None)
    if index is None:
        return None
    # ROCm's devices have the name of CUDA's.
    exchange = None if torch.version.cuda is None else capture_mode_exchange()
    return CudaClock(torch.cuda, index, stream_of=stream_of, exchange_mode=exchange)


def reductions_of(optimizer: Any, model: Any, size: int) -> Reductions:
    """Return the reductions of this training."""
    model = innermost_model(model)
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        return DdpReductions(model)
    if hasattr(optimizer, "_starting_models"):
        reason = "Adasum reduces in the middle of the optimizer's step"
    elif hasattr(optimizer, "skip_synchronize"):
        return HorovodReductions(optimizer)
    elif size > 1:
        sharding = sharding_of(model)
        if sharding is not None:
            return CollectiveReductions(optimizer, model, sharding)
        reason = (
            "the optimizer is not Horovod's and the model not DistributedDataParallel or sharded"
        )
    else:
        reason = None
    # Before torch 2.0 updates cannot be seen either.
    updates = hasattr(optimizer, "register_step_post_hook")
    return Updates(optimizer, reason) if updates else Reductions(reason)
