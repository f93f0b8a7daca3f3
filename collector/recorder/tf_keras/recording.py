"""One recording: what is put into a model for one ``fit``, and what comes out of it as rows."""

from __future__ import annotations

import logging
import os
from functools import partial
from types import FrameType
from typing import Any, List, Optional, Tuple

from ..fit_recording import FitRecording
from ..format import StepRow
from ..guards import never_raises
from ..identity import World, world_from_environment
from ..learning_rate import Rates
from ..opening import open_session
from ..options import Options
from ..session import Session
from .calls import EndedCalls
from .facts import (
    horovod_world,
    learning_rate,
    model_facts,
    parameters,
    plan,
    steps_per_execution,
    weights,
    why_no_stamps,
)
from .fitting import fit_facts, fit_frame
from .instrument import Instrumentation
from .keras_2 import keras
from .optimizers import graph_reduces, passes_counted, passes_done, passes_per_step
from .ring import CAPACITY, StampRing
from .steps import StepAssembler
from .stream import StepStream
from .timing import TimedSaving, calls_through, code_of, is_made_by, timed

logger = logging.getLogger("stallscope")

# Keras' tuner may raise the steps of a call to anything.
_TUNED = "autotune_steps_per_execution"
# What comes to light with a call does so with the first ones; with later ones hardly ever.
_FIRST_CALLS = 3


