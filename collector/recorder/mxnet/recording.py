"""One recording: what is put into a trainer for a while, and what comes out of it as rows."""

from __future__ import annotations

import functools
import logging
import sys
from collections import deque
from itertools import chain, repeat
from time import monotonic_ns
from typing import Any, Callable, Deque, Dict, Iterator, List, Optional, Tuple

from ..format import EPOCH, StepRow
from ..guards import while_running
from ..opening import open_session
from ..options import Options
from ..session import Session
from .batches import Samples, full_batches
from .facts import is_horovods, steps_counted, trainer_facts, weights, world_of_training
from .probes import Answer, GradientProbe
from .turns import OWN_NS, REDUCTIONS, BegunTurn, EndedTurn, TurnStream

logger = logging.getLogger("stallscope")

# Recordings that are still open.
_open: List["Recording"] = []


class Recording:
    """What one StepLogger sees: epochs, turns of the loop, reductions, and what lies in between.

    Whatever fails in here stays in here: none of its methods raises, and none does anything unless
    the recording runs.
    """

    # Not a dict: in every turn the training has just driven it out of the processor's caches.
    __slots__ = (
        "_batch_size",
        "_counts",
        "_epoch",
        "_epoch_began",
        "_failed",
        "_loop",
        "_options",
        "_original",
        "_probe",
        "_replaced",
        "_samples_given",
        "_session",
        "_single",
        "_stream",
        "_trainer",
        "_turn",
        "_waiting",
    )

    def __init__(self, trainer: Any, options: Options) -> None:
        self._trainer = trainer
        self._options = options
        self._session: Optional[Session] = None
        self._failed = False
        self._original: Any = None
        self._replaced: Any = None
        self._probe: Optional[GradientProbe] = None
        self._loop: Optional[object] = None
        self._epoch = -1
        self._epoch_began: Optional[int] = None
        self._batch_size = self._samples_given = options.batch_size
        # The turn that runs; None where none does.
        self._turn: Optional[BegunTurn] = None
        #: A deque: the training thread appends while another one takes, without a lock.
        self._waiting: Deque[EndedTurn] = deque()
        self._counts = Samples()

    @property
    def running(self) -> bool:
        return self._session is not None and self._session.recording and not self._failed

    # -- begin and end ---------------------------------------------------------------------------

    def start(self) -> None:
        """Open the log and watch the trainer reduce gradients."""
        try:
            for other in [one for one in _open if one._trainer is self._trainer]:
                logger.warning(
                    "stallscope: another StepLogger records this training from here on; one is enough"
                )
                other.stop()
            self._start()
        except Exception as error:
            self.fail(error)

    def stop(self) -> None:
        """Leave the trainer as it was found, write what is left and close the log."""
        self.epoch_ends()
        if self in _open:
            _open.remove(self)
        try:
            # Something else was put there meanwhile: leave it.
            if vars(self._trainer).get("_allreduce_grads") is self._replaced is not None:
                if self._original is None:
                    del self._trainer._allreduce_grads
                else:
                    self._trainer._allreduce_grads = self._original
            self._replaced = self._original = None
            if self._session is not None:
                if self._session.recording and not self._stream.close():
                    self._session.facts(self._not_reduced())
                self._session.close(steps_counted(self._trainer))
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Record no more, and say so once."""
        if self._session is not None:
            self._session.fail("recording failed: %r" % error)
        elif not self._failed:
            logger.warning("stallscope: recording could not start, training goes on: %r", error)
        self._failed = True

    def _start(self) -> None:
        trainer, options = self._trainer, self._options
        world = world_of_training()
        single = self._single = world.size == 1
        probe, reason = self._probe_or_why_not()
        facts = {
            **trainer_facts(trainer, world.size),
            "gradients_reduced": True if single or is_horovods(trainer) else None,
            "stamps": {
                "placed": ["data"] if reason else ["data", "ready", "reduced"],
                "reason": reason,
            },
        }
        session = self._session = open_session(
            options,
            world,
            facts,
            steps_counted(trainer),
            before_flush=self._drain,
        )
        if not session.recording:
            return
        self._probe = probe
        self._stream = TurnStream(self._waiting, single, session.cost.turn, self._emit)
        _open.append(self)
        self._watch_reductions()

    def _probe_or_why_not(self) -> Tuple[Optional[GradientProbe], Optional[str]]:
        if not self._options.stages:
            return None, "switched off with stages=False"
        if not self._single and not is_horovods(self._trainer):
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
        # A trainer may have one of its own, besides its class.
        self._original = vars(self._trainer).get("_allreduce_grads")

        @functools.wraps(original)
        def allreduce_grads(*args: Any, **kwargs: Any) -> Any:
            ready = self._asked(ask_ready)
            result = original(*args, **kwargs)
            turn = self._turn
            if turn is not None:
                # What is ready needs no reducing on a single rank.
                turn.append((ready, None if single else self._asked(ask_reduced)))
            return result

        probe, single = self._probe, self._single
        ask_ready, ask_reduced = (probe.ask_ready, probe.ask_reduced) if probe else (None, None)
        self._replaced = self._trainer._allreduce_grads = allreduce_grads

    def _asked(
        self, ask: Optional[Callable[[], Optional[Answer]]], now: Callable[[], int] = monotonic_ns
    ) -> Optional[Answer]:
        """When the gradients are there, or reduced; None where that is not asked."""
        turn = self._turn
        if ask is None or turn is None or self._failed:
            return None
        began = now()
        try:
            answer = ask()
        except Exception as error:
            self.fail(error)
            return None
        turn[OWN_NS] += now() - began
        return answer

    # -- epochs, and what lies between steps ------------------------------------------------------

    @while_running
    def loop_begins(self, loop: object, loader: Any) -> None:
        self._end_turn_early()
        if self._loop is None:
            assert self._session is not None
            self._session.facts({"batches_per_epoch": _length(loader)})
        self._loop = loop

    @while_running
    def loop_ends(self, loop: object) -> None:
        """Python may only close a loop that was left when another one runs already."""
        if loop is self._loop:
            self.epoch_ends()

    @while_running
    def epoch_begins(self) -> None:
        self.epoch_ends()
        self._epoch += 1
        if self._probe is not None:
            self._probe.look_again()
        self._epoch_began = monotonic_ns()

    @while_running
    def epoch_ends(self) -> None:
        self._end_turn_early()
        began, self._epoch_began = self._epoch_began, None
        if began is not None:
            self._interval(EPOCH, began)

    @while_running
    def pause_begins(self) -> None:
        """Something besides training begins. A step whose gradients are reduced ends before it."""
        self._end_turn_early()

    @while_running
    def pause_ends(self, kind: str, began: int) -> None:
        self._interval(kind, began)

    def _interval(self, kind: str, began: int) -> None:
        session, end = self._session, monotonic_ns()
        assert session is not None
        with session.cost.besides():
            # The steps before it first: the row says which one comes next.
            self._stream.settle()
            session.interval(kind, max(self._epoch, 0), began, end)

    # -- turns of the loop -----------------------------------------------------------------------

    def turns(self, loader: Any, batches: Iterator[Any]) -> Iterator[Any]:
        """The batches of a loop, which is an epoch, each of its turns recorded.

        What is done in every turn stands here, in one function with its variables beside it: training
        has just driven everything else out of the processor's caches.
        """
        loop, session = object(), self._session
        if session is None or not session.recording:
            yield from batches
            return
        self.loop_begins(loop, loader)
        self.epoch_begins()
        full, size = self._sizes_known(loader)
        now, ends, epoch = monotonic_ns, self._waiting.append, self._epoch
        begin, own_ns = now(), 0
        try:
            for batch, samples in zip(batches, chain(repeat(size, full), repeat(None))):
                data = now()
                if samples is None:
                    samples = self._samples_of(batch)
                if session.recording:
                    self._turn = [epoch, begin, data, samples, own_ns + now() - data]
                yield batch
                end, turn = now(), self._turn
                if turn is not None:
                    ends((turn, end))
                    self._turn = None
                begin = now()
                own_ns = begin - end
        finally:
            self.loop_ends(loop)

    def _sizes_known(self, loader: Any) -> Tuple[int, Optional[int]]:
        """As ``full_batches``; where the user has said how large they are, all of them."""
        given = self._samples_given
        return full_batches(loader) if given is None else (sys.maxsize, given)

    def _samples_of(self, batch: Any) -> Optional[int]:
        try:
            return self._counts.of(batch)
        except Exception as error:  # whatever it is, it may not reach training
            self.fail(error)
            return None

    @while_running
    def _end_turn_early(self) -> None:
        """The user has left the loop: it was a turn if gradients were reduced in it."""
        turn, self._turn = self._turn, None
        if turn is not None and len(turn) > REDUCTIONS:
            self._waiting.append((turn, monotonic_ns()))

    @while_running
    def _drain(self) -> None:
        """From the flushing thread, which may be there first."""
        if self in _open:
            self._stream.drain()

    def _emit(self, rows: List[StepRow]) -> None:
        session = self._session
        assert session is not None
        for row in rows:
            if row.step == 0 and self._batch_size is None and row.samples:
                self._batch_size = row.samples // row.micro
                # Shapes may be known since the first batch only.
                session.facts({"batch_size": self._batch_size, **weights(self._trainer)})
            session.step(row._replace(step=session.next_step))


def _length(loader: Any) -> Optional[int]:
    """Its batches, where it knows how many there are; endless ones do not."""
    try:
        return len(loader)
    except Exception:
        return None
