"""The index for spreadsheets: one row per run."""

from __future__ import annotations

import csv
import io

from stallscope.analysis.ledger.ledger import CAUSES

from ..base import ReportOptions
from ..csv_report import cell
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

Row = dict[str, str | int | float | bool | None]


def csv_text(index: Index, _options: ReportOptions) -> str:
    """Cells of what is not known are empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, restval="", lineterminator="\r\n")
    writer.writeheader()
    for line in index.ranked:
        writer.writerow(_row(line))
    return text.getvalue()


def _row(line: Line) -> Row:
    low, high = line.lost_ci95_h or (None, None)
    row: Row = {
        "run_id": cell(line.id),
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
    return row | {name: cell(getattr(line, name) or "") for name in texts}
