"""Return the windows of steps that printed lines are about, as a DataFrame."""

from __future__ import annotations

import numpy as np
import pandas as pd

from stallscope.analysis.ledger.printed_steps import printed_steps
from stallscope.analysis.ledger.windows import RankWindows
from stallscope.run import Run

from .frames import Columns, frame, typed

INDEX = ("rank", "step")
_COLUMNS: Columns = {
    "rank": "index",
    "step": "index",
    "steps": "index",
    "epoch": "count",
    "step_ms": "number",
    "input_ms": "number",
}


def windows_frame(run: Run) -> pd.DataFrame:
    """Return a row per rank and window: its first step, and its number of steps."""
    printed = printed_steps(run)
    if printed is None:
        return frame((), _COLUMNS, INDEX)
    parts = [*map(_of_rank, printed.ranks)]
    return typed(pd.concat(parts, ignore_index=True), _COLUMNS, INDEX)


def _of_rank(windows: RankWindows) -> pd.DataFrame:
    nothing = np.full(len(windows), np.nan)
    return pd.DataFrame(
        {
            "rank": np.full(len(windows), windows.rank),
            "step": windows.step,
            "steps": windows.steps,
            "epoch": nothing if windows.epoch is None else windows.epoch,
            "step_ms": windows.ms,
            "input_ms": nothing if windows.input_ms is None else windows.input_ms,
        }
    )
