"""Return both ledgers as DataFrames: their means, and every step and epoch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from stallscope.analysis import ENTRIES, Analysis
from stallscope.analysis.generation_summary import GenerationLedger
from stallscope.analysis.ledger.ledger import CAUSES, GAPS, STAGES, Ledger
from stallscope.analysis.views.utc import reduced_at
from stallscope.reports.run.records import ledger_rows
from stallscope.run import Run

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
