"""``StepLogger`` for Keras: adding it to ``model.fit`` is all a user does."""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections import deque
from pathlib import Path
from typing import Any, Callable, Deque, Dict, List, Optional, Union

import tensorflow as tf

from ..clock import read_clocks
from ..facts import host_facts, settings, timeline_is_on
from ..format import CHECKPOINT, EPOCH, VALIDATION
from ..identity import World, world_from_environment
from ..session import Session
from .facts import horovod_world, keras_version, model_facts, steps_per_execution
from .instrument import Instrumentation, passes_per_step
from .ring import StampRing
from .steps import Call, StepAssembler

logger = logging.getLogger("stallscope")


def _never_raises(method: Callable[..., None]) -> Callable[..., None]:
    """Whatever fails inside ends the recording with one warning, and nothing else."""

    @functools.wraps(method)
    def guarded(self: "StepLogger", *args: Any, **kwargs: Any) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as error:
            self._fail(error)

    return guarded


class StepLogger(tf.keras.callbacks.Callback):  # type: ignore[misc]  # TensorFlow ships no types
    """Record where the time of every step goes, on every rank, into one small file per rank.

        model.fit(data, callbacks=[StepLogger("logs/run-42")])

    Args:
        log_dir: folder for the logs; the ranks may share it, and a later job gets a run of its own.
        run_name: a name for people.
        synthetic: whether the data is synthetic: this run is a baseline.
        batch_size: samples per rank and step; read from the batches where it is not given.
        flush_seconds: how often, at least, the log on disk is brought up to date.
        stages: put stamps into the training graph. Without them only the host's begin and end of
            every step are recorded.

    Raises:
        TypeError, ValueError: for arguments that cannot be meant. Nothing else is ever raised:
            recording ends with one warning, and training goes on.
    """

    # Log values stay tensors: converting them would wait for the device in every batch.
    _supports_tf_logs = True

    def __init__(
        self,
        log_dir: Union[str, "os.PathLike[str]"],
        *,
        run_name: Optional[str] = None,
        synthetic: bool = False,
        batch_size: Optional[int] = None,
        flush_seconds: float = 1.0,
        stages: bool = True,
    ) -> None:
        super().__init__()
        if not isinstance(log_dir, (str, os.PathLike)):
            raise TypeError("log_dir is the folder for the logs, not %r" % (log_dir,))
        if batch_size is not None and batch_size < 1:
            raise ValueError("batch_size is a number of samples, not %r" % (batch_size,))
        if not flush_seconds > 0:
            raise ValueError("flush_seconds is a time above 0, not %r" % (flush_seconds,))
        self._log_dir = Path(os.path.abspath(os.fspath(log_dir)))
        self._own_facts = {
            "run_name": run_name,
            "synthetic": bool(synthetic),
            "batch_size": batch_size,
        }
        self._flush_seconds = float(flush_seconds)
        self._stages = bool(stages)
        self._session: Optional[Session] = None

    # -- what Keras calls ------------------------------------------------------------------------

    @_never_raises
    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        self._end()
        world = horovod_world() or world_from_environment(os.environ)
        self._begin(world)

    @_never_raises
    def on_epoch_begin(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        if self._session is not None:
            self._epoch = epoch
            self._epoch_began = read_clocks()[0]

    @_never_raises
    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        if self._session is not None:
            self._drain()
            self._session.interval(EPOCH, epoch, self._epoch_began, read_clocks()[0])

    @_never_raises
    def on_test_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        self._test_began = read_clocks()[0]

    @_never_raises
    def on_test_end(self, logs: Optional[Dict[str, Any]] = None) -> None:
        if self._session is not None:
            self._drain()
            self._session.interval(VALIDATION, self._epoch, self._test_began, read_clocks()[0])

    @_never_raises
    def on_train_end(self, logs: Optional[Dict[str, Any]] = None) -> None:
        self._end()

    # -- a session -------------------------------------------------------------------------------

    def _begin(self, world: World) -> None:
        model = self.model
        self._epoch: Optional[int] = None
        self._size = world.size
        # A deque: the training thread appends while the flushing thread may take.
        self._calls: Deque[Call] = deque()
        self._drain_lock = threading.Lock()
        self._drained_at = read_clocks()[0]
        self._first_call = True
        self._per_call = steps_per_execution(model)

        no_stamps = self._why_no_stamps()
        self._ring = None if no_stamps else StampRing(self._per_call)
        self._instrumentation = Instrumentation(
            self._ring, self._per_call, single_process=world.size == 1
        )
        passes = passes_per_step(model.optimizer)
        first_step = int(model.optimizer.iterations.numpy()) // passes
        self._assembler = StepAssembler(first_step, passes, reduces=world.size > 1)
        self._session = Session(
            self._log_dir,
            world,
            {
                **host_facts(),
                **model_facts(model, world.size),
                **self._own_facts,
                "settings": settings(os.environ),
                "timeline": timeline_is_on(os.environ),
                "stamps": {"placed": [], "reason": no_stamps},
            },
            first_step,
            self._flush_seconds,
            before_flush=self._drain_if_stuck,
        )
        if not self._session.recording:
            self._session = None
            return
        self._instrumentation.install(model)
        self._saving = _CheckpointTimer(model, self._checkpoint)
        # Fit has made its train function already, and an earlier fit may have traced it: a new one
        # is traced with the stamps in it.
        model.train_function = None
        model.train_function = _TimedFunction(model.make_train_function(), self)

    def _end(self) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        self._restore()
        self._drain(session)
        session.close()

    def _restore(self) -> None:
        self._instrumentation.remove()
        self._saving.remove()
        # Traced with the stamps: the next fit makes its own.
        self.model.train_function = None

    def _fail(self, error: Exception) -> None:
        session, self._session = self._session, None
        if session is None:
            logger.warning("stallscope: recording could not start, training goes on: %r", error)
            return
        session.fail("recording failed: %r" % error)
        instrumentation = getattr(self, "_instrumentation", None)
        if instrumentation is not None:
            instrumentation.active = False

    def _why_no_stamps(self) -> Optional[str]:
        """Why stamps must not go into this model's graph; None where they may.

        An error inside a traced graph cannot be caught, so this is decided before the trace.
        """
        model = self.model
        if not self._stages:
            return "switched off with stages=False"
        if not keras_version().startswith("2."):
            return "Keras %s builds its train step otherwise" % keras_version()
        if getattr(model, "_jit_compile", None):
            return "jit_compile=True: XLA has no clock"
        if type(model.distribute_strategy).__name__ != "_DefaultDistributionStrategy":
            return "tf.distribute runs the train step in replicas"
        return None

    # -- one call of the train function ----------------------------------------------------------

    def _called(self, call: Call) -> None:
        self._calls.append(call)
        assert call.end is not None
        if self._first_call:
            self._first_call = False
            self._after_first_call()
        pending = len(self._calls) * self._per_call
        overdue = call.end - self._drained_at > self._flush_seconds * 5e8
        if overdue or (self._ring is not None and 2 * pending >= self._ring.capacity):
            self._drain()

    @_never_raises
    def _aborted(self, call: Call) -> None:
        """The call ended with an exception, mostly because the data did; inner steps may have run."""
        self._drain()
        if self._ring is not None and self._session is not None:
            with self._drain_lock:
                for row in self._assembler.stamped_rows(call, self._ring.take()):
                    self._session.step(row)

    def _after_first_call(self) -> None:
        """The graph is traced: say what is known only now."""
        assert self._session is not None
        instrumentation = self._instrumentation
        facts: Dict[str, Any] = dict(instrumentation.gradients)
        if self._ring is not None:
            facts["stamps"] = {"placed": instrumentation.placed, "reason": None}
        reduced = self._size == 1 or instrumentation.reduction_traced or self._graph_reduces()
        facts["gradients_reduced"] = reduced
        if reduced is False:
            logger.error(
                "stallscope: %d ranks train, but their gradients are not reduced: each rank trains a "
                "model of its own. A custom train_step must reduce them itself, with "
                "hvd.DistributedGradientTape or optimizer.minimize().",
                self._size,
            )
        self._session.facts(facts)

    def _graph_reduces(self) -> Optional[bool]:
        """Whether the traced train function holds any of Horovod's ops; None where that is unknown."""
        function = getattr(self.model, "train_tf_function", None)
        if self.model.run_eagerly or not hasattr(function, "_list_all_concrete_functions"):
            return None
        for concrete in function._list_all_concrete_functions():
            graph = concrete.graph.as_graph_def()
            nodes = list(graph.node)
            for inner in graph.library.function:
                nodes.extend(inner.node_def)
            if any(node.op.startswith("Horovod") for node in nodes):
                return True
        return False

    def _drain(self, session: Optional[Session] = None) -> None:
        """Turn finished calls into rows."""
        session = session or self._session
        if session is None:
            return
        with self._drain_lock:
            calls = [self._calls.popleft() for _ in range(len(self._calls))]
            self._drained_at = read_clocks()[0]
            if self._ring is None:
                rows = self._assembler.host_rows(calls)
            else:
                rows = self._stamped(self._ring, calls, session)
            for row in rows:
                session.step(row)
            if rows and self._own_facts["batch_size"] is None and rows[-1].samples is not None:
                # The first batches tell; the facts are the run's, so they are written once.
                self._own_facts["batch_size"] = rows[0].samples
                session.facts({"batch_size": rows[0].samples})

    def _stamped(self, ring: StampRing, calls: List[Call], session: Session) -> List[Any]:
        steps = ring.take(sum(call.count for call in calls)) if calls else []
        rows: List[Any] = []
        for position, call in enumerate(calls):
            if len(steps) < call.count:
                # The train function does not go through train_step: nothing was stamped.
                self._ring = None
                session.facts({"stamps": {"placed": [], "reason": "train_step was not called"}})
                return rows + self._assembler.host_rows(calls[position:])
            rows += self._assembler.stamped_rows(call, steps[: call.count])
            steps = steps[call.count :]
        return rows

    def _drain_if_stuck(self) -> None:
        """From the flushing thread: a step that takes long must not hold back those before it."""
        if self._calls and read_clocks()[0] - self._drained_at > self._flush_seconds * 1e9:
            self._drain()

    @_never_raises
    def _checkpoint(self, begin: int, end: int) -> None:
        if self._session is not None:
            self._drain()
            self._session.interval(CHECKPOINT, self._epoch, begin, end)


class _TimedFunction:
    """The model's train function between two looks at the clocks.

    Taken here and not in the batch hooks, the times do not depend on the order of callbacks: what
    other callbacks do is between steps, not inside them.
    """

    def __init__(self, function: Callable[..., Any], recorder: StepLogger) -> None:
        self._function = function
        self._recorder = recorder

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        recorder = self._recorder
        if recorder._session is None:
            return self._function(*args, **kwargs)
        # The last call of an epoch may run fewer steps than the others.
        count = 1 if recorder._per_call == 1 else steps_per_execution(recorder.model)
        begin, clock_begin = read_clocks()
        try:
            outputs = self._function(*args, **kwargs)
        except BaseException:
            recorder._aborted(Call(recorder._epoch, begin, None, clock_begin, clock_begin, count))
            raise
        end, clock_end = read_clocks()
        try:
            recorder._called(Call(recorder._epoch, begin, end, clock_begin, clock_end, count))
        except Exception as error:
            recorder._fail(error)
        return outputs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)


class _CheckpointTimer:
    """Times the model's own saving, whichever callback asks for it."""

    def __init__(self, model: Any, record: Callable[[int, int], None]) -> None:
        self._model = model
        self._record = record
        self._depth = 0
        for name in ("save", "save_weights"):
            if name not in vars(model):
                setattr(model, name, self._timed(getattr(model, name)))

    def remove(self) -> None:
        for name in ("save", "save_weights"):
            if getattr(vars(self._model).get(name), "_stallscope_timer", None) is self:
                delattr(self._model, name)

    def _timed(self, save: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(save)
        def timed(*args: Any, **kwargs: Any) -> Any:
            begin = read_clocks()[0]
            self._depth += 1
            try:
                return save(*args, **kwargs)
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self._record(begin, read_clocks()[0])

        timed._stallscope_timer = self  # type: ignore[attr-defined]  # marks what remove() takes out
        return timed
