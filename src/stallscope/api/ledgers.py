"""Return both ledgers as DataFrames: means, and every step and epoch; machine metrics over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from stallscope.analysis import ENTRIES, Analysis
from stallscope.analysis.ledger.ledger import GAPS, Ledger
from stallscope.analysis.ledger.printed_steps import PrintedSteps
from stallscope.analysis.result import GenerationLedger
from stallscope.analysis.views.rank_maps import reduced_at
from stallscope.arrays.types import Floats
from stallscope.exports.exported_run import ExportedRun
from stallscope.exports.scalars import MEAN, MOST_POINTS, SLOWEST, TOTAL, scalars_of
from stallscope.reports.run.run_records import ledger_rows
from stallscope.run import Run
from stallscope.words import CAUSES, STAGES

from .frames import CAUSE, ENTRY, STAGE, Columns, frame, typed

_MEANS: Columns = dict.fromkeys(
    ("ms", "share", "ci_low_ms", "ci_high_ms", "baseline_ms", "excess_ms"), "number"
)
_SLOWEST = [f"slowest_{name}_ms" for name in STAGES]
# Per step: the whole step, the ledger's entries, and the slowest rank's stages.
_TIMES = ("step_ms", *(f"{name}_ms" for name in ENTRIES), *_SLOWEST)
_GAPS = tuple(f"{name}_s" for name in GAPS)
_STEPS: Columns = {
    "step": "index",
    "generation": "index",
    "epoch": "count",
    "warm_up": "flag",
    "reduced_at": "moment",
    **dict.fromkeys(_TIMES, "number"),
    "slowest_rank": "count",
    "reference_rank": "count",
    "cause": STAGE,
    **dict.fromkeys(_GAPS, "number"),
}
_EPOCHS: Columns = {
    "epoch": "index",
    "steps": "index",
    **dict.fromkeys((*_TIMES, *_GAPS), "number"),
}

_MEANS_OF_WINDOWS = (*STAGES, "wait")
_COLUMNS: Columns = {
    "step": "index",
    "ended_at": "moment",
    "step_ms": "number",
    **dict.fromkeys((f"slowest_{name}_ms" for name in STAGES), "number"),
    "allreduce_ms": "number",
    **dict.fromkeys((f"mean_{name}_ms" for name in _MEANS_OF_WINDOWS), "number"),
}


def ledger_frame(analysis: Analysis) -> pd.DataFrame:
    """Return the ledger with imbalance: a row per entry, missing where it was not measured."""
    return _means(analysis, "ledger", ENTRY, ENTRIES)


def by_cause_frame(analysis: Analysis) -> pd.DataFrame:
    """Return the ledger by cause: a row per cause, missing where it was not measured."""
    return _means(analysis, "by_cause", CAUSE, CAUSES)


def _means(
    analysis: Analysis, scope: str, dtype: pd.CategoricalDtype, names: Sequence[str]
) -> pd.DataFrame:
    rows = {row["name"]: row for row in ledger_rows(analysis) if row["scope"] == scope}
    columns: Columns = {"name": dtype, **_MEANS}
    if scope == "by_cause":
        columns = {**columns, "waiting_ms": "number"}
    return frame(({"name": name, **rows.get(name, {})} for name in names), columns, ["name"])


def steps_frame(analysis: Analysis) -> pd.DataFrame:
    """Return every step of the ledger, generation by generation."""
    parts = [_steps(analysis.run, generation) for generation in analysis.generation_ledgers]
    if not parts:
        return frame((), _STEPS, ["step"])
    return typed(pd.concat(parts, ignore_index=True), _STEPS, ["step"])


def _steps(run: Run, generation: GenerationLedger) -> pd.DataFrame:
    ledger = generation.ledger
    epochs = pd.Series(ledger.epochs)
    walls = reduced_at(run, ledger, generation.number)
    return pd.DataFrame(
        {
            "step": ledger.steps,
            "generation": generation.number,
            "epoch": epochs.where(epochs >= 0),
            "warm_up": generation.warm_up,
            "reduced_at": pd.NaT if walls is None else pd.to_datetime(walls, utc=True),
            "step_ms": ledger.total / 1e6,
            **{f"{name}_ms": ledger.entry(name) / 1e6 for name in ENTRIES},
            **{f"slowest_{name}_ms": ledger.by_cause(name) / 1e6 for name in STAGES},
            **_slowest(run, ledger),
            **{name: ledger.gaps[:, at] / 1e9 for at, name in enumerate(_GAPS)},
        }
    )


def _slowest(run: Run, ledger: Ledger) -> dict[str, object]:
    """Return each step's last rank and the cause; missing if only one of several ranks has a log."""
    if run.one_log_of_many:
        return dict.fromkeys(("imbalance_ms", "slowest_rank", "reference_rank", "cause"))
    ranks = np.asarray(ledger.ranks)
    # A step without imbalance has no cause.
    causes = np.where(ledger.imbalance > 0, ledger.cause, -1)
    return {
        "slowest_rank": ranks[ledger.critical],
        "reference_rank": ranks[ledger.reference],
        "cause": pd.Categorical.from_codes(causes, dtype=STAGE),
    }


def epochs_frame(analysis: Analysis) -> pd.DataFrame:
    """Return the mean steady step of every epoch, and the time between its steps."""
    steps = steps_frame(analysis).reset_index()
    steps = steps[steps["epoch"].notna()]
    steady = steps[~steps["warm_up"]].groupby("epoch")
    # Validation before a warm-up step is validation, too.
    between = steps.groupby("epoch")[[*_GAPS]].sum()
    parts = [
        steady[["step"]].count().set_axis(["steps"], axis=1),
        steady[[*_TIMES]].mean(),
        between,
    ]
    return typed(pd.concat(parts, axis=1, join="inner").reset_index(), _EPOCHS, ["epoch"])


# -- Return step time over the run as a DataFrame: a row per window of steps, as charts show it ---


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
        **{f"mean_{name}_ms": values[f"{MEAN}/{name}_ms"] for name in _MEANS_OF_WINDOWS},
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
