"""The JSON of one run, which docs/report.schema.json describes."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from stallscope.analysis import ENTRIES, Analysis
from stallscope.analysis.findings.finding import Finding
from stallscope.analysis.findings.step_causes import StepCause
from stallscope.analysis.gains.baseline import Decomposition
from stallscope.analysis.gains.input_probe import InputProbe
from stallscope.analysis.gains.what_if import Bottleneck, WhatIf, in_words
from stallscope.analysis.ledger.ledger import CauseEntry, LedgerEntry
from stallscope.analysis.ledger.printed_steps import PrintedStages, PrintedSteps
from stallscope.analysis.ledger.windows import RankWindows
from stallscope.analysis.network.communication import inside_collectives
from stallscope.analysis.network.network_check import NetworkUse, Parts
from stallscope.analysis.result import GenerationSummary
from stallscope.analysis.stopped.stopped import Stopped
from stallscope.analysis.views.machine_series import between, figures_of
from stallscope.analysis.views.rank_maps import steady_wall
from stallscope.arrays.stats import Mean
from stallscope.catalogue.entry import moment
from stallscope.run import Event, Run, Series
from stallscope.text.gain_words import is_throughput
from stallscope.text.job_words import since_start_s, worst
from stallscope.words import CAUSES

from ..report_formats import Content, content_of, fields_of, mean_fields, value_of
from .run_contents import job_parts, single_match

# A Spark application may have had a hundred thousand tasks.
_MOST_EVENTS = 1_000
# Logs may have a line for each of a million steps.
_MOST_WINDOWS = 1_000
# Keys and attributes for ``fields_of``.
_COMMUNICATION = (
    "gradient_bytes exposed_ms bus_bandwidth_gb_s=bus_bandwidth "
    "network_bandwidth_gb_s=network_bandwidth whole_ms hidden_ms"
)
_STRAGGLER = "pattern ranks hosts place stage excess_ms late_share cost_ms work"
_LOADER = (
    "rank host kind batches warm_up first_batch_ms batch_ms=ms batch_ci95_ms=ci95_ms "
    "samples_per_batch data_ended error stages no_stages"
)
_TRIAL = "workers prefetch ms ci95_ms"


def json_content(analysis: Analysis) -> Content:
    """Return the analysis as one object; unknown values are None."""
    moved = analysis.communication
    return content_of(
        run=_run(analysis),
        baseline=_baseline(analysis),
        job_s={**dict(job_parts(analysis)), "total": analysis.job.total},
        goodput=_goodput(analysis),
        generations=_generations(analysis),
        step_ms=analysis.step or dict.fromkeys(("mean", "p50", "p95", "p99", "ci95")),
        ledger=[_entry(analysis, "entry", name) for name in ENTRIES],
        by_cause=[_entry(analysis, "cause", name) for name in CAUSES],
        ranks=analysis.ranks,
        steps=_steps(analysis),
        epoch_times=analysis.epoch_times,
        printed_steps=_printed_steps(analysis.printed),
        clocks=_clocks(analysis),
        communication=moved and fields_of(moved, _COMMUNICATION),
        collectives=inside_collectives(analysis.run),
        links=analysis.links,
        network_check=_network_check(analysis.network_use),
        input=_input(analysis),
        probe=_probe(analysis.input_probe),
        loaders=analysis.run.loaders,
        causes=[_step_cause(cause) for cause in analysis.step_causes.causes],
        explained=analysis.step_causes.explained,
        padding=_padding(analysis),
        bottleneck=_bottleneck(analysis.bottleneck),
        stopped=stopped_content(analysis.stopped),
        stragglers=[fields_of(straggler, _STRAGGLER) for straggler in analysis.stragglers],
        what_if=[_gain(gain) for gain in analysis.what_if],
        predicted_from=analysis.predicted_from,
        changes=analysis.changes,
        findings=[finding_content(finding) for finding in analysis.findings],
        events=_events(analysis.run),
        machines=[_series(series, analysis) for series in analysis.run.series],
        warnings=analysis.warnings,
    )


def _steps(analysis: Analysis) -> dict[str, Any]:
    return {
        **fields_of(analysis.coverage, "total=steps complete partial unused sampled_out"),
        "incomplete_ranks": [
            fields_of(rank, "generation rank steps first last left_out")
            for rank in analysis.coverage.incomplete
        ],
    }


def _run(analysis: Analysis) -> dict[str, Any]:
    run = analysis.run
    framework = run.fact("framework")
    return {
        **fields_of(run, "id name source"),
        "framework": None if framework is None else str(framework),
        "size": run.size,
        "hosts": run.hosts if analysis.epoch_times is None else [],
        **fields_of(analysis, "epochs steps"),
        **fields_of(run, "synthetic status"),
        "samples_per_second": analysis.samples_per_second,
        "tokens_per_second": value_of(analysis.tokens_per_second),
        "started_at": moment(run.started_at),
    }


def stopped_content(stopped: Stopped | None) -> dict[str, Any] | None:
    """Describe a hang as JSON; None if the job does not hang."""
    if stopped is None:
        return None
    return {
        "since": moment(stopped.since),
        **fields_of(stopped, "seconds step waiting evidence"),
        "ranks": [
            {
                **fields_of(rank, "rank host stage pause"),
                "stack": [f"{path}:{line} in {name}" for path, line, name in rank.stack],
            }
            for rank in stopped.ranks
        ],
    }


def _bottleneck(bottleneck: Bottleneck) -> dict[str, Any]:
    return {**vars(bottleneck), "advice": [str(advice) for advice in bottleneck.advice]}


def finding_content(finding: Finding) -> dict[str, Any]:
    """Return a finding with its advice as one text."""
    return {**vars(finding), "advice": in_words(finding.advice)}


def _goodput(analysis: Analysis) -> dict[str, Any] | None:
    if analysis.goodput is None:
        return None
    names = "fraction compute_fraction compute_s lost_s total_s rank_s"
    return fields_of(analysis.goodput, names)


def _generations(analysis: Analysis) -> list[dict[str, Any]]:
    alone = len(analysis.generations) == 1
    return [_generation(generation, alone) for generation in analysis.generations]


def _generation(generation: GenerationSummary, alone: bool) -> dict[str, Any]:
    """Return a generation; the figures of the only one are those of the run."""
    known = {
        **fields_of(generation, "number size"),
        "hosts": generation.host_names,
        "started_at": moment(generation.started_at),
        "ended_at": moment(generation.ended_at),
        **fields_of(generation, "steps repeated_steps ended_by"),
    }
    if alone:
        return known
    return known | {
        "step_ms": generation.step,
        "ledger": generation.entries,
        "by_cause": generation.by_cause,
        "bottleneck": _bottleneck(generation.bottleneck),
        "stragglers": [fields_of(straggler, _STRAGGLER) for straggler in generation.stragglers],
        "findings": [finding_content(finding) for finding in generation.findings],
    }


def _baseline(analysis: Analysis) -> dict[str, Any] | None:
    if analysis.baseline is None or analysis.match is None:
        return None
    return {
        "id": analysis.baseline.run.id,
        "match": analysis.match,
        **fields_of(analysis, "gap gap_ci95"),
        "single": _single(analysis),
        "decomposition": _means(analysis.decomposition),
    }


def _single(analysis: Analysis) -> dict[str, Any] | None:
    match = single_match(analysis)
    if analysis.single is None or match is None:
        return None
    return {"id": analysis.single.run.id, "match": match}


def _means(parts: Decomposition | Parts | None) -> dict[str, Any] | None:
    if parts is None:
        return None
    return {name: None if mean is None else _mean(mean) for name, mean in vars(parts).items()}


def _mean(mean: Mean) -> dict[str, Any]:
    return {"ms": mean.value, "ci95_ms": mean.ci95}


def _entry(analysis: Analysis, ledger: str, name: str) -> LedgerEntry | dict[str, Any]:
    """Return an entry of the run; if it was not measured, only the other runs' figures."""
    measured, base, single = (
        None if run is None else getattr(run, ledger)(name)
        for run in (analysis, analysis.baseline, analysis.single)
    )
    if measured is not None:
        entry: LedgerEntry = measured
        return entry
    known = {
        "name": name,
        "baseline_ms": None if base is None else base.ms,
        "single_ms": None if single is None else single.ms,
    }
    kind = CauseEntry if ledger == "cause" else LedgerEntry
    return {field.name: known.get(field.name) for field in fields(kind)}


