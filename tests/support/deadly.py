"""A place whose run ends the process that reads it, as running out of memory does."""

from __future__ import annotations

import os
import signal

from stallscope.batch.units import Unit
from stallscope.parsers.progress import Watching, unwatched
from stallscope.run import Run


class Deadly(Unit):
    def head(self, read_as: str | None, watching: Watching = unwatched) -> Run:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")
