"""Find gaps in the recording: missing ranks, stages, ends of logs, and baselines."""

from __future__ import annotations

from collections.abc import Iterator

from stallscope.formatting.lists import counted, ranks_in_words

from .finding import Finding
from .records import Records


def missing_ranks(records: Records) -> Iterator[Finding]:
    """Find ranks without a log."""
    run = records.run
    missing = run.missing_ranks
    if not missing:
        return
    if len(run.ranks) == 1:
        (rank,) = run.ranks
        yield Finding(
            "one_rank_only",
            "error",
            f"Only rank {rank}'s log is here",
            f"{run.size} ranks trained. The other logs were not recorded or not collected, so waiting "
            "for another rank looks like a slow network.",
            "Add StepLogger to the callbacks of every rank, and collect the logs of all hosts.",
        )
        return
    yield Finding(
        "missing_ranks",
        "warning",
        "Logs of some ranks are missing",
        f"{len(missing)} of {run.size} ranks left no log here: {ranks_in_words(missing)}.",
        "Collect the logs of all hosts into one folder. Until then, waiting for the missing ranks "
        "counts as allreduce.",
    )


def host_stamps_only(records: Records) -> Iterator[Finding]:
    """Find runs that recorded only the start and end of steps."""
    timestamps = records.run.fact("stamps") or {}
    reason = timestamps.get("reason")
    if reason:
        recorded = (
            "the start of every step, the arrival of its batch and its end"
            if "data" in timestamps.get("placed", ())
            else "the start and end of every step"
        )
        yield Finding(
            "host_stamps_only",
            "warning",
            "Stages were not measured",
            f"Only {recorded} were recorded: {reason}.",
            "To see the stages, record a few hundred steps without it, if your framework can. Step "
            "times are correct either way.",
        )


def not_ended(records: Records) -> Iterator[Finding]:
    """Find logs without an end."""
    run = records.run
    if run.status == "completed":
        return
    last = run.last_logs
    open_ranks = [rank for rank, log in last.items() if not log.ended]
    yield Finding(
        "not_ended",
        "info",
        "Some logs have no end",
        f"{counted(len(open_ranks), 'log')} of {len(last)}, {ranks_in_words(open_ranks)}: still "
        "training, or killed.",
        "All rows flushed before then are complete.",
    )


def no_baseline(records: Records) -> Iterator[Finding]:
    """Find runs that are not compared with a synthetic baseline."""
    if not records.has_baseline and not records.run.synthetic:
        yield Finding(
            "no_baseline",
            "info",
            "No synthetic baseline",
            "Input stall and extra work between steps are compared with assumed values.",
            "Run the same job once on synthetic_like(data) with StepLogger(…, synthetic=True), "
            "and pass it with --baseline.",
        )
