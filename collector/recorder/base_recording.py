"""The part of a recording that all frameworks share."""

from __future__ import annotations

import logging
import os
from time import monotonic_ns
from typing import Any, Callable, Dict, Optional

from .guards import while_running
from .hangs import PositionReader
from .input.loader_wrappers import BatchReader, InputProbe
from .job.job_facts import host_facts, timeline_is_on
from .job.job_settings import settings
from .job.world import World, world_of_training
from .options import Options
from .session import Session
from .step_log.line_format import (
    BACKGROUND_EVALUATION,
    BACKGROUND_SAVING,
    CHECKPOINT,
    VALIDATION,
    TokensRow,
)

logger = logging.getLogger("stallscope")

# Intervals of other threads, while training goes on.
_BESIDE_TRAINING = {VALIDATION: BACKGROUND_EVALUATION, CHECKPOINT: BACKGROUND_SAVING}


class BaseRecording:
    """A recording of one training, and its end after an error."""

    __slots__ = ("_failed", "_options", "_session")

    #: Why it can fetch no batches ahead (``probe_input``); None if it can.
    why_never_ahead: Optional[str] = None

    def __init__(self, options: Options) -> None:
        self._options = options
        self._session: Optional[Session] = None
        self._failed = False

    def _open_session(
        self,
        world: World,
        facts: Dict[str, Any],
        counted: int,
        before_flush: Callable[[], None],
        position: PositionReader,
    ) -> Session:
        """Open the session, with the host's facts added; the arguments are Session's."""
        options = self._options
        facts = {
            **host_facts(),
            **facts,
            "run_name": options.run_name,
            "synthetic": options.synthetic,
            "batch_size": options.batch_size,
            "settings": settings(os.environ),
            "timeline": timeline_is_on(os.environ),
        }
        if options.probe_input and self.why_never_ahead:
            facts["input_probe"] = {"refused": self.why_never_ahead, "probes": []}
        session = self._session = Session(options, world, facts, counted, before_flush, position)
        return session

    @property
    def running(self) -> bool:
        """Return whether steps are recorded."""
        return self._session is not None and self._session.recording and not self._failed

    def continues(self, first_step: Optional[int] = None) -> bool:
        """Return whether a new loop continues the recording: with the same ranks and the next step.

        An elastic job may change the ranks, and ``first_step`` is None where the user gives none.
        """
        session = self._session
        if session is None or not self.running:
            return True
        try:
            same = self._world_of_training() == session.world
        except Exception:  # a framework that is shut down has no ranks
            return True
        return same and (first_step is None or first_step == self._next_step())

    def is_beside_training(self) -> bool:
        """Return whether this thread is another than the one that trains."""
        session = self._session
        return session is not None and not session.is_training_thread()

    @while_running
    def went_on_beside(self, kind: str, began: int) -> None:
        """Record a validation or a checkpoint of another thread, which ends now."""
        assert self._session is not None
        self._session.beside_training(_BESIDE_TRAINING[kind], began, monotonic_ns())

    def _world_of_training(self) -> World:
        return world_of_training()

    def _next_step(self) -> Optional[int]:
        """Return the number of the next step."""
        return None if self._session is None else self._session.next_step

    def _input_probe(
        self, reader: BatchReader, next_step: Optional[Callable[[], Optional[int]]] = None
    ) -> InputProbe:
        """Return the probe of this recording, which the options may have left out.

        Args:
            reader: reads the framework's loaders and batches.
            next_step: returns the number of the step that the next batch belongs to.
        """
        options = self._options
        return InputProbe(
            options.probe_input,
            options.probe_every,
            reader,
            next_step or self._next_step,
            self._record,
            self._expect_until,
            self.goes_on_ahead,
        )

    def goes_on_ahead(self, ahead: bool) -> None:
        """Note that training goes on with batches fetched ahead, or with the loader's own again."""

    def _record(self, facts: Dict[str, Any]) -> None:
        if self._session is not None:
            self._session.facts(facts)

    def _emit_counted(self, begin: int, ends_step: bool, tokens: int, padding: int) -> None:
        """Record the tokens in a batch of the iteration whose rows were recorded last."""
        session = self._session
        assert session is not None
        session.tokens(TokensRow(session.next_step - ends_step, begin, tokens, padding))

    def _expect_until(self, moment: int) -> None:
        if self._session is not None:
            self._session.postpone_watch(moment)

    def fail(self, error: Exception) -> None:
        """Stop recording and warn once."""
        if self._session is not None:
            self._session.fail("recording failed: %r" % error)
        elif not self._failed:
            logger.warning("stallscope: recording could not start, training goes on: %r", error)
        self._failed = True
