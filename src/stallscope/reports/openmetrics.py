"""OpenMetrics for Prometheus and what reads its format: a run's figures, one family per kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from stallscope.analysis import Analysis
from stallscope.analysis.ledger.ledger import STAGES
from stallscope.formatting.numbers import finite
from stallscope.formatting.plain import plain
from stallscope.text.fixes import is_throughput
from stallscope.text.gains import gains

from .base import Report, ReportOptions
from .contents import job_parts

_PERCENTILES = {"0.5": "p50", "0.95": "p95", "0.99": "p99"}

Labels = Mapping[str, str]


@dataclass(frozen=True)
class Family:
    """Metrics of one name. Samples whose value is not known are left out."""

    name: str
    title: str
    samples: tuple[tuple[Labels, float | None], ...]
    #: How the name ends; empty for plain numbers.
    unit: str = ""
    kind: str = "gauge"


class OpenMetricsReport(Report):
    """Text of OpenMetrics 1.0; times in seconds. What was not measured is absent."""

    name: ClassVar[str] = "openmetrics"
    suffix: ClassVar[str] = ".prom"

    def render(self, analysis: Analysis, options: ReportOptions) -> str:
        run = {"run_id": analysis.run.id}
        lines = [line for one in _families(analysis) for line in _lines(one, run)]
        return "\n".join([*lines, "# EOF"]) + "\n"


def _families(analysis: Analysis) -> Iterator[Family]:
    run, found = analysis.run, analysis.bottleneck
    about = {
        "name": run.name,
        "framework": str(run.fact("framework") or ""),
        "verdict": found.kind,
        "cause": found.cause or "",
        "synthetic": "true" if run.synthetic else "false",
    }
    started = None if run.started_at is None else run.started_at.timestamp()
    yield Family("stallscope_run", "What the run is", ((about, 1),), kind="info")
    yield _single("stallscope_started_timestamp_seconds", "When it began", started, "seconds")
    yield _single("stallscope_ranks", "Ranks that trained", run.size)
    # Logs of epochs know no steps.
    steps = None if analysis.epoch_times else analysis.steps
    yield _single("stallscope_steps", "Steps that any rank recorded", steps)
    rate = analysis.samples_per_second
    yield _single("stallscope_samples_per_second", "Samples of all ranks, steady steps", rate)
    yield from _times(analysis)
    yield from _gains(analysis)
    gap = analysis.gap
    yield _single("stallscope_baseline_gap_ratio", "Of the baseline's rate, lost", gap, "ratio")
    counts = {
        severity: sum(one.severity == severity for one in analysis.findings)
        for severity in ("info", "warning", "error")
    }
    by_severity = tuple(({"severity": name}, float(count)) for name, count in counts.items())
    yield Family("stallscope_findings", "Findings by severity", by_severity)


def _times(analysis: Analysis) -> Iterator[Family]:
    step = analysis.step
    mean = None if step is None else step.mean / 1e3
    yield _single("stallscope_step_mean_seconds", "Mean of the steady steps", mean, "seconds")
    spread = tuple(
        ({"quantile": at}, None if step is None else getattr(step, name) / 1e3)
        for at, name in _PERCENTILES.items()
    )
    yield Family("stallscope_step_seconds", "Percentiles of the steady steps", spread, "seconds")
    stages = [({"stage": entry.name}, entry) for entry in analysis.by_cause]
    times = tuple((label, entry.ms / 1e3) for label, entry in stages)
    yield Family("stallscope_stage_seconds", "A steady step by cause", times, "seconds")
    waiting = tuple(
        (label, entry.waiting_ms / 1e3)
        for label, entry in stages
        if entry.name in STAGES and entry.waiting_ms is not None
    )
    waits = "What of it is waiting for slow ranks"
    yield Family("stallscope_stage_waiting_seconds", waits, waiting, "seconds")
    shares = tuple((label, entry.share) for label, entry in stages)
    yield Family("stallscope_stage_ratio", "Its shares of the step", shares, "ratio")
    parts = tuple(({"part": name}, value) for name, value in job_parts(analysis))
    yield Family("stallscope_job_part_seconds", "Where the job's time went", parts, "seconds")
    total = analysis.job.total
    yield _single("stallscope_job_seconds", "The whole job", total, "seconds")


def _gains(analysis: Analysis) -> Iterator[Family]:
    fixes = [({"fix": gain.what_if.fix}, gain.what_if) for gain in gains(analysis)]
    speedups = tuple((label, one.speedup) for label, one in fixes)
    yield Family("stallscope_fix_speedup_ratio", "What a fix gains", speedups, "ratio")
    saved = tuple(
        (label, one.saved_ms.value / 1e3) for label, one in fixes if not is_throughput(one)
    )
    yield Family("stallscope_fix_saved_seconds", "What it saves per step", saved, "seconds")


def _single(name: str, title: str, value: float | None, unit: str = "") -> Family:
    return Family(name, title, (({}, value),), unit)


def _lines(family: Family, run: Labels) -> Iterator[str]:
    known = [(labels, finite(value)) for labels, value in family.samples]
    samples = [(labels, value) for labels, value in known if value is not None]
    if not samples:
        return
    yield f"# TYPE {family.name} {family.kind}"
    if family.unit:
        yield f"# UNIT {family.name} {family.unit}"
    yield f"# HELP {family.name} {family.title}."
    suffix = "_info" if family.kind == "info" else ""
    for labels, value in samples:
        text = ",".join(f'{name}="{_label(own)}"' for name, own in {**run, **labels}.items())
        yield f"{family.name}{suffix}{{{text}}} {float(value)!r}"


def _label(text: str) -> str:
    """Escaped as the format wants it; what cannot be seen is written out before."""
    return plain(text).replace("\\", "\\\\").replace('"', '\\"')
