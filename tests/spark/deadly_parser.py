"""A user's own parsers that executors cannot bear."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from stallscope.parsers import Parsed
from stallscope.parsers.step_log import StepLogParser

#: Where it is noted that it has happened; set for driver and executors.
NOTE = "STALLSCOPE_TEST_KILLED"


class Deadly(StepLogParser):
    """Its first attempt at one log takes its executor with it."""

    name = "deadly"

    def parse(self, path: str, data: bytes) -> Parsed:
        note = Path(os.environ[NOTE])
        # After the other logs of its task, whose rows are on disk by then.
        if path.startswith("rank-00002") and not note.exists():
            note.touch()
            daemon = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()
            os.kill(int(daemon[1]), signal.SIGKILL)  # the executor's JVM
            signal.pause()
        return super().parse(path, data)


class Hungry(StepLogParser):
    """Its Python is ended whenever it reads, as one is that takes too much memory."""

    name = "hungry"

    def parse(self, path: str, data: bytes) -> Parsed:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("it goes on")
