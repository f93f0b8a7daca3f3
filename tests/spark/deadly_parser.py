"""Parsers of a user that kill executors."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from stallscope.parsers import Parsed
from stallscope.parsers.formats.step_log.step_log_parser import StepLogParser

#: The variable with a file that marks that it has happened; set for driver and executors.
NOTE = "STALLSCOPE_TEST_KILLED"


class Deadly(StepLogParser):
    """Kills its executor at the first attempt to read one log."""

    name = "deadly"

    def parse(self, path: str, data: bytes) -> Parsed:
        note = Path(os.environ[NOTE])
        # After the other logs of its task, so that their rows are on disk.
        if path.startswith("rank-00002") and not note.exists():
            note.touch()
            daemon = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()
            os.kill(int(daemon[1]), signal.SIGKILL)  # the executor's JVM
            signal.pause()
        return super().parse(path, data)


class Hungry(StepLogParser):
    """Kills its Python whenever it reads, as the kernel does if memory runs out."""

    name = "hungry"

    def parse(self, path: str, data: bytes) -> Parsed:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("the process survived")
