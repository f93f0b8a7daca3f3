"""Return step time over the run as a DataFrame: a row per window of steps, as charts show it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from stallscope.analysis import Analysis
from stallscope.analysis.ledger.ledger import STAGES
from stallscope.analysis.ledger.printed_steps import PrintedSteps
from stallscope.arrays.types import Floats
from stallscope.exports.generations import ExportedRun
from stallscope.exports.scalars import MEAN, MOST_POINTS, SLOWEST, TOTAL, scalars_of

from .frames import Columns, frame, typed

_MEANS = (*STAGES, "wait")
_COLUMNS: Columns = {
    "step": "index",
    "ended_at": "moment",
    "step_ms": "number",
    **dict.fromkeys((f"slowest_{name}_ms" for name in STAGES), "number"),
    "allreduce_ms": "number",
    **dict.fromkeys((f"mean_{name}_ms" for name in _MEANS), "number"),
}


def series_frame(analysis: Analysis, exported: ExportedRun | None) -> pd.DataFrame:
    """Return at most 2,000 windows, from the ledgers or from printed lines about steps.

    Args:
        analysis: the run's analysis.
        exported: the run on one time line; None if no step was recorded.
    """
    if analysis.ledger is not None and exported is not None and len(analysis.ledger):
        return _of_ledgers(exported)
    if analysis.printed is not None:
        return _of_lines(analysis.printed)
    return frame((), _COLUMNS, ["step"])


def _of_ledgers(exported: ExportedRun) -> pd.DataFrame:
    scalars = scalars_of(exported)
    values = scalars.values
    # Seconds since 1970 are known to the microsecond.
    ends = pd.to_datetime((scalars.seconds * 1e6).astype(np.int64), unit="us", utc=True)
    columns = {
        "step": scalars.steps,
        "ended_at": pd.NaT if exported.wall_ns is None else ends,
        "step_ms": values[TOTAL],
        **{f"slowest_{name}_ms": values[f"{SLOWEST}/{name}_ms"] for name in STAGES},
        "allreduce_ms": _allreduce(values),
        **{f"mean_{name}_ms": values[f"{MEAN}/{name}_ms"] for name in _MEANS},
    }
    return typed(pd.DataFrame(columns), _COLUMNS, ["step"])


def _allreduce(values: Mapping[str, Floats]) -> Floats:
    """Return exposed allreduce; if only one of several ranks has a log, it includes waiting."""
    names = (f"{SLOWEST}/allreduce_ms", f"{SLOWEST}/waiting_and_allreduce_ms")
    return next(values[name] for name in names if name in values)


def _of_lines(printed: PrintedSteps) -> pd.DataFrame:
    lines = printed.whole.joined(MOST_POINTS)
    columns = {"step": lines.step, "step_ms": lines.ms}
    if lines.input_ms is not None:
        # The wait for data on the rank that printed is not the slowest rank's stage.
        columns["mean_input_ms"] = lines.input_ms
    return typed(pd.DataFrame(columns), _COLUMNS, ["step"])
