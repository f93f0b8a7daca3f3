"""The JSON of one run, which docs/report.schema.json describes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from typing import Any

from stallscope.analysis import ENTRIES, Analysis
from stallscope.analysis.gains.what_if import WhatIf
from stallscope.analysis.ledger.entries import CauseEntry, LedgerEntry
from stallscope.analysis.ledger.ledger import CAUSES
from stallscope.analysis.stragglers.straggler import Straggler
from stallscope.analysis.views.machines import between, figures_of
from stallscope.analysis.views.utc import steady_wall
from stallscope.arrays.stats import Mean
from stallscope.catalogue.values import moment
from stallscope.run import Event, MeasuredInput, Run, Series
from stallscope.text.events import since_begin_s, worst
from stallscope.text.fixes import is_throughput

from ..content import SCHEMA_VERSION, Content, valid
from .contents import job_parts, single_match

# A Spark application may have had a hundred thousand tasks.
_MOST_EVENTS = 1_000


def json_content(analysis: Analysis) -> Content:
    """Return the analysis as one object; unknown values are None."""
    content: Content = {
        "schema_version": SCHEMA_VERSION,
        "run": _run(analysis),
        "baseline": _baseline(analysis),
        "job_s": {**dict(job_parts(analysis)), "total": analysis.job.total},
        "step_ms": _step(analysis),
        "ledger": [_entry(analysis, name) for name in ENTRIES],
        "by_cause": [_cause(analysis, name) for name in CAUSES],
        "ranks": [asdict(rank) for rank in analysis.ranks],
        "steps": _steps(analysis),
        "epoch_times": None if analysis.epoch_times is None else asdict(analysis.epoch_times),
        "clocks": _clocks(analysis),
        "communication": _communication(analysis),
        "input": _input(analysis),
        "bottleneck": asdict(analysis.bottleneck),
        "stragglers": [_straggler(one) for one in analysis.stragglers],
        "what_if": [_gain(gain) for gain in analysis.what_if],
        "predicted_from": analysis.predicted_from,
        "changes": [asdict(change) for change in analysis.changes],
        "findings": [asdict(finding) for finding in analysis.findings],
        "events": _events(analysis.run),
        "machines": _machines(analysis),
        "warnings": analysis.warnings,
    }
    return {name: valid(value) for name, value in content.items()}


def _run(analysis: Analysis) -> dict[str, Any]:
    run = analysis.run
    framework = run.fact("framework")
    return {
        "id": run.id,
        "name": run.name,
        "source": run.source,
        "framework": None if framework is None else str(framework),
        "size": run.size,
        "hosts": run.hosts if analysis.epoch_times is None else [],
        "epochs": analysis.epochs,
        "steps": analysis.steps,
        "synthetic": run.synthetic,
        "status": run.status,
        "samples_per_second": analysis.samples_per_second,
        "started_at": moment(run.started_at),
    }


def _baseline(analysis: Analysis) -> dict[str, Any] | None:
    if analysis.baseline is None or analysis.match is None:
        return None
    return {
        "id": analysis.baseline.run.id,
        "match": asdict(analysis.match),
        "gap": analysis.gap,
        "gap_ci95": analysis.gap_ci95,
        "single": _single(analysis),
        "decomposition": _decomposition(analysis),
    }


def _single(analysis: Analysis) -> dict[str, Any] | None:
    match = single_match(analysis)
    if analysis.single is None or match is None:
        return None
    return {"id": analysis.single.run.id, "match": asdict(match)}


def _decomposition(analysis: Analysis) -> dict[str, Any] | None:
    parts = analysis.decomposition
    if parts is None:
        return None
    means: dict[str, Mean | None] = {
        field.name: getattr(parts, field.name) for field in fields(parts)
    }
    return {
        name: None if mean is None else {"ms": mean.value, "ci95_ms": mean.ci95}
        for name, mean in means.items()
    }


def _step(analysis: Analysis) -> dict[str, Any]:
    if analysis.step is None:
        return dict.fromkeys(("mean", "p50", "p95", "p99", "ci95"))
    return asdict(analysis.step)


def _entry(analysis: Analysis, name: str) -> dict[str, Any]:
    return _of_a_ledger(name, [*_runs(analysis, "entry", name)], LedgerEntry)


def _cause(analysis: Analysis, name: str) -> dict[str, Any]:
    return _of_a_ledger(name, [*_runs(analysis, "cause", name)], CauseEntry)


def _runs(analysis: Analysis, ledger: str, name: str) -> Iterator[LedgerEntry | None]:
    """Return an entry of the run, its baseline and the run on one rank."""
    for one in (analysis, analysis.baseline, analysis.single):
        yield None if one is None else getattr(one, ledger)(name)


def _of_a_ledger(
    name: str, entries: Sequence[LedgerEntry | None], kind: type[LedgerEntry]
) -> dict[str, Any]:
    own, base, single = entries
    if own is not None:
        return asdict(own)
    known = {
        "name": name,
        "baseline_ms": None if base is None else base.ms,
        "single_ms": None if single is None else single.ms,
    }
    return {field.name: known.get(field.name) for field in fields(kind)}


def _steps(analysis: Analysis) -> dict[str, int]:
    found = analysis.coverage
    return {
        "total": found.steps,
        "complete": found.complete,
        "partial": found.partial,
        "unused": found.unused,
        "sampled_out": found.sampled_out,
    }


def _clocks(analysis: Analysis) -> dict[str, Any] | None:
    found = analysis.clocks
    if found is None:
        return None
    jumps = [{"clock": clock, "step": step, "ms": ms} for clock, step, ms in found.jumps]
    return {**asdict(found), "jumps": jumps}


def _communication(analysis: Analysis) -> dict[str, Any] | None:
    found = analysis.communication
    if found is None:
        return None
    return {
        "gradient_bytes": found.gradient_bytes,
        "exposed_ms": found.exposed_ms.value,
        "exposed_ci95_ms": found.exposed_ms.ci95,
        "bus_bandwidth_gb_s": found.bus_bandwidth,
        "network_bandwidth_gb_s": found.network_bandwidth,
        "whole_ms": found.whole_ms,
        "hidden_ms": found.hidden_ms,
    }


def _input(analysis: Analysis) -> dict[str, Any] | None:
    found = analysis.input_rates
    if found is None:
        return None
    return {
        "slowest_rank": found.slowest.rank,
        "alone_samples_per_second": None if found.alone is None else found.alone.value,
        "alone_ci95": None if found.alone is None else found.alone.ci95,
        "synthetic_samples_per_second": found.synthetic,
        "real_samples_per_second": found.real,
        "needed_samples_per_second": found.needed,
        "enough": found.enough,
        "at_once": found.at_once,
        "ranks": [_loader(one) for one in found.ranks],
    }


def _loader(one: MeasuredInput) -> dict[str, Any]:
    return {
        "rank": one.rank,
        "host": one.host,
        "kind": one.kind,
        "batches": one.batches,
        "warm_up": one.warm_up,
        "first_batch_ms": one.first_batch_ms,
        "batch_ms": one.ms,
        "batch_ci95_ms": one.ci95_ms,
        "samples_per_batch": one.samples_per_batch,
        "data_ended": one.data_ended,
        "error": one.error,
        "stages": [asdict(stage) for stage in one.stages],
        "no_stages": one.no_stages,
    }


def _events(run: Run) -> dict[str, Any]:
    listed = worst(run.events, _MOST_EVENTS)
    return {"total": len(run.events), "listed": [_event(one, run) for one in listed]}


def _event(event: Event, run: Run) -> dict[str, Any]:
    return {
        "kind": event.kind,
        "what": event.what,
        "ranks": event.ranks,
        "hosts": event.hosts,
        "log": event.where,
        "since_begin_s": since_begin_s(event, run),
        "uncertainty_s": event.uncertainty_ns / 1e9,
        "lasted_s": event.waited_ns / 1e9,
    }


def _machines(analysis: Analysis) -> list[dict[str, Any]]:
    return [_series(one, analysis) for one in analysis.run.series]


def _series(series: Series, analysis: Analysis) -> dict[str, Any]:
    span = steady_wall(analysis)
    steady = None if span is None else between([series], *span)
    return {
        "name": series.name,
        "unit": series.unit,
        "node": series.node,
        "rank": series.rank,
        "log": series.where,
        "whole": asdict(figures_of(series.value)),
        "steady": None if steady is None else asdict(steady),
    }


def _straggler(one: Straggler) -> dict[str, Any]:
    return {
        "pattern": one.pattern,
        "ranks": one.ranks,
        "hosts": one.hosts,
        "stage": one.stage,
        "excess_ms": one.excess_ms.value,
        "excess_ci95_ms": one.excess_ms.ci95,
        "late_share": one.late_share,
        "cost_ms": one.cost_ms.value,
        "cost_ci95_ms": one.cost_ms.ci95,
        "work": one.work,
    }


def _gain(gain: WhatIf) -> dict[str, Any]:
    # On other ranks steps take another time, and no step saves any.
    saved = None if is_throughput(gain) else gain.saved_ms
    return {
        "fix": gain.fix,
        "speedup": gain.speedup,
        "ci95": gain.ci95,
        "saved_ms": None if saved is None else saved.value,
        "saved_ci95_ms": None if saved is None else saved.ci95,
        "extrapolated": gain.extrapolated,
        "bound": gain.bound,
    }
