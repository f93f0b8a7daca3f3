"""The figures of one run for monitoring."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from stallscope.analysis import Analysis
from stallscope.analysis.ledger.ledger import STAGES
from stallscope.text.gains import gains, is_throughput

from ..base import Metric
from .contents import job_parts

_PERCENTILES = {"0.5": "p50", "0.95": "p95", "0.99": "p99"}


def metrics(analysis: Analysis) -> list[Metric]:
    """Return the figures; times are in seconds, and every sample names the run."""
    run = {"run_id": analysis.run.id}
    return [
        replace(metric, samples=[({**run, **labels}, value) for labels, value in metric.samples])
        for metric in _metrics(analysis)
    ]


def _metrics(analysis: Analysis) -> Iterator[Metric]:
    run, bottleneck = analysis.run, analysis.bottleneck
    about = {
        "name": run.name,
        "framework": str(run.fact("framework") or ""),
        "verdict": bottleneck.kind,
        "cause": bottleneck.cause or "",
        "synthetic": "true" if run.synthetic else "false",
    }
    started = None if run.started_at is None else run.started_at.timestamp()
    yield Metric("stallscope_run", "The run and its verdict", ((about, 1),), kind="info")
    yield _single("stallscope_started_timestamp_seconds", "Start of the run", started, "seconds")
    yield _single("stallscope_ranks", "Ranks that trained", run.size)
    # Logs of epochs contain no steps.
    steps = None if analysis.epoch_times else analysis.steps
    yield _single("stallscope_steps", "Steps that any rank recorded", steps)
    rate = analysis.samples_per_second
    yield _single("stallscope_samples_per_second", "Samples of all ranks, steady steps", rate)
    yield from _times(analysis)
    yield from _gains(analysis)
    gap = analysis.gap
    yield _single(
        "stallscope_baseline_gap_ratio", "Lost share of the baseline's throughput", gap, "ratio"
    )
    counts = {
        severity: sum(finding.severity == severity for finding in analysis.findings)
        for severity in ("info", "warning", "error")
    }
    by_severity = tuple(({"severity": name}, float(count)) for name, count in counts.items())
    yield Metric("stallscope_findings", "Findings by severity", by_severity)


def _times(analysis: Analysis) -> Iterator[Metric]:
    step = analysis.step
    mean = None if step is None else step.mean / 1e3
    yield _single("stallscope_step_mean_seconds", "Mean of the steady steps", mean, "seconds")
    spread = tuple(
        ({"quantile": at}, None if step is None else getattr(step, name) / 1e3)
        for at, name in _PERCENTILES.items()
    )
    yield Metric("stallscope_step_seconds", "Percentiles of the steady steps", spread, "seconds")
    stages = [({"stage": entry.name}, entry) for entry in analysis.by_cause]
    times = tuple((label, entry.ms / 1e3) for label, entry in stages)
    yield Metric("stallscope_stage_seconds", "A steady step by cause", times, "seconds")
    waiting = tuple(
        (label, entry.waiting_ms / 1e3)
        for label, entry in stages
        if entry.name in STAGES and entry.waiting_ms is not None
    )
    waits = "Waiting for slow ranks by cause"
    yield Metric("stallscope_stage_waiting_seconds", waits, waiting, "seconds")
    shares = tuple((label, entry.share) for label, entry in stages)
    yield Metric("stallscope_stage_ratio", "Share of the step by cause", shares, "ratio")
    parts = tuple(({"part": name}, value) for name, value in job_parts(analysis))
    yield Metric("stallscope_job_part_seconds", "Where the job's time went", parts, "seconds")
    total = analysis.job.total
    yield _single("stallscope_job_seconds", "The whole job", total, "seconds")


def _gains(analysis: Analysis) -> Iterator[Metric]:
    fixes = [({"fix": gain.what_if.fix}, gain.what_if) for gain in gains(analysis)]
    speedups = tuple((label, fix.speedup) for label, fix in fixes)
    yield Metric("stallscope_fix_speedup_ratio", "Speed-up by a fix", speedups, "ratio")
    saved = tuple(
        (label, fix.saved_ms.value / 1e3) for label, fix in fixes if not is_throughput(fix)
    )
    yield Metric("stallscope_fix_saved_seconds", "Time that a fix saves per step", saved, "seconds")


def _single(name: str, title: str, value: float | None, unit: str = "") -> Metric:
    return Metric(name, title, (({}, value),), unit)
