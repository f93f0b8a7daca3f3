"""The index for spreadsheets: one row per run."""

from __future__ import annotations

from stallscope.analysis.ledger.ledger import CAUSES

from ..base import Records, Row
from .index import Index
from .line import Line

COLUMNS = (
    "run_id",
    "name",
    "started_at",
    "model",
    "ranks",
    "synthetic",
    "steps",
    "verdict",
    "said",
    "fix",
    "speedup",
    "lost_hours",
    "lost_ci_low",
    "lost_ci_high",
    "step_ms",
    "samples_per_second",
    *(f"{name}_ms" for name in CAUSES),
    "imbalance_ms",
    "versions",
    "commit",
)


def records(index: Index) -> Records:
    """List the runs, the most costly first."""
    return Records(COLUMNS, map(_row, index.ranked))


def _row(line: Line) -> Row:
    low, high = line.lost_ci95_h or (None, None)
    row: Row = {
        "run_id": line.id,
        "started_at": line.started_at,
        "ranks": line.ranks,
        "synthetic": line.synthetic,
        "steps": line.steps,
        "verdict": line.verdict,
        "speedup": line.speedup,
        "lost_hours": line.lost_h,
        "lost_ci_low": low,
        "lost_ci_high": high,
        "step_ms": line.step_ms,
        "samples_per_second": line.samples_per_second,
        "imbalance_ms": line.entries_ms.get("imbalance"),
    }
    row |= {f"{name}_ms": line.by_cause_ms.get(name) for name in CAUSES}
    texts = ("name", "model", "said", "fix", "versions", "commit")
    return row | {name: getattr(line, name) for name in texts}
