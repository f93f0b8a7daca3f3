"""Run all checks on a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from stallscope.run import Run

from . import (
    agreement,
    gradient_order,
    imbalance,
    job_events,
    job_setup,
    log_quality,
    uneven_work,
)
from .finding import Finding, Records

_SEVERITIES = {"error": 0, "warning": 1, "info": 2}

# Checks of messages, which need no steps.
_OF_MESSAGES: tuple[Callable[[Records], Iterator[Finding]], ...] = (
    job_events.job_failed,
    job_events.ranks_exited,
    job_events.collectives_timed_out,
    job_events.ranks_stalled,
    job_events.collectives_incomplete,
    job_events.hosts_blacklisted,
    job_events.workers_reset,
    job_events.responses_evicted,
    job_events.executors_lost,
)
# Among findings of one severity, those that explain others come first.
_CHECKS: tuple[Callable[[Records], Iterator[Finding]], ...] = (
    gradient_order.gradients_not_reduced,
    *_OF_MESSAGES,
    log_quality.processes_suspended,
    agreement.weights_differ,
    agreement.learning_rates_differ,
    agreement.ranks_apart,
    log_quality.missing_ranks,
    uneven_work.epochs_of_different_lengths,
    uneven_work.unequal_steps,
    uneven_work.steps_not_divided,
    uneven_work.uneven_shards,
    uneven_work.uneven_batches,
    imbalance.checkpoint_on_all_ranks,
    job_setup.threads_oversubscribed,
    job_setup.accelerators_not_pinned,
    agreement.metrics_not_averaged,
    uneven_work.same_order_every_epoch,
    gradient_order.link_is_slow,
    gradient_order.sparse_gradients,
    job_setup.fusion_off,
    job_setup.long_cycle_time,
    job_setup.response_cache_too_small,
    job_setup.transports_shut,
    job_setup.traffic_encrypted,
    job_setup.autotune_on,
    job_setup.timeline_on,
    job_setup.debug_logging_on,
    job_setup.cuda_launch_blocking,
    imbalance.memory_is_full,
    imbalance.host_waits_for_device,
    imbalance.copies_to_device,
    log_quality.host_stamps_only,
    log_quality.input_probe_refused,
    imbalance.validation_on_all_ranks,
    imbalance.rank_0_alone,
    agreement.broadcast_in_every_fit,
    gradient_order.learning_rate_not_scaled,
    job_setup.horovod_leaves_databricks,
    job_setup.stall_check_off,
    log_quality.not_ended,
    log_quality.no_baseline,
)


def find(
    run: Run, has_baseline: bool, has_probe: bool = False, *, single: Run | None = None
) -> tuple[Finding, ...]:
    """Find all problems of a run, the most severe first.

    Args:
        run: the run.
        has_baseline: whether the run is compared with a synthetic baseline.
        has_probe: whether an input probe has measured what faster input saves.
        single: a run of the same job on one rank, if there is one.
    """
    records = Records(run, has_baseline, single, has_probe)
    findings = [finding for check in _CHECKS for finding in check(records)]
    return by_severity(findings)


def find_in_messages(run: Run) -> tuple[Finding, ...]:
    """Find the problems of a run that other logs tell, for a run without recorded steps."""
    records = Records(run)
    return by_severity(finding for check in _OF_MESSAGES for finding in check(records))


def by_severity(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort findings by severity, the most severe first; equal ones keep their order."""
    return tuple(sorted(findings, key=lambda finding: _SEVERITIES[finding.severity]))