def _printed_steps(printed: PrintedSteps | None) -> dict[str, Any] | None:
    if printed is None:
        return None
    share = printed.input_share
    return {
        **fields_of(printed, "found precision_ms warm_up_steps"),
        **mean_fields("input_ms", printed.input_ms),
        "input_share": value_of(share),
        "input_share_ci95": None if share is None else share.ci95,
        **fields_of(printed, "epoch_starts period bursts growth pauses repeated"),
        "ranks": [_windows(rank) for rank in printed.ranks],
        **({} if printed.stages is None else {"stages": _printed_stages(printed.stages)}),
    }


def _printed_stages(stages: PrintedStages) -> dict[str, Any]:
    spread = stages.spread
    names = ("timer", "least_ms", "most_ms")
    return {
        **{f"{name}_ms": stages.ms.get(name) for name in ENTRIES if name != "imbalance"},
        "rest_ms": stages.rest_ms,
        **fields_of(stages, "by tables"),
        "spread": None if spread is None else dict(zip(names, spread, strict=True)),
    }


def _windows(rank: RankWindows) -> dict[str, Any]:
    """Return a rank's windows as columns; neighbours are joined where there are many."""
    windows = rank.joined(_MOST_WINDOWS)
    return {
        "rank": rank.rank,
        "lines": len(rank),
        "mean_ms": rank.mean_ms,
        "step": windows.step.tolist(),
        "steps": windows.steps.tolist(),
        "ms": windows.ms.tolist(),
        "input_ms": None if windows.input_ms is None else windows.input_ms.tolist(),
    }


