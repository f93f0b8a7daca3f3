"""Describe the whole job: its time, ranks, steps, events and generations."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from stallscope.analysis import ENTRIES, Analysis
from stallscope.analysis.findings.job_events import FAILURES
from stallscope.analysis.ledger.epoch_ledger import EpochTime
from stallscope.analysis.ledger.job_time import LOST, PARTS, Goodput
from stallscope.analysis.result import GenerationSummary
from stallscope.formatting.lists import counted, joined, listed
from stallscope.formatting.numbers import (
    NOT_MEASURED,
    Interval,
    amount,
    percent,
    plus_minus,
    rate,
)
from stallscope.formatting.plain import plain
from stallscope.formatting.sums import SumColumn
from stallscope.run import Event, Run

#: Parts of the job's time.
JOB_PARTS = PARTS
#: Parts that most jobs do not have.
RARE_PARTS = ("restart", "repeated", "stopped", "unrecorded")
# Steps that count come first, then the rest of the job.
_GOODPUT = (*ENTRIES, *(name for name in PARTS if name in (*LOST, "unrecorded")))
#: Above a list of events.
TITLE = "Events from other logs"
#: The time of an event without a known time.
NOT_KNOWN = "not known"
# Events that stop a job or take ranks from it, and events that slow it.
_TROUBLE = (
    {
        *("stall_shutdown", "resets_exceeded", "stage_failed"),
        *(kind for kind, failure in FAILURES.items() if failure.is_fault),
    },
    {
        *(kind for kind, failure in FAILURES.items() if not failure.is_fault),
        *("stall", "collective_stall", "host_blacklisted", "workers_reset"),
        *("executor_lost", "task_failed"),
    },
    {"cache_eviction"},
)
_LONGEST_WORDS = 300
# Times of events are not shown more precisely.
_PRECISE_NS = 10**6

_ENDS = {
    "completed": "completed",
    "resized": "then the number of ranks changed",
    "restarted": "then the ranks restarted",
    "killed": "then a rank ended without closing its log",
    "stopped": "and hangs",
}


def parts_of_jobs(analyses: Sequence[Analysis]) -> list[str]:
    """List the parts of these jobs' time by name, without rare ones that none of them has."""
    return [
        name
        for name in JOB_PARTS
        if name not in RARE_PARTS or any(getattr(analysis.job, name) for analysis in analyses)
    ]


def job_column(analysis: Analysis) -> SumColumn:
    """Round the parts of the job so that they add up to it: a part per name of JOB_PARTS.

    Where parts are known, they have one digit more than the total alone: the small ones matter.
    """
    job, finer = analysis.job, int(analysis.ledger is not None)
    parts = [getattr(job, name) for name in JOB_PARTS]
    return SumColumn.of(parts, job.total, unit="s", finer=finer)


def job_texts(analysis: Analysis) -> dict[str, str]:
    """Write the parts of the job's time by name; not measured if steps have no stages."""
    if analysis.ledger is None:
        return dict.fromkeys(JOB_PARTS, NOT_MEASURED)
    printed = job_column(analysis)
    return dict(zip(JOB_PARTS, map(printed.amount, printed.parts), strict=True))


def goodput_parts(analysis: Analysis) -> list[tuple[str, float]]:
    """Return the seconds of compute, of each cause of a loss, and of the time that no log recorded.

    Causes of no loss are left out, and all where stages are unknown.
    """
    goodput = analysis.goodput
    if goodput is None:
        return []
    unrecorded = analysis.job.unrecorded
    spent = {**goodput.lost_s, "compute": goodput.compute_s, "unrecorded": unrecorded}
    return [(name, spent[name]) for name in _GOODPUT if spent[name] or name == "compute"]


def goodput_column(analysis: Analysis) -> SumColumn:
    """Round the parts of ``goodput_parts`` so that they add up; empty where stages are unknown."""
    parts = [value for _, value in goodput_parts(analysis)]
    return SumColumn.of(parts, sum(parts), unit="s", finer=1)


