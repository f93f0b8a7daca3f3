"""Findings: what the logs say about the run besides the ledger, each with evidence and advice."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from stallscope.run import Run

from .result import Finding


def find(run: Run, has_baseline: bool) -> tuple[Finding, ...]:
    """All findings of a run, the severest first."""
    found = [finding for check in _CHECKS for finding in check(run)]
    if not has_baseline and not run.synthetic:
        found.append(
            Finding(
                "no_baseline",
                "info",
                "No synthetic baseline",
                "Input stall and extra work between steps are judged against assumed values.",
                "Run the same job once on synthetic_like(data) with StepLogger(…, synthetic=True), "
                "and pass it with --baseline.",
            )
        )
    order = {"error": 0, "warning": 1, "info": 2}
    return tuple(sorted(found, key=lambda finding: order[finding.severity]))


def _gradients_not_reduced(run: Run) -> Iterator[Finding]:
    if run.fact("gradients_reduced") is False:
        yield Finding(
            "gradients_not_reduced",
            "error",
            "Gradients are not reduced",
            f"{run.size} ranks trained, and the traced train step holds no allreduce: every rank "
            "trained a model of its own.",
            "Let a custom train_step reduce its gradients, with hvd.DistributedGradientTape or "
            "optimizer.minimize(); apply_gradients alone does not.",
        )


def _missing_ranks(run: Run) -> Iterator[Finding]:
    missing = run.missing_ranks
    if not missing:
        return
    if run.ranks == [0]:
        yield Finding(
            "one_rank_only",
            "error",
            "Only rank 0 was recorded",
            f"{run.size} ranks trained, and the callback was added on rank 0 only: a rank that waits "
            "looks like a slow network.",
            "Add StepLogger to the callbacks of every rank.",
        )
        return
    yield Finding(
        "missing_ranks",
        "warning",
        "Logs of some ranks are missing",
        f"{len(missing)} of {run.size} ranks left no log here, rank {missing[0]} the first of them.",
        "Collect the logs of all hosts into one folder; until then waiting for the missing ranks "
        "shows as allreduce.",
    )


def _stamps_missing(run: Run) -> Iterator[Finding]:
    stamps = run.fact("stamps") or {}
    reason = stamps.get("reason")
    if reason:
        yield Finding(
            "host_stamps_only",
            "warning",
            "Stages were not measured",
            f"Only begin and end of every step were recorded: {reason}.",
            "Record a few hundred steps without it to see the stages; step times are right either way.",
        )


def _timeline_on(run: Run) -> Iterator[Finding]:
    if run.fact("timeline"):
        yield Finding(
            "timeline_on",
            "warning",
            "The Horovod Timeline is on",
            "HOROVOD_TIMELINE was set: rank 0 logs every tensor of every step, about 100 KB a step with "
            "160 gradients, and on a GPU waits for every device event.",
            "Leave it off except for the minutes in which you need it.",
        )


def _learning_rate_not_scaled(run: Run) -> Iterator[Finding]:
    rate = run.fact("learning_rate")
    if run.fact("learning_rate_scaled") is False and isinstance(rate, (int, float)):
        yield Finding(
            "learning_rate_not_scaled",
            "info",
            "The learning rate is the optimizer's default",
            f"{rate:g} on {run.size} ranks, the same as on one.",
            "With N times the batch, N times the rate (with a warm-up) is the usual start.",
        )


def _unequal_steps(run: Run) -> Iterator[Finding]:
    if not run.steps.num_rows or run.status != "completed":
        return
    ranks, counts = np.unique(run.steps["rank"].to_numpy(), return_counts=True)
    if len(ranks) > 1 and counts.min() != counts.max():
        fewest, most = ranks[counts.argmin()], ranks[counts.argmax()]
        yield Finding(
            "unequal_steps",
            "warning",
            "Ranks made different numbers of steps",
            f"Rank {fewest} made {counts.min()} steps and rank {most} {counts.max()}; steps that some "
            "ranks lack are not in the ledger.",
            "Give every rank the same number of batches: steps per epoch divided by the number of "
            "ranks, and shards of equal size.",
        )


def _not_ended(run: Run) -> Iterator[Finding]:
    if run.status == "completed":
        return
    last = {log.rank: log for log in sorted(run.logs, key=lambda log: (log.generation, log.part))}
    open_ranks = [rank for rank, log in sorted(last.items()) if not log.ended]
    yield Finding(
        "not_ended",
        "info",
        "Some logs have no end",
        f"{len(open_ranks)} rank(s), rank {open_ranks[0]} the first of them, are still training or "
        "were killed.",
        "What was flushed before is all there.",
    )


_CHECKS: tuple[Callable[[Run], Iterator[Finding]], ...] = (
    _gradients_not_reduced,
    _missing_ranks,
    _stamps_missing,
    _timeline_on,
    _learning_rate_not_scaled,
    _unequal_steps,
    _not_ended,
)
