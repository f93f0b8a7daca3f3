"""Runs for tests of findings, changed in one way, and the findings on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from stallscope.analysis.findings import find
from stallscope.analysis.findings.finding import Finding
from stallscope.run import INTERVALS_SCHEMA, STEPS_SCHEMA, Run

from .step_logs import Job

#: Two hosts whose clocks differ.
TWO_HOSTS: dict[str, Any] = {"hosts": ("alpha", "beta"), "clock_offset_ms": (0.0, 9000.0)}
#: Four ranks on one host; an epoch is 100 steps.
CLEAN = Job(ranks=4, steps=200, epochs=2)

Row = dict[str, Any]


def finding_of(run: Run, code: str, **options: Any) -> Finding:
    """Return the run's only finding with this code, which must give advice."""
    (finding,) = [finding for finding in find(run, True, **options) if finding.code == code]
    assert finding.advice
    return finding


def codes(run: Run, **options: Any) -> list[str]:
    """Return the codes of all findings on a run that has a baseline, in their order."""
    return [finding.code for finding in find(run, True, **options)]


def with_facts(run: Run, facts: Mapping[str, Any], ranks: Sequence[int] | None = None) -> Run:
    """Return the run in which these ranks (default: all) recorded these facts."""
    logs = tuple(
        replace(log, facts={**log.facts, **facts}) if ranks is None or log.rank in ranks else log
        for log in run.logs
    )
    return replace(run, logs=logs)


def with_steps(run: Run, change: Callable[[Row], Row | None]) -> Run:
    """Return the run with its steps changed, row by row; None leaves one out."""
    rows = [changed for row in run.steps.to_pylist() if (changed := change(row)) is not None]
    return replace(run, steps=pa.Table.from_pylist(rows, STEPS_SCHEMA))


def with_intervals(run: Run, change: Callable[[Row], Row | None]) -> Run:
    """Return the run with its intervals changed, row by row; None leaves one out."""
    rows = [changed for row in run.intervals.to_pylist() if (changed := change(row)) is not None]
    return replace(run, intervals=pa.Table.from_pylist(rows, INTERVALS_SCHEMA))


def only(run: Run, kind: str, ranks: Sequence[int]) -> Run:
    """Return the run in which only these ranks did that between their steps."""
    return with_intervals(
        run, lambda row: None if row["kind"] == kind and row["rank"] not in ranks else row
    )


def threads(intra_op: int, processors: int, allowed: int | None = None, **more: Any) -> Row:
    """Return the facts of a rank on CPU cores, of which it may use ``allowed`` (default: all)."""
    return {
        "threads": {"inter_op": 2, "intra_op": intra_op},
        "cpu_count": processors,
        "cpus_allowed": processors if allowed is None else allowed,
        "devices": ["CPU"],
        **more,
    }