def goodput_sentence(goodput: Goodput) -> str:
    """Write the shares of steps that count, and of their compute."""
    return (
        f"Goodput {percent(goodput.fraction)}: this share of ranks × time went into steps that count, "
        f"and {percent(goodput.compute_fraction)} into their compute."
    )


def checkpoint_sentence(analysis: Analysis) -> str:
    """Say which ranks checkpoints blocked, and who waited for them; empty without checkpoints."""
    most = max((rank.checkpoint_s for rank in analysis.ranks), default=0.0)
    if not most:
        return ""
    writers = [rank.rank for rank in analysis.ranks if rank.checkpoint_s > most / 2]
    blocked = f"Checkpoints blocked {listed('rank', writers)} for {amount(most, 's')}"
    waiting = len(analysis.ranks) - len(writers)
    return f"{blocked}; {counted(waiting, 'other rank')} waited." if waiting else f"{blocked}."


def throughput(analysis: Analysis) -> str:
    """Write the throughput in samples, and in tokens where batches tell them; empty if unknown."""
    samples, tokens = analysis.samples_per_second, analysis.tokens_per_second
    rates = [] if samples is None else [rate(samples)]
    if tokens is not None:
        rates.append(f"{plus_minus(tokens.value, tokens.ci95)} tokens/s")
    return ", ".join(rates)


def epoch_figures(analysis: Analysis) -> list[tuple[str, str]]:
    """Return means and throughput with their names; empty for a run with steps."""
    known = analysis.epoch_times
    if known is None:
        return []
    step = _mean(known.step_ms, known.step_precision_ms, "ms")
    several = len({epoch.fit for epoch in known.epochs}) > 1
    written = [
        (
            f"Mean epoch{', last training' if several else ''}",
            _mean(known.mean_s, known.precision_s, "s"),
        ),
        # The series of step times has both, without warm-up.
        ("Mean step", step if analysis.printed is None else ""),
        ("Between steps of the metric", _mean(known.metric_step_ms, None, "ms")),
        (
            "Throughput per rank",
            ""
            if known.samples_per_second_per_rank is None
            else rate(known.samples_per_second_per_rank),
        ),
        ("Precision", known.precision if analysis.printed is None else ""),
    ]
    return [(title, text) for title, text in written if text]


def duration(epoch: EpochTime) -> str:
    """Write a duration: 17.0 ± 0.5 s."""
    return amount(epoch.s, "s", _around(epoch.s, epoch.precision_s))


def job_total(analysis: Analysis) -> str:
    """Write the whole job's time; logs of epochs alone do not cover all of it."""
    job = job_column(analysis)
    total = job.amount(job.total)
    known = analysis.epoch_times
    if known is None or "end" in analysis.run.intervals["kind"].to_pylist():
        return total
    if analysis.printed is None and not known.epochs:
        return "not known"
    # Without timestamps nothing tells how long it took to start again.
    is_timed = analysis.run.fact("stamp_precision_ms") is not None
    restarts = len(analysis.run.fact("steps_after_restart") or ()) if is_timed else 0
    what = "parts of the log" if analysis.run.fact("has_parts") else "starts"
    between = f", with the time between {restarts + 1:,} {what}" if restarts else ""
    return f"at least {total}{between}"


def ranks_and_hosts(analysis: Analysis) -> str:
    """Write ``4 ranks on 2 hosts``, or ``2 to 3 ranks on 3 hosts`` where their number changed.

    Logs of epochs name no hosts, and seldom the number of ranks.
    """
    run = analysis.run
    if analysis.epoch_times is None:
        sizes = [generation.size for generation in analysis.generations] or [run.size]
        fewest = "" if min(sizes) == max(sizes) else f"{min(sizes):,} to "
        return f"{fewest}{counted(max(sizes), 'rank')} on {counted(len(run.hosts), 'host')}"
    return "ranks not known" if run.fact("size") is None else number_of_ranks(run)


