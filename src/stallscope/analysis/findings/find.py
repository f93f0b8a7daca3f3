"""Run all checks on a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from stallscope.run import Run

from .agreement import (
    broadcast_in_every_fit,
    learning_rates_differ,
    metrics_not_averaged,
    weights_differ,
)
from .batches import uneven_batches, uneven_shards
from .between_steps import checkpoint_on_all_ranks, rank_0_alone, validation_on_all_ranks
from .epochs import epochs_of_different_lengths, steps_not_divided, unequal_steps
from .events import EVENT_CHECKS
from .executors import executors_lost
from .finding import Finding
from .gradients import gradients_not_reduced, learning_rate_not_scaled, sparse_gradients
from .order import same_order_every_epoch
from .placement import accelerators_not_pinned, horovod_leaves_databricks
from .recording import host_stamps_only, missing_ranks, no_baseline, not_ended
from .records import Records
from .reductions import REDUCTION_CHECKS
from .settings import cuda_launch_blocking, debug_logging_on, stall_check_off, timeline_on
from .synchrony import ranks_apart
from .threads import threads_oversubscribed

_SEVERITIES = {"error": 0, "warning": 1, "info": 2}

# Among findings of one severity, those that say most about the others come first.
_CHECKS: tuple[Callable[[Records], Iterator[Finding]], ...] = (
    gradients_not_reduced,
    *EVENT_CHECKS,
    executors_lost,
    weights_differ,
    learning_rates_differ,
    ranks_apart,
    missing_ranks,
    epochs_of_different_lengths,
    unequal_steps,
    steps_not_divided,
    uneven_shards,
    uneven_batches,
    checkpoint_on_all_ranks,
    threads_oversubscribed,
    accelerators_not_pinned,
    metrics_not_averaged,
    same_order_every_epoch,
    sparse_gradients,
    *REDUCTION_CHECKS,
    timeline_on,
    debug_logging_on,
    cuda_launch_blocking,
    host_stamps_only,
    validation_on_all_ranks,
    rank_0_alone,
    broadcast_in_every_fit,
    learning_rate_not_scaled,
    horovod_leaves_databricks,
    stall_check_off,
    not_ended,
    no_baseline,
)


def find(run: Run, has_baseline: bool, *, single: Run | None = None) -> tuple[Finding, ...]:
    """Find all problems of a run, the most severe first.

    Args:
        run: the run.
        has_baseline: whether the run is compared with a synthetic baseline.
        single: a run of the same job on one rank, if there is one.
    """
    records = Records(run, has_baseline, single)
    found = [finding for check in _CHECKS for finding in check(records)]
    return by_severity(found)


def by_severity(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort findings by severity, the most severe first; equal ones keep their order."""
    return tuple(sorted(found, key=lambda finding: _SEVERITIES[finding.severity]))
