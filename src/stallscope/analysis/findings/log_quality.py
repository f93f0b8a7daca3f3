"""Find gaps in the recording: missing ranks and stages, suspended processes, clocks that jump."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from stallscope.formatting.lists import capitalised, counted, ranks_in_words
from stallscope.formatting.numbers import amount
from stallscope.run import Log

from ..gains.what_if import Advice
from ..steps.clocks import ClockSummary
from .finding import Finding, Records

# The most suspensions that are quoted with their times.
_MOST_QUOTED = 3

# Below this share of steps, timestamps delayed by busy cores are the more likely reason.
_WORTH_A_FINDING = 0.02
_MOST_JUMPS = 3


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
            (
                Advice(
                    "Add StepLogger to the callbacks of every rank, and collect the logs of all hosts"
                ),
            ),
        )
        return
    yield Finding(
        "missing_ranks",
        "warning",
        "Logs of some ranks are missing",
        f"{len(missing)} of {run.size} ranks left no log here: {ranks_in_words(missing)}.",
        (
            Advice(
                "Collect the logs of all hosts into one folder",
                note="Until then, waiting for the missing ranks counts as allreduce.",
            ),
        ),
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
            (
                Advice(
                    "To see the stages, record a few hundred steps without it, if your framework can",
                    note="Step times are correct either way.",
                ),
            ),
        )


def input_probe_refused(records: Records) -> Iterator[Finding]:
    """Find input probes that were asked for, and that the recorder refused."""
    ranks: dict[str, list[int]] = {}
    for rank, log in sorted(records.run.last_logs.items()):
        if log.refused_probe and not log.input_probes:
            ranks.setdefault(log.refused_probe, []).append(rank)
    if ranks:
        reasons = "; ".join(f"{ranks_in_words(of)}: {why}" for why, of in ranks.items())
        yield Finding(
            "input_probe_refused",
            "info",
            "Input was not probed",
            f"Batches could not be fetched ahead: {reasons}.",
            (Advice("Measure the loader alone", "print(measure_input(data))"),),
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
        (Advice("All rows flushed before then are complete"),),
    )


def no_baseline(records: Records) -> Iterator[Finding]:
    """Find runs that are not compared with a synthetic baseline."""
    if not records.has_baseline and not records.run.synthetic:
        compared = "Input stall and extra work between steps are compared with assumed values."
        if records.has_probe:
            compared = (
                "The gain of faster input is measured; that of less work between steps is not."
            )
        yield Finding(
            "no_baseline",
            "info",
            "No synthetic baseline",
            compared,
            (
                Advice(
                    "Run the same job once on synthetic_like(data) with StepLogger(…, synthetic=True), "
                    "and pass it with --baseline"
                ),
            ),
        )


# -- Report processes that did not run for seconds, as noticed by their recorders -----------------


@dataclass(frozen=True)
class _Suspension:
    """A time in which a rank's process did not run: wall times, nanoseconds."""

    rank: int
    host: str
    since: int
    until: int

    @property
    def seconds(self) -> float:
        return (self.until - self.since) / 1e9

    @property
    def sentence(self) -> str:
        since, until = (datetime.fromtimestamp(ns / 1e9, tz=UTC) for ns in (self.since, self.until))
        return (
            f"rank {self.rank} on {self.host} did not run for {self.seconds:,.0f} s, from "
            f"{since:%Y-%m-%d %H:%M:%S} to {until:%H:%M:%S} UTC"
        )


def processes_suspended(records: Records) -> Iterator[Finding]:
    """Report suspensions of ranks, the longest first."""
    suspensions = [suspension for log in records.run.logs for suspension in _suspensions(log)]
    if not suspensions:
        return
    suspensions.sort(key=lambda suspension: (-suspension.seconds, suspension.rank))
    ranks = sorted({suspension.rank for suspension in suspensions})
    quoted = "; ".join(suspension.sentence for suspension in suspensions[:_MOST_QUOTED])
    more = len(suspensions) - _MOST_QUOTED
    rest = f"; and {counted(more, 'other time')}" if more > 0 else ""
    yield Finding(
        "processes_suspended",
        "warning",
        f"{capitalised(ranks_in_words(ranks))} did not run for a while",
        f"{capitalised(quoted)}{rest}.",
        (
            Advice(
                "A process is suspended by a debugger, by SIGSTOP (Ctrl-Z), by its scheduler, or with "
                "its machine",
                note="A library that holds Python's interpreter lock looks the same.",
            ),
        ),
    )


def _suspensions(log: Log) -> Iterator[_Suspension]:
    """Yield the suspensions of a log; none if its facts are damaged."""
    recorded = log.facts.get("suspended")
    for record in recorded if isinstance(recorded, list) else ():
        since, until = (
            (record.get("since_us"), record.get("until_us"))
            if isinstance(record, Mapping)
            else (0, 0)
        )
        if isinstance(since, int) and isinstance(until, int) and since < until:
            zero = log.anchor + log.wall_minus_monotonic
            yield _Suspension(log.rank, log.host, zero + since * 1000, zero + until * 1000)


# -- Find clocks that were set, and timestamps that contradict each other -------------------------


def clock_findings(clocks: ClockSummary) -> Iterator[Finding]:
    """Find problems with clocks that limit comparisons between hosts."""
    if clocks.jumps:
        shown = ", ".join(
            f"{clock} by {'+' if ms > 0 else '−'}{amount(abs(ms), 'ms')} at step {step:,}"
            for clock, step, ms in clocks.jumps[:_MOST_JUMPS]
        )
        more = len(clocks.jumps) - _MOST_JUMPS
        yield Finding(
            "clock_jumped",
            "warning",
            "A host's clock was set while the job ran",
            f"{shown}{f' and {more} more times' if more > 0 else ''}. The step in which it happened "
            "is left out for that host; clocks are aligned separately before and after it.",
            (
                Advice(
                    "check the host's time service",
                    reason="Either a virtual machine was suspended, or the clock is not monotonic:",
                ),
            ),
        )
    if clocks.violations > _WORTH_A_FINDING:
        yield Finding(
            "causality_broken",
            "warning",
            "Timestamps contradict each other",
            f"In {clocks.violations:.0%} of steps a rank completed the allreduce before the last rank "
            "was ready, which is impossible: clocks or timestamps are off by more than their "
            "uncertainty.",
            (
                Advice(
                    "Trust waiting and allreduce only where they exceed that error",
                    note="The usual cause is overloaded cores, which delay timestamps.",
                ),
            ),
        )
    if clocks.method == "every step":
        yield Finding(
            "clocks_unsteady",
            "warning",
            "The hosts' clocks could not be aligned over time",
            "Offsets estimated from allreduce completions violated causality too often. Instead, "
            "completions are assumed to be simultaneous in every step, which needs no clocks.",
            (Advice("Do not trust small differences between hosts in this run"),),
        )
