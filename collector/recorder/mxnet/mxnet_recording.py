"""Record one training: patch its trainer, and write its steps as rows."""

from __future__ import annotations

import functools
import logging
import sys
from itertools import chain, repeat
from time import monotonic_ns
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

import mxnet as mx

from ..guards import never_raises, patch, while_running
from ..hangs import Position, running_frame
from ..job.job_facts import SWITCHED_OFF, gradient_sizes, known, module_version, optimizer_facts
from ..job.world import world_of_training
from ..loop_recording import LoopLogger, LoopRecording, WatchedLoader
from ..loop_steps import Shape
from ..options import LogDir, OptionArguments, Options, with_options
from ..step_log.line_format import StepRow
from .gluon_iterations import OWN_NS, REDUCTIONS, IterationStream, RunningIteration
from .gradient_probe import Answer, GradientProbe
from .mxnet_engine import Shapes, full_batches

if TYPE_CHECKING:
    from typing_extensions import Unpack

logger = logging.getLogger("stallscope")
# Recordings that still run.
open_recordings: List["Recording"] = []


class Recording(LoopRecording):
    """One StepLogger's training: its epochs, iterations, reductions and pauses."""

    why_never_ahead = (
        "MXNet's engine makes batches after the loader has returned them, so how long fetching takes is "
        "unknown"
    )

    # Slots, not a dict: training has just evicted everything from the CPU's caches.
    __slots__ = (
        "_iteration",
        "_probe",
        "_restore",
        "_shapes",
        "_single",
        "_stream",
        "_trainer",
        "_waiting",
        "_weights_recorded",
    )

    def __init__(self, trainer: Any, options: Options) -> None:
        super().__init__(options)
        self._trainer = trainer
        self._restore: Optional[Callable[[], None]] = None
        self._probe: Optional[GradientProbe] = None
        # The current iteration; None outside of one.
        self._iteration: Optional[RunningIteration] = None
        self._shapes = Shapes()
        self._weights_recorded = False

    # -- start and stop --------------------------------------------------------------------------

    @never_raises
    def start(self) -> None:
        """Open the log and watch the trainer reduce gradients."""
        trainer = self._trainer
        for recording in [
            recording for recording in open_recordings if recording._trainer is trainer
        ]:
            logger.warning(
                "stallscope: another StepLogger records this training from here on; one is enough"
            )
            recording.stop()
        world = world_of_training()
        single = self._single = world.size == 1
        probe, reason = self._probe_or_why_not()
        facts = {
            **trainer_facts(trainer, world.size),
            "gradients_reduced": True if single or is_horovod_trainer(trainer) else None,
            "stamps": {
                "placed": ["data"] if reason else ["data", "ready", "reduced"],
                "reason": reason,
            },
        }
        counted = steps_counted(trainer)
        session = self._open_session(world, facts, counted, self._drain, self._position)
        if not session.recording:
            return
        self._probe = probe
        self._stream = IterationStream(single, session.cost.count_iteration, self._emit)
        self._waiting = self._stream.waiting
        open_recordings.append(self)
        self._watch_reductions()

    @never_raises
    def stop(self) -> None:
        """Restore the trainer, write what is left and close the log."""
        self.end_epoch()
        if self in open_recordings:
            open_recordings.remove(self)
        if self._restore is not None:
            self._restore()
        self._restore = None
        if self._session is not None:
            if self._session.recording:
                self._stream.close()
                if self._stream.gave_up:
                    self._session.facts(self._not_reduced())
            self._session.close(steps_counted(self._trainer))

    def _position(self) -> Position:
        """Return the progress of the iteration; called on the flushing thread."""
        fetch = running_frame(self._thread, _ITERATE)
        if fetch is not None:
            return Position(fetch.f_locals.get("begin"))
        iteration = self._iteration
        if iteration is None:
            return Position()
        _, begin, data, *_ = iteration
        if len(iteration) <= REDUCTIONS:
            return Position(begin, data)
        # The engine answers later than the host asks, so the time is that of this check.
        ready, reduced = (
            monotonic_ns() if answer is not None and answer.is_there else None
            for answer in iteration[REDUCTIONS]
        )
        return Position(begin, data, ready, reduced)

    def _probe_or_why_not(self) -> Tuple[Optional[GradientProbe], Optional[str]]:
        if not self._options.stages:
            return None, SWITCHED_OFF
        if not self._single and not is_horovod_trainer(self._trainer):
            return None, "the trainer is not Horovod's DistributedTrainer"
        try:
            return GradientProbe(self._trainer), None
        except OSError as error:
            return None, str(error)

    def _not_reduced(self) -> Dict[str, Any]:
        reason = "the trainer that was given never reduced a gradient"
        return {
            "gradients_reduced": True if self._single else None,
            "stamps": {"placed": ["data"], "reason": reason},
        }

    def _watch_reductions(self) -> None:
        original = self._trainer._allreduce_grads

        @functools.wraps(original)
        def allreduce_grads(*args: Any, **kwargs: Any) -> Any:
            ready = self._asked(ask_ready)
            result = original(*args, **kwargs)
            iteration = self._iteration
            if iteration is not None:
                # On a single rank ready gradients need no reduction.
                iteration.append((ready, None if single else self._asked(ask_reduced)))
            return result

        probe, single = self._probe, self._single
        ask_ready, ask_reduced = (probe.ask_ready, probe.ask_reduced) if probe else (None, None)
        self._restore = patch(self._trainer, "_allreduce_grads", allreduce_grads)

    def _asked(
        self, ask: Optional[Callable[[], Optional[Answer]]], now: Callable[[], int] = monotonic_ns
    ) -> Optional[Answer]:
        """Ask the engine about the gradients; None where it cannot be asked."""
        iteration = self._iteration
        if ask is None or iteration is None or self._failed:
            return None
        began = now()
        try:
            answer = ask()
        except Exception as error:
            self.fail(error)
            return None
        iteration[OWN_NS] += now() - began
        return answer

    # -- epochs, and events between steps --------------------------------------------------------

    @while_running
    def begin_epoch(self, number: Optional[int] = None) -> None:
        self.end_epoch()
        if self._probe is not None:
            self._probe.look_again()
        super().begin_epoch(number)

    def _interval(self, kind: str, began: int) -> None:
        session, end = self._session, monotonic_ns()
        assert session is not None
        with session.cost.outside_iterations():
            # Write earlier steps first: the interval row names the next step.
            self._stream.settle()
            session.interval(kind, max(self._epoch, 0), began, end)

    # -- iterations of the loop ------------------------------------------------------------------

    def iterate(self, loader: Any, batches: Iterator[Any]) -> Iterator[Any]:
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
        full, known_shape = self._shapes_known(loader)
        now, ends, epoch = monotonic_ns, self._waiting.append, self._epoch
        begin, own_ns = now(), 0
        try:
            for batch, shape in zip(batches, chain(repeat(known_shape, full), repeat(None))):
                data = now()
                if shape is None:
                    shape = self._shape_of(batch)
                if session.recording:
                    self._iteration = [epoch, begin, data, shape, own_ns + now() - data]
                yield batch
                end, iteration = now(), self._iteration
                if iteration is not None:
                    ends((iteration, end))
                    self._iteration = None
                begin = now()
                own_ns = begin - end
        finally:
            self.end_loop(loop)

    def _shapes_known(self, loader: Any) -> Tuple[int, Optional[Shape]]:
        """Return ``full_batches``; all batches are full where the user gave their size."""
        given = self._samples_given
        return full_batches(loader) if given is None else (sys.maxsize, (given,))

    def _shape_of(self, batch: Any) -> Optional[Shape]:
        try:
            return self._shapes.of(batch)
        except Exception as error:  # no error may reach training
            self.fail(error)
            return None

    @while_running
    def _end_iteration_early(self) -> None:
        """End the iteration where the user left the loop; it counts if gradients were reduced."""
        iteration, self._iteration = self._iteration, None
        if iteration is not None and len(iteration) > REDUCTIONS:
            self._waiting.append((iteration, monotonic_ns()))

    @while_running
    def _drain(self) -> None:
        """Make rows before a flush, on the flushing thread, which may be early."""
        if self in open_recordings:
            self._stream.drain()

    def _emit(self, rows: List[StepRow]) -> None:
        if rows and not self._weights_recorded:
            self._weights_recorded = True
            assert self._session is not None
            # Shapes may be known only since the first batch.
            self._session.facts(weights(self._trainer))
        super()._emit(rows)


