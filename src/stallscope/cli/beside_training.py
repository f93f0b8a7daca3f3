"""Print the summary that training prints at its end, and leave the machine to training."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

from .main import main as command

# Cores are for ranks that still train.
_NICENESS = 10
# Larger arrays are in mapped files.
_MEMORY = "400MB"


def main() -> int:
    """Run ``stallscope summary``; the arguments are the time for it, the time for open logs, and RUN."""
    limit, wait, source = sys.argv[1:]
    yield_to_training()
    with contextlib.suppress(AttributeError, OSError):  # Windows, or a sandbox
        # Training ends this process; this is for a training that is killed meanwhile.
        signal.alarm(int(float(limit)) + 2)
    return command(["summary", source, "--wait", wait])


def yield_to_training() -> None:
    """Leave cores and memory of the machine to training."""
    with contextlib.suppress(AttributeError, OSError):  # Windows, or a sandbox
        os.nice(_NICENESS)
    with contextlib.suppress(OSError):  # not on Linux
        # If memory runs out, the kernel ends this process, not a rank.
        Path("/proc/self/oom_score_adj").write_text("1000")
    os.environ.setdefault("STALLSCOPE_MEMORY", _MEMORY)