def number_of_ranks(run: Run) -> str:
    """Write ``4 ranks``, ``at least 4 ranks``, or that it is not known how many trained."""
    if run.known_size is None:
        return "ranks not known"
    return f"{'at least ' if run.size_is_least else ''}{counted(run.known_size, 'rank')}"


def steps_and_epochs(analysis: Analysis) -> str:
    """Write ``200 steps in 2 epochs``; ``2 epochs`` if their steps are unknown."""
    epochs = counted(analysis.epochs, "epoch")
    if analysis.printed is not None:
        steps = counted(analysis.printed.steps, "step")
        return f"{steps} in {epochs}" if analysis.epochs else steps
    if analysis.epoch_times is not None:
        return epochs if analysis.epochs else "no separate epochs"
    return f"{counted(analysis.steps, 'step')} in {epochs}"


def _mean(value: float | None, half: float | None, unit: str) -> str:
    if value is None:
        return ""
    return amount(value, unit, None if half is None else _around(value, half))


def _around(value: float, half: float) -> Interval:
    return value - half, value + half


# -- Describe events from other logs: what happened, to which ranks, and when ---------------------


def what(event: Event) -> str:
    """Say what happened, on one line."""
    return plain(event.what)[:_LONGEST_WORDS]


def who(event: Event) -> str:
    """Name the ranks and hosts of an event; empty if it names none."""
    ranks = listed("rank", event.ranks) if event.ranks else ""
    hosts = joined([plain(host) for host in event.hosts]) if event.hosts else ""
    return ", ".join(filter(None, [ranks, hosts]))


def since_start_s(event: Event, run: Run) -> float | None:
    """Return seconds since the first log's start, by wall clocks; None if that is unknown.

    A message among the lines of a printed log has their clock, also where its zone is unknown.
    """
    if event.wall_ns is not None and run.started_at is not None:
        return event.wall_ns / 1e9 - run.started_at.timestamp()
    starts = [log.facts.get("began_local") for log in run.logs if log.path == event.where]
    began = [datetime.fromisoformat(start) for start in starts if isinstance(start, str)]
    if event.local_ns is None or not began:
        return None
    return event.local_ns / 1e9 - min(began).replace(tzinfo=UTC).timestamp()


def when(event: Event, run: Run) -> str:
    """Say how long after the run's start an event was, and how certain that is."""
    seconds = since_start_s(event, run)
    if seconds is None:
        return NOT_KNOWN
    side = "after" if seconds >= 0 else "before"
    at = f"{amount(abs(seconds) * 1e3, 'ms')} {side} the start"
    if event.uncertainty_ns < _PRECISE_NS:
        return at
    return f"{at}, or up to {amount(event.uncertainty_ns / 1e6, 'ms')} later"


def worst(events: Sequence[Event], most: int) -> list[Event]:
    """Choose at most this many events, trouble first, and sort them by time; unknown times last."""
    by_trouble = sorted(range(len(events)), key=lambda at: (_trouble(events[at]), _at(events[at])))
    kept = [events[at] for at in by_trouble[:most]]
    return sorted(kept, key=_at)


def _trouble(event: Event) -> int:
    return next((at for at, kinds in enumerate(_TROUBLE) if event.kind in kinds), len(_TROUBLE))


def _at(event: Event) -> tuple[bool, int]:
    return event.wall_ns is None, event.wall_ns or 0


# -- Describe the generations of a run: the ranks that trained together between two changes -------


def generation_sentence(generation: GenerationSummary) -> str:
    """Write a generation's ranks, steps, time per step and end."""
    ranks = f"{counted(generation.size, 'rank')} on {counted(len(generation.host_names), 'host')}"
    parts = [f"{ranks}, {counted(generation.steps, 'step')}"]
    if generation.repeated_steps:
        parts.append(f"{generation.repeated_steps:,} of them trained again later")
    if generation.step is not None:
        parts.append(f"{amount(generation.step.mean, 'ms', generation.step.ci95)} per step")
    if generation.ended_by is not None:
        parts.append(_ENDS[generation.ended_by])
    return f"Generation {generation.number}: {', '.join(parts)}"
