"""Compute the figures of a cell from the results of its runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from simulated_cells import Cell
from simulated_coverage import Configuration

Record = dict[str, Any]

_MEANS = (
    "cause_right",
    "rank_right",
    "pattern_right",
    "hidden_right",
    "innocent_named",
    "rotating_found",
    "own_log_right",
    "latest_cause_right",
    "latest_rank_right",
    "critical_right",
    "cost_share",
)


def cell_figures(cell: Cell, records: Sequence[Record]) -> Record:
    """Return shares of runs, and medians; figures that no run has are left out."""
    figures: Record = {**cell.facts, "runs": len(records)}
    for name in _MEANS:
        figures[name] = _mean(record.get(name) for record in records)
    figures["right"] = _mean(_all_right(record) for record in records)
    figures["latest_right"] = _mean(
        _both_right(record, "latest_cause_right", "latest_rank_right") for record in records
    )
    figures["verdict_right"] = _mean(
        record["verdict_right"] for record in records if record.get("verdict_due")
    )
    recovered = [r["recovered"] for r in records if r.get("recovered") is not None]
    if recovered:
        low, middle, high = np.percentile(recovered, (5, 50, 95)).tolist()
        figures |= {"recovered": middle, "recovered_range": [low, high]}
    errors = [r["allreduce_error_ms"] for r in records if r.get("allreduce_error_ms") is not None]
    if errors:
        figures["allreduce_error_ms"] = float(np.mean(errors))
    return {name: _short(value) for name, value in figures.items() if value is not None}


def _all_right(record: Record) -> bool | None:
    """Return whether cause and rank are right, and all of a pattern."""
    if "all_right" in record:
        return bool(record["all_right"])
    return _both_right(record, "cause_right", "rank_right")


def _both_right(record: Record, cause: str, rank: str) -> bool | None:
    if record.get(rank) is None:
        return None
    # A clean run has no cause to find.
    return bool(record[rank]) and record.get(cause) is not False


def _mean(values: Iterable[Any]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return float(np.mean(known)) if known else None


def coverage_figures(configuration: Configuration, records: Sequence[Record]) -> Record:
    """Return, per figure, how often its interval contains the truth or is missing, and its error."""
    names = dict.fromkeys(name for record in records for name in record["found"])
    step = float(np.mean([record["true"]["step"] for record in records]))
    figures = {}
    for name in names:
        known = [record for record in records if name in record["found"]]
        truth = float(np.mean([record["true"][name] for record in known]))
        intervals = [record["found"][name][1] for record in known]
        given = [interval for interval in intervals if interval is not None]
        error = np.abs([record["found"][name][0] - record["true"][name] for record in known]) / step
        figures[name] = {
            "runs": len(known),
            "truth_ms": truth,
            "covered": _mean(low <= truth <= high for low, high in given),
            "without": 1 - len(given) / len(known),
            "half_width_ms": float(np.median([(h - lo) / 2 for lo, h in given])) if given else None,
            "error_median": float(np.median(error)),
            "error_p95": float(np.percentile(error, 95)),
        }
    return {
        **configuration.facts,
        "runs": len(records),
        "step_ms": _short(step),
        "figures": {name: _rounded(figure) for name, figure in figures.items()},
    }


def _rounded(figure: Record) -> Record:
    return {name: _short(value) for name, value in figure.items() if value is not None}


def _short(value: Any) -> Any:
    """Round numbers to the digits that readers use."""
    if isinstance(value, list):
        return [_short(entry) for entry in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value
