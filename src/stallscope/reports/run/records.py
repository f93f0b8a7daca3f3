"""The figures of one run for spreadsheets: one row each, in long form."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from stallscope.analysis import Analysis
from stallscope.analysis.ledger.entries import CauseEntry
from stallscope.analysis.ledger.figures import RankSummary
from stallscope.analysis.ledger.ledger import STAGES
from stallscope.formatting.numbers import Interval

from ..base import ReportRecords, Row

COLUMNS = (
    "run_id",
    "scope",
    "rank",
    "host",
    "name",
    "ms",
    "share",
    "ci_low_ms",
    "ci_high_ms",
    "baseline_ms",
    "excess_ms",
    "waiting_ms",
)

_RANK_STAGES = ("input", "compute", "other", "wait", "allreduce")


def records(analysis: Analysis) -> ReportRecords:
    """List the figures of the step, of its causes, of the ledger, and of every rank and epoch.

    The causes, and the entries of the ledger, add up to the mean step.
    """
    scopes = (_step_rows, ledger_rows, _rank_rows, _epoch_rows, _window_rows)
    run_id = analysis.run.id
    rows = chain.from_iterable(rows(analysis) for rows in scopes)
    return ReportRecords(COLUMNS, ({"run_id": run_id, **row} for row in rows))


def _step_rows(analysis: Analysis) -> Iterator[Row]:
    step = analysis.step
    base = None if analysis.baseline is None else analysis.baseline.step
    for name in ("mean", "p50", "p95", "p99"):
        ms = None if step is None else getattr(step, name)
        baseline_ms = None if base is None else getattr(base, name)
        interval = step.ci95 if step is not None and name == "mean" else None
        yield {"scope": "step", "name": name, **_figures(ms, interval), **_against(ms, baseline_ms)}


def ledger_rows(analysis: Analysis) -> Iterator[Row]:
    """List the entries of both ledgers; empty if stages were not measured."""
    for scope, entries in (("by_cause", analysis.by_cause), ("ledger", analysis.entries)):
        for entry in entries:
            row: Row = {
                "scope": scope,
                "name": entry.name,
                "share": entry.share,
                **_figures(entry.ms, entry.ci95_ms),
                **_against(entry.ms, entry.baseline_ms),
            }
            if isinstance(entry, CauseEntry) and entry.name in STAGES:
                row["waiting_ms"] = entry.waiting_ms
            yield row


def _rank_rows(analysis: Analysis) -> Iterator[Row]:
    base = analysis.baseline
    others = {} if base is None else {rank.rank: rank for rank in base.ranks}
    whole = None if analysis.step is None else analysis.step.mean
    for rank in analysis.ranks:
        for name in _RANK_STAGES:
            ms = _stage(rank, name)
            yield {
                "scope": "rank",
                "rank": rank.rank,
                "host": rank.host,
                "name": name,
                "share": ms / whole if ms is not None and whole else None,
                **_figures(ms, None),
                **_against(ms, _stage(others.get(rank.rank), name)),
            }


def _epoch_rows(analysis: Analysis) -> Iterator[Row]:
    for epoch in () if analysis.epoch_times is None else analysis.epoch_times.epochs:
        name = f"fit {epoch.fit} epoch {epoch.epoch}"
        around = (1e3 * max(0.0, epoch.s - epoch.precision_s), 1e3 * (epoch.s + epoch.precision_s))
        yield {
            "scope": "epoch",
            "rank": epoch.rank,
            "name": name,
            **_figures(1e3 * epoch.s, around),
        }


def _window_rows(analysis: Analysis) -> Iterator[Row]:
    for rank in () if analysis.printed is None else analysis.printed.ranks:
        for step, steps, ms in zip(
            rank.step.tolist(), rank.steps.tolist(), rank.ms.tolist(), strict=True
        ):
            name = f"steps {step}–{step + steps - 1}" if steps > 1 else f"step {step}"
            yield {"scope": "window", "rank": rank.rank, "name": name, **_figures(ms, None)}


def _stage(rank: RankSummary | None, name: str) -> float | None:
    return None if rank is None else getattr(rank, f"{name}_ms")


def _figures(value: float | None, ci95: Interval | None) -> Row:
    low, high = (None, None) if ci95 is None else ci95
    return {"ms": value, "ci_low_ms": low, "ci_high_ms": high}


def _against(value: float | None, baseline: float | None) -> Row:
    excess = None if value is None or baseline is None else value - baseline
    return {"baseline_ms": baseline, "excess_ms": excess}
