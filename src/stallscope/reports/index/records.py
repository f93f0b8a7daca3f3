"""The index for programs and spreadsheets: one object, and one row per run."""

from __future__ import annotations

from stallscope.analysis.ledger.ledger import CAUSES

from ..base import Content, ReportRecords, Row, content_of, fields_of
from .index import Index, IndexLine

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
    "lost_ci_low_hours",
    "lost_ci_high_hours",
    "step_ms",
    "samples_per_second",
    *(f"{name}_ms" for name in CAUSES),
    "imbalance_ms",
    "versions",
    "commit",
)
_PLAIN = (
    "run_id=id name started_at model ranks synthetic steps verdict said fix speedup "
    "lost_hours=lost_h step_ms samples_per_second versions commit"
)


def json_content(index: Index) -> Content:
    """Return one object: the runs, the most costly first, and those that could not be reported."""
    return content_of(runs=index.ranked, failed=index.failed)


def records(index: Index) -> ReportRecords:
    """List the runs, the most costly first."""
    return ReportRecords(COLUMNS, map(_row, index.ranked))


def _row(line: IndexLine) -> Row:
    low, high = line.lost_ci95_h or (None, None)
    return {
        **fields_of(line, _PLAIN),
        "lost_ci_low_hours": low,
        "lost_ci_high_hours": high,
        **{f"{name}_ms": line.by_cause_ms.get(name) for name in CAUSES},
        "imbalance_ms": line.entries_ms.get("imbalance"),
    }
