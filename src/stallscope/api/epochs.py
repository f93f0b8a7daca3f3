"""Return the epochs of a run as a DataFrame: a row per epoch and rank."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.analysis.ledger.epochs import epoch_times
from stallscope.run import Run

from .frames import Columns, frame, in_order, typed

INDEX = ("epoch", "rank")
_COLUMNS: Columns = {
    "epoch": "index",
    "rank": "index",
    "fit": "count",
    "generation": "count",
    "steps": "count",
    "epoch_s": "number",
    "precision_s": "number",
    "validation_s": "number",
    "checkpoint_s": "number",
}
_KEYS = ["generation", "epoch", "rank"]
# Kinds of intervals, and the column of their seconds.
_SECONDS = {kind: f"{kind}_s" for kind in ("epoch", "validation", "checkpoint")}


def epochs_frame(run: Run) -> pd.DataFrame:
    """Return the seconds of each epoch on each rank, from logs of steps or from logs of epochs."""
    times = epoch_times(run)
    if times is not None:
        rows = ({**vars(epoch), "epoch_s": epoch.s} for epoch in times.epochs)
        return in_order(frame(rows, _COLUMNS, INDEX))
    return _by_steps(run)


def _by_steps(run: Run) -> pd.DataFrame:
    """Count steps and sum up intervals per generation, epoch and rank."""
    steps = run.steps.filter(pc.greater_equal(run.steps["epoch"], 0))
    counted = steps.group_by(_KEYS).aggregate([([], "count_all")]).to_pandas()
    known = counted.rename(columns={"count_all": "steps"}).set_index(_KEYS)
    parts = [known, *(_seconds(run.intervals, kind) for kind in _SECONDS)]
    joined = pd.concat(parts, axis=1).reset_index().sort_values(_KEYS)
    return typed(joined, _COLUMNS, INDEX)


def _seconds(intervals: pa.Table, kind: str) -> pd.Series[float]:
    spans = intervals.filter(
        pc.and_(pc.equal(intervals["kind"], kind), pc.greater_equal(intervals["epoch"], 0))
    )
    took = pc.divide(pc.cast(pc.subtract(spans["end"], spans["begin"]), pa.float64()), 1e9)
    summed = spans.append_column("s", took).group_by(_KEYS).aggregate([("s", "sum")]).to_pandas()
    seconds: pd.Series[float] = summed.set_index(_KEYS)["s_sum"]
    return seconds.rename(_SECONDS[kind])