def _clocks(analysis: Analysis) -> dict[str, Any] | None:
    clocks = analysis.clocks
    if clocks is None:
        return None
    jumps = [{"clock": clock, "step": step, "ms": ms} for clock, step, ms in clocks.jumps]
    return {**vars(clocks), "jumps": jumps}


def _input(analysis: Analysis) -> dict[str, Any] | None:
    rates = analysis.input_rates
    if rates is None:
        return None
    return {
        "slowest_rank": rates.slowest.rank,
        "alone_samples_per_second": value_of(rates.alone),
        "alone_ci95": None if rates.alone is None else rates.alone.ci95,
        "synthetic_samples_per_second": rates.synthetic,
        "real_samples_per_second": rates.real,
        "needed_samples_per_second": rates.needed,
        **fields_of(rates, "enough at_once"),
        "proposed": rates.proposed and fields_of(rates.proposed, _TRIAL),
        "ranks": [
            {
                **fields_of(rank, _LOADER),
                "trials": [fields_of(trial, _TRIAL) for trial in rank.trials],
            }
            for rank in rates.ranks
        ],
    }


def _probe(probe: InputProbe | None) -> dict[str, Any] | None:
    if probe is None:
        return None
    slowest = probe.slowest
    return {
        "steps": probe.steps,
        **mean_fields("step_ms", probe.probed_ms),
        **mean_fields("loader_ms", None if slowest is None else slowest.loader_ms),
        **mean_fields("real_ms", probe.real_ms),
        "saved_ms": probe.saved_ms.value,
        "ci95_ms": probe.saved_ms.ci95,
        "ranks": [
            {
                "rank": rank.rank,
                "step_ms": rank.probed_ms,
                **mean_fields("loader_ms", rank.loader_ms),
                "real_ms": rank.real_ms,
            }
            for rank in probe.ranks
        ],
    }


def _step_cause(cause: StepCause) -> dict[str, Any]:
    cost = cause.saved_ms
    return {
        **fields_of(cause, "name=code ranks stage count took_ms"),
        # What a cause costs is what the job saves without it.
        "ms": cost.value,
        "ci95_ms": cost.ci95,
        "saved_ms": cost.value,
        **fields_of(cause, "share of_imbalance evidence=text"),
        "advice": [*map(str, cause.advice)],
    }


def _padding(analysis: Analysis) -> dict[str, Any] | None:
    padding = analysis.step_causes.padding
    if padding is None:
        return None
    tokens, saved = analysis.tokens_per_second, padding.saved_ms
    return {
        **mean_fields("share", padding.share),
        "ranks": [{"rank": rank, "share": share} for rank, share in padding.of_ranks],
        "batches": padding.batches,
        **mean_fields("tokens_per_second", tokens),
        **mean_fields("saved_ms", saved),
        "reason": padding.unknown or None,
    }


def _network_check(use: NetworkUse | None) -> dict[str, Any] | None:
    if use is None:
        return None
    check, gradients = use.check, use.check.as_run
    return {
        "measured_at": moment(check.measured_at),
        **fields_of(
            check, "seconds framework reduced_by reduces_with device size hosts gradients_from"
        ),
        "gradient_bytes": None if gradients is None else gradients.bytes,
        "gradient_tensors": None if gradients is None else gradients.messages,
        "differs": use.differs,
        **mean_fields("gradients_ms", use.gradients_ms),
        **mean_fields("exposed_ms", use.exposed_ms),
        **mean_fields("excess_ms", use.excess_ms),
        "parts": _means(use.parts),
        "sweep": [
            {**fields_of(message, "bytes bus_bandwidth_gb_s=bus_bandwidth"), **_mean(message.ms)}
            for message in use.sweep
        ],
        "pairs": [
            {
                **fields_of(pair, "hosts is_slow"),
                "mbit_s": pair.mbit_s.value,
                "ci95_mbit_s": pair.mbit_s.ci95,
                **mean_fields("small_ms", pair.small_ms),
            }
            for pair in use.pairs
        ],
        "left_out": check.left_out,
    }


def _events(run: Run) -> dict[str, Any]:
    listed = worst(run.events, _MOST_EVENTS)
    return {"total": len(run.events), "listed": [_event(event, run) for event in listed]}


def _event(event: Event, run: Run) -> dict[str, Any]:
    return {
        **fields_of(event, "kind what ranks hosts log=where"),
        "since_begin_s": since_start_s(event, run),
        "uncertainty_s": event.uncertainty_ns / 1e9,
        "lasted_s": event.waited_ns / 1e9,
    }


def _series(series: Series, analysis: Analysis) -> dict[str, Any]:
    span = steady_wall(analysis)
    return {
        **fields_of(series, "name unit node rank log=where"),
        "whole": figures_of(series.value),
        "steady": None if span is None else between([series], *span),
    }


def _gain(gain: WhatIf) -> dict[str, Any]:
    # A gain in throughput on more ranks saves no time per step.
    saved = None if is_throughput(gain) else gain.saved_ms
    return {
        **fields_of(gain, "fix speedup ci95"),
        **mean_fields("saved_ms", saved),
        **fields_of(gain, "extrapolated bound estimate measured overlaps"),
    }
