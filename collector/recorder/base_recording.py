"""The part of a recording that all frameworks share."""

from __future__ import annotations

import logging
from typing import Optional

from .options import Options
from .session import Session

logger = logging.getLogger("stallscope")


class BaseRecording:
    """A recording of one training, and its end after an error."""

    __slots__ = ("_failed", "_options", "_session")

    def __init__(self, options: Options) -> None:
        self._options = options
        self._session: Optional[Session] = None
        self._failed = False

    @property
    def running(self) -> bool:
        """Return whether steps are recorded."""
        return self._session is not None and self._session.recording and not self._failed

    def fail(self, error: Exception) -> None:
        """Stop recording and warn once."""
        if self._session is not None:
            self._session.fail("recording failed: %r" % error)
        elif not self._failed:
            logger.warning("stallscope: recording could not start, training goes on: %r", error)
        self._failed = True