#: While a thread runs this generator, and not the body of its loop, it fetches a batch.
_ITERATE = Recording.iterate.__code__


# -- Facts of a Gluon trainer and its parameters --------------------------------------------------


def is_horovod_trainer(trainer: Any) -> bool:
    horovod = sys.modules.get("horovod.mxnet")
    return horovod is not None and isinstance(trainer, horovod.DistributedTrainer)


def trainer_facts(trainer: Any, size: int) -> Dict[str, Any]:
    """Return facts of the trainer; None where they are unknown before the first batch."""
    optimizer = trainer._optimizer
    rate = known(lambda: float(trainer.learning_rate))
    return {
        "framework": "mxnet",
        "versions": {
            "mxnet": mx.__version__,
            "horovod": module_version("horovod"),
        },
        **optimizer_facts(optimizer, "learning_rate", rate, size),
        "devices": known(lambda: _devices(trainer)),
    }


def weights(trainer: Any) -> Dict[str, Any]:
    """Return the numbers of parameters and gradients; None where shapes are not known yet."""
    trained = [parameter for parameter in trainer._params if parameter.grad_req != "null"]
    return {
        "parameters": known(lambda: sum(_numbers(parameter) for parameter in trainer._params)),
        "gradient_tensors": len(trained),
        **gradient_sizes(known(lambda: list(map(_bytes, trained)))),
    }


