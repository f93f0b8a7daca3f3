"""JSON for programs: what docs/report.schema.json describes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC
from typing import Any, ClassVar

from stallscope.analysis import ENTRIES, Analysis
from stallscope.run import Run

from .base import Report, ReportOptions
from .contents import job_parts

SCHEMA_VERSION = 1

# No encoding of text can hold them.
_LONE_SURROGATES = re.compile("[\ud800-\udfff]")


class JsonReport(Report):
    name: ClassVar[str] = "json"
    suffix: ClassVar[str] = ".json"

    def render(self, analysis: Analysis, options: ReportOptions) -> str:
        return json.dumps(document(analysis), indent=1, allow_nan=False) + "\n"


def document(analysis: Analysis) -> dict[str, Any]:
    """The analysis as one object of docs/report.schema.json; what is not known is None."""
    content = {
        "schema_version": SCHEMA_VERSION,
        "run": _run(analysis),
        "baseline": _baseline(analysis),
        "job_s": {**dict(job_parts(analysis)), "total": analysis.job.total},
        "step_ms": _step(analysis),
        "ledger": [_entry(analysis, name) for name in ENTRIES],
        "ranks": [asdict(rank) for rank in analysis.ranks],
        "bottleneck": asdict(analysis.bottleneck),
        "what_if": [
            {"fix": gain.fix, "speedup": gain.speedup, "ci95": gain.ci95}
            for gain in analysis.what_if
        ],
        "findings": [asdict(finding) for finding in analysis.findings],
        "warnings": analysis.warnings,
    }
    return {name: _valid(value) for name, value in content.items()}


def _run(analysis: Analysis) -> dict[str, Any]:
    run = analysis.run
    framework = run.fact("framework")
    return {
        "id": run.id,
        "name": run.name,
        "source": run.source,
        "framework": None if framework is None else str(framework),
        "size": run.size,
        "hosts": run.hosts,
        "epochs": analysis.epochs,
        "steps": analysis.steps,
        "synthetic": run.synthetic,
        "status": run.status,
        "samples_per_second": analysis.samples_per_second,
        "started_at": _started_at(run),
    }


def _started_at(run: Run) -> str | None:
    if run.started_at is None:
        return None
    text = run.started_at.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _baseline(analysis: Analysis) -> dict[str, Any] | None:
    if analysis.baseline is None or analysis.match is None:
        return None
    return {
        "id": analysis.baseline.run.id,
        "match": asdict(analysis.match),
        "gap": analysis.gap,
    }


def _step(analysis: Analysis) -> dict[str, Any]:
    if analysis.step is None:
        return dict.fromkeys(("mean", "p50", "p95", "p99", "ci95"))
    return asdict(analysis.step)


def _entry(analysis: Analysis, name: str) -> dict[str, Any]:
    entry = analysis.entry(name)
    if entry is not None:
        return asdict(entry)
    base = None if analysis.baseline is None else analysis.baseline.entry(name)
    unknown = dict.fromkeys(("ms", "share", "ci95_ms", "baseline_ms", "excess_ms"))
    return {"name": name, **unknown, "baseline_ms": None if base is None else base.ms}


def _valid(value: Any) -> Any:
    """What JSON can hold: no NaN, no infinity, no tuples, no lone surrogates."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return _LONE_SURROGATES.sub("\ufffd", value)
    if isinstance(value, Mapping):
        return {name: _valid(own) for name, own in value.items()}
    if isinstance(value, Sequence):
        return [_valid(own) for own in value]
    return value