class Recording(FitRecording):
    """One ``fit`` of one model: its timestamps and timers, and what they see on its way to the log.

    Whatever fails in here stays in here: none of its methods raises.
    """

    def __init__(self, model: Any, options: Options) -> None:
        super().__init__(model, options, fit_frame(model))
        self._weights_told = False
        self._graph_reduces: Optional[bool] = None
        self._rates = Rates()
        self._stream: Optional[StepStream] = None
        self._instrumentation: Optional[Instrumentation] = None

    # -- begin and end ---------------------------------------------------------------------------

    @never_raises
    def start(self) -> None:
        model, optimizer = self.model, self._optimizer
        world = horovod_world() or world_from_environment(os.environ)
        tuned = bool(getattr(model, _TUNED, False))
        self._size = world.size
        self._several_per_call = tuned or steps_per_execution(model) != 1
        self._passes = passes_per_step(optimizer)
        self._counted_before = passes_counted(optimizer)
        self._no_stamps = why_no_stamps(model, self._options.stages)
        ring = None if self._no_stamps else StampRing(max(CAPACITY, 4 * steps_per_execution(model)))
        session = self._session = self._open_session(world)
        if not session.recording:
            return
        assembler = StepAssembler(
            session.next_step, self._passes, world.size > 1, passes_done(optimizer)
        )
        calls = self._calls = EndedCalls(session.cost)
        calls.change(self.epoch)
        self._stream = StepStream(calls, ring, assembler, self._several_per_call, self._emit)
        self._begin()
        self._instrumentation = Instrumentation(
            ring, self._several_per_call, single_process=world.size == 1
        )
        self._undo.append(self._instrumentation.remove)
        self._instrumentation.install(model)
        saving = TimedSaving(model, self._saved)
        self._undo.append(saving.remove)
        saving.install()
        self._time_train_function(session, calls, self._instrumentation)

    def stop(self) -> None:
        self._forget()
        self._undo_all()
        self._finish()
        self._active = False
        self._close()

    def fail(self, error: Exception) -> None:
        super().fail(error)
        if self._instrumentation is not None:
            self._instrumentation.active = False

    @never_raises
    def drain(self, between_calls: bool = False) -> None:
        """Turn calls that have ended into rows; from the flushing thread as well."""
        if self.running and self._stream is not None:
            self._stream.drain(between_calls)

    def _open_session(self, world: World) -> Session:
        options = self._options
        facts = {
            **model_facts(self.model, world.size),
            **plan(self._history),
            **fit_facts(self.model),
            "stamps": {"placed": [], "reason": self._no_stamps},
        }
        return open_session(
            options,
            world,
            facts,
            self._counted_before // self._passes,
            before_flush=self.drain,
        )

    def _time_train_function(
        self, session: Session, calls: EndedCalls, instrumentation: Instrumentation
    ) -> None:
        """Put a timer around a train function that is traced with the timestamps in it.

        Fit has made its own already, and an earlier fit may have traced it: another one is made.
        A user's own function stays, and what it does is not known.
        """
        model = self.model
        found, graph = model.train_function, getattr(model, "train_tf_function", None)

        def undo() -> None:
            # Something else was put there meanwhile: leave it.
            if model.train_function is self._timer:
                model.train_function = found
                model.train_tf_function = graph

        self._undo.append(undo)
        model.train_function = None
        made = model.make_train_function()
        own = found is not None and code_of(found) is not code_of(made)
        function, key = found if own else made, instrumentation.key
        self._timer = model.train_function = timed(function, self, session, calls, key=key)
        if not own and is_made_by(keras.Model, made):
            instrumentation.takes_out = partial(calls_through, self._timer)

    def _fit_that_runs(self) -> Optional[FrameType]:
        return fit_frame(self.model)

    def _make_rows(self) -> None:
        self._settle()
        self.drain()

    def _counted(self) -> int:
        return passes_counted(self._optimizer) // self._passes

    # -- what Keras does between steps -----------------------------------------------------------

    @never_raises
    def epoch_begins(self, epoch: int) -> None:
        # Before the first one a checkpoint's rate may not have been broadcast yet.
        if self.epoch is not None and self.running and self._session is not None:
            changes = self._rates.changed(epoch, learning_rate(self._optimizer))
            if changes is not None:
                self._session.facts({"learning_rates": changes})
        super().epoch_begins(epoch)

    # -- one call of the train function ----------------------------------------------------------

    # These two run around the first calls only, unless a call runs several steps.

    def before_call(self) -> None:
        try:
            if getattr(self.model, "history", None) is not self._history:
                self._give_way()
            elif self.running:
                self._look_before_call()
        except Exception as error:  # whatever it is, it may not reach training
            self.fail(error)

    def called(self) -> None:
        assert self._stream is not None
        try:
            self._stream.look()
            self._announce_news()
        except Exception as error:
            self.fail(error)

    def _look_before_call(self) -> None:
        stream, calls = self._stream, self._calls
        assert stream is not None
        assert calls is not None
        if calls.looked and not stream.settled:
            self._settle()
            self.drain(between_calls=True)
        if calls.looked and not self._weights_told:
            self._weights_told = True
            self._tell_weights()
        if self._several_per_call:
            # The last call of an epoch may run fewer steps than the others.
            calls.change(self.epoch, steps_per_execution(self.model))
        calls.attend(to_all=self._several_per_call or calls.looked < _FIRST_CALLS)

    @never_raises
    def aborted(self, begin: int) -> None:
        assert self._stream is not None
        self._stream.abort(begin)

    def _give_way(self) -> None:
        """Another fit trains the model, without this callback: an exception ended the one before."""
        self.stop()
        # Where there was none before the recording.
        self.model.make_train_function()

    def _settle(self) -> None:
        assert self._stream is not None
        assert self._session is not None
        if not self._stream.settled:
            counted = passes_counted(self._optimizer)
            self._stream.settle(self._counted_before, counted, self._passes, self._session.renumber)

    def _tell_weights(self) -> None:
        """After the first batch, when Horovod's callback has broadcast them."""
        assert self._session is not None
        # A tuner decides on each rank how many steps a call runs.
        if self._size == 1 or getattr(self.model, _TUNED, False):
            return
        found = weights(self.model)
        if found is not None:
            self._session.facts({"weights": {**found, "after": 1}})

    def _emit(self, rows: List[StepRow]) -> None:
        session = self._session
        assert session is not None
        if self._instrumentation is not None and self._instrumentation.several_tapes:
            rows = [row._replace(ready=None, reduced=None) for row in rows]
        for row in rows:
            session.step(row)
        if self._batch_size is None:
            # The first batch tells; the last one of an epoch may be smaller.
            whole = (row.samples for row in rows if row.micro == self._passes)
            self._batch_size = next(whole, None)
            if self._batch_size is not None:
                session.facts({"batch_size": self._batch_size})

    # -- what is known only once the graph is traced ---------------------------------------------

    def _news(self) -> Tuple[Any, ...]:
        """Changes whenever there is something to announce."""
        instrumentation, stream = self._instrumentation, self._stream
        assert instrumentation is not None
        assert stream is not None
        return (
            len(instrumentation.placed),
            instrumentation.reduction_traced,
            instrumentation.several_tapes,
            instrumentation.trouble,
            stream.trouble,
        )

    def _announce_news(self) -> None:
        if self._calls is not None and self._calls.looked and self._news() != self._announced:
            self._announce()

    def _announce(self) -> None:
        instrumentation, stream, session = self._instrumentation, self._stream, self._session
        assert instrumentation is not None
        assert stream is not None
        assert session is not None
        reduced = self._reduced(instrumentation)
        trouble = self._no_stamps or instrumentation.trouble or stream.trouble
        # Those of the last tape are not all.
        gradients = {} if instrumentation.several_tapes else instrumentation.gradients
        session.facts(
            {
                **gradients,
                "gradients_reduced": reduced,
                "parameters": parameters(self.model),
                "stamps": {
                    "placed": _told(instrumentation) if stream.stamped else [],
                    "reason": trouble or self._why_not_ready(instrumentation, reduced),
                },
            }
        )
        self._announced = self._news()

    def _reduced(self, instrumentation: Instrumentation) -> Optional[bool]:
        """Whether the ranks' gradients are reduced; None where that cannot be seen."""
        if self._size == 1 or instrumentation.reduction_traced:
            return True
        if self._announced is None:
            self._graph_reduces = graph_reduces(self.model)
            if self._graph_reduces is False:
                logger.error(
                    "stallscope: %d ranks train, but their gradients are not reduced: each rank "
                    "trains a model of its own. A custom train_step must reduce them itself, with "
                    "hvd.DistributedGradientTape or optimizer.minimize().",
                    self._size,
                )
        return self._graph_reduces

    def _why_not_ready(
        self, instrumentation: Instrumentation, reduced: Optional[bool]
    ) -> Optional[str]:
        if instrumentation.several_tapes:
            return "the train step reduces gradients several times"
        if "ready" in instrumentation.placed:
            return None
        if self._size == 1:
            return "the train step takes its gradients from elsewhere than the optimizer"
        if reduced is False:
            return "the gradients are not reduced"
        return "the gradients are reduced elsewhere than in Horovod's optimizer or tape"


def _told(instrumentation: Instrumentation) -> List[str]:
    """Timestamps that rows have."""
    return ["data"] if instrumentation.several_tapes else list(instrumentation.placed)
