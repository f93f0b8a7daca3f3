"""Wait until the recorder has written steps, instead of as long as a flush usually takes."""

from __future__ import annotations

import time
from pathlib import Path

_PAUSE_SECONDS = 0.01


def wait_for_step(logs: str | Path, rank: int, step: int) -> None:
    """Return once a log of this rank has the row of a step.

    Args:
        logs: the folder of the run's logs.
        rank: any rank whose logs are in the folder.
        step: its number in the log.
    """
    row = f"\nstep,{step},"
    while not any(row in log.read_text() for log in Path(logs).glob(f"rank-{rank:05d}.*.csv")):
        time.sleep(_PAUSE_SECONDS)
