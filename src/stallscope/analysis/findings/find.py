"""Run all checks on a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from stallscope.run import Run

from . import (
    agreement,
    batches,
    between_steps,
    epochs,
    events,
    gradients,
    placement,
    recording,
    settings,
    suspensions,
    synchrony,
)
from .finding import Finding
from .records import Records

_SEVERITIES = {"error": 0, "warning": 1, "info": 2}

# Among findings of one severity, those that explain others come first.
_CHECKS: tuple[Callable[[Records], Iterator[Finding]], ...] = (
    gradients.gradients_not_reduced,
    events.ranks_exited,
    events.ranks_stalled,
    events.collectives_incomplete,
    events.hosts_blacklisted,
    events.workers_reset,
    events.responses_evicted,
    events.executors_lost,
    suspensions.processes_suspended,
    agreement.weights_differ,
    agreement.learning_rates_differ,
    synchrony.ranks_apart,
    recording.missing_ranks,
    epochs.epochs_of_different_lengths,
    epochs.unequal_steps,
    epochs.steps_not_divided,
    batches.uneven_shards,
    batches.uneven_batches,
    between_steps.checkpoint_on_all_ranks,
    placement.threads_oversubscribed,
    placement.accelerators_not_pinned,
    agreement.metrics_not_averaged,
    epochs.same_order_every_epoch,
    gradients.sparse_gradients,
    settings.fusion_off,
    settings.long_cycle_time,
    settings.response_cache_too_small,
    settings.transports_shut,
    settings.traffic_encrypted,
    settings.autotune_on,
    settings.timeline_on,
    settings.debug_logging_on,
    settings.cuda_launch_blocking,
    recording.host_stamps_only,
    between_steps.validation_on_all_ranks,
    between_steps.rank_0_alone,
    agreement.broadcast_in_every_fit,
    gradients.learning_rate_not_scaled,
    placement.horovod_leaves_databricks,
    settings.stall_check_off,
    recording.not_ended,
    recording.no_baseline,
)


def find(run: Run, has_baseline: bool, *, single: Run | None = None) -> tuple[Finding, ...]:
    """Find all problems of a run, the most severe first.

    Args:
        run: the run.
        has_baseline: whether the run is compared with a synthetic baseline.
        single: a run of the same job on one rank, if there is one.
    """
    records = Records(run, has_baseline, single)
    findings = [finding for check in _CHECKS for finding in check(records)]
    return by_severity(findings)


def by_severity(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort findings by severity, the most severe first; equal ones keep their order."""
    return tuple(sorted(findings, key=lambda finding: _SEVERITIES[finding.severity]))
