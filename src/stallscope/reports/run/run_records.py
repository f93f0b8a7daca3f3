"""The figures of one run for spreadsheets, one row each, and for OpenMetrics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from stallscope.analysis import Analysis
from stallscope.analysis.ledger.ledger import CauseEntry
from stallscope.analysis.ledger.ledger_figures import RankSummary
from stallscope.formatting.numbers import Interval
from stallscope.text.gain_words import gains, is_throughput
from stallscope.words import RANK_PARTS, STAGES

from ..report_formats import Metric, ReportRecords, Row
from .run_contents import job_parts

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

_PERCENTILES = {"0.5": "p50", "0.95": "p95", "0.99": "p99"}


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
        for name in RANK_PARTS:
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


# -- The figures of one run for monitoring --------------------------------------------------------


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
    # Logs of epochs alone contain no steps.
    steps = analysis.steps if analysis.printed or not analysis.epoch_times else None
    yield _single("stallscope_steps", "Steps that any rank recorded or printed", steps)
    rate = analysis.samples_per_second
    yield _single("stallscope_samples_per_second", "Samples of all ranks, steady steps", rate)
    tokens = analysis.tokens_per_second
    if tokens is not None:
        about_tokens = "Tokens of all ranks without padding, steady steps"
        yield _single("stallscope_tokens_per_second", about_tokens, tokens.value)
    yield from _times(analysis)
    yield from _gains(analysis)
    yield from _health(analysis)
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


def _health(analysis: Analysis) -> Iterator[Metric]:
    """Yield what alerts rest on: whether the run goes on, hangs, or has a fault, and lost time."""
    completed = float(analysis.run.status == "completed")
    yield _single("stallscope_completed", "1 once every rank has closed its log", completed)
    stopped = 0.0 if analysis.stopped is None else analysis.stopped.seconds
    yield _single("stallscope_stopped_seconds", "For how long the job has hung", stopped, "seconds")
    fault = float(analysis.bottleneck.fault)
    yield _single("stallscope_fault", "1 where the verdict is a fault", fault)
    slow = {rank for straggler in analysis.stragglers for rank in straggler.ranks}
    yield _single("stallscope_slow_ranks", "Ranks that are named as slow", len(slow))
    goodput = analysis.goodput
    if goodput is not None:
        about = "Share of the job's time in steps that count"
        yield _single("stallscope_goodput_ratio", about, goodput.fraction, "ratio")
        lost = tuple(({"cause": cause}, seconds) for cause, seconds in goodput.lost_s.items())
        about = "Time of the job that is lost, by cause"
        yield Metric("stallscope_goodput_lost_seconds", about, lost, "seconds")


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
    predicted = [({"fix": str(gain.what_if.fix)}, gain.what_if) for gain in gains(analysis)]
    speedups = tuple((label, gain.speedup) for label, gain in predicted)
    yield Metric("stallscope_fix_speedup_ratio", "Speed-up by a fix", speedups, "ratio")
    saved = [(label, gain.saved_ms) for label, gain in predicted if not is_throughput(gain)]
    title = "Time that a fix saves per step"
    values = tuple((label, mean.value / 1e3) for label, mean in saved)
    yield Metric("stallscope_fix_saved_seconds", title, values, "seconds")
    intervals = [(label, mean.ci95) for label, mean in saved if mean.ci95 is not None]
    for end, name in enumerate(("low", "high")):
        title = f"The {name} end of the 95 % interval of what a fix saves per step"
        values = tuple((label, interval[end] / 1e3) for label, interval in intervals)
        yield Metric(f"stallscope_fix_saved_{name}_seconds", title, values, "seconds")


def _single(name: str, title: str, value: float | None, unit: str = "") -> Metric:
    return Metric(name, title, (({}, value),), unit)