def steps_counted(trainer: Any) -> int:
    """Return the updates that the optimizer has ever counted."""
    return int(getattr(trainer._optimizer, "num_update", 0))


def _bytes(parameter: Any) -> int:
    return int(_numbers(parameter) * parameter.data().dtype().itemsize)


def _numbers(parameter: Any) -> int:
    numbers = 1
    for length in parameter.shape:
        if length <= 0:
            raise ValueError("not known before the first batch")
        numbers *= int(length)
    return numbers


def _devices(trainer: Any) -> List[str]:
    contexts = {context for parameter in trainer._params for context in parameter.list_ctx()}
    return sorted({context.device_type.upper() for context in contexts})


# -- ``StepLogger`` for MXNet: a context around a training loop and its loader --------------------


class StepLogger(LoopLogger):
    """Record where the time of every step goes, on every rank, into one small file per rank.

        with StepLogger("logs/run-42", trainer=trainer) as log:
            for epoch in range(epochs):
                for inputs, labels in log.watch(loader):
                    ...
                with log.validation():
                    ...

    One iteration of the loop is one step; iterations that only accumulate gradients are summed into it.

    MXNet's engine reports when the gradients are ready and reduced.

    Args:
        trainer: the ``gluon.Trainer``, with Horovod its ``hvd.DistributedTrainer``.
        log_dir, options: see ``__init__``.
    """

    @with_options
    def __init__(
        self,
        log_dir: LogDir,
        *,
        trainer: Any,
        **options: Unpack[OptionArguments],
    ) -> None:
        super().__init__()
        if not isinstance(trainer, mx.gluon.Trainer):
            raise TypeError("trainer is a gluon.Trainer, not %r" % (trainer,))
        self._trainer = trainer
        self._options = Options(log_dir, **options)

    def _new_recording(self) -> Recording:
        return Recording(self._trainer, self._options)

    def watch(self, loader: Iterable[Any]) -> WatchedLoader:
        """Iterate over ``loader`` and record each iteration; each loop is an epoch."""
        return WatchedLoader(self, loader)
