"""Detect that a job hangs, and find the ranks that the others wait for.

A collective needs all ranks. So ranks with ready gradients wait, as do ranks with another collective on
their stack; ranks that are further behind are missing. If all ranks wait in the same reduction, the logs
name none of them; dumps of PyTorch's Flight Recorder may.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc

from stallscope.arrays import arrow
from stallscope.arrays.pivot import by_parts
from stallscope.collector.recorder.hangs import Frame, overdue_ns
from stallscope.formatting.lists import capitalised, listed
from stallscope.run import Event, Log, Run
from stallscope.words import HangPlace

from ..findings.job_events import FAILURES, timed_out
from ..gains.what_if import Advice, Bottleneck
from .positions import (
    OverduePosition,
    evidence,
    exits_of,
    has_stopped,
    missing_and_waiting,
    process_has_ended,
    stalled_ranks,
)

# The first steps are traced and compiled, before the usual time of a step is known.
_LONGEST_START_S = 300.0
# Validation and checkpoints may take long.
_LONGEST_PAUSE_S = 600.0
# Work between steps may be a validation that the program does not announce. Its stack changes.
_STILL_S = 30.0
# A rank that is alive reports its step by then.
_SILENT_S = 10.0
# Ranks report their steps at most this long after each other: recorders write once a second.
_REPORTED_S = 2.0
# Messages that are quoted about the end of a job.
_MOST_MESSAGES = 3
# Timestamps of lines without fractions may be a second early.
_CLOCK_NS = 10**9


@dataclass(frozen=True)
class StoppedRank:
    """A rank that the others wait for."""

    rank: int
    host: str
    #: ``allreduce`` or ``collective`` if it waits elsewhere than the others; None if its log only shows
    #: its last step.
    stage: HangPlace | None
    #: ``validation`` or ``checkpoint`` if it runs one.
    pause: str | None
    #: Its training thread's stack, the innermost frame first.
    stack: tuple[Frame, ...]
    #: The innermost frame of the user's own code, in any thread.
    where: Frame | None


@dataclass(frozen=True)
class Stopped:
    """A job that hangs."""

    #: When the last rank made progress, in UTC; None if unknown.
    since: datetime | None
    #: How long it had hung when a rank was last seen.
    seconds: float
    step: int
    #: The ranks that have not arrived; empty if all ranks wait.
    ranks: tuple[StoppedRank, ...]
    waiting: tuple[int, ...]
    evidence: str
    #: The ranks that have not reported their step yet; they may within seconds.
    unreported: tuple[int, ...] = ()
    #: What to do about a message that tells why the job ended; None if there is none.
    advice: Advice | None = None
    #: Whether the job failed by itself; a scheduler or a user may have ended it.
    is_fault: bool = True


def find_stopped(run: Run) -> Stopped | None:
    """Return how a run hangs; None if it makes progress, has ended, or was not seen waiting."""
    logs = list(run.last_logs.values())
    seen = [rank for rank in map(OverduePosition.of, logs) if rank is not None]
    if not seen:
        return (_died(run, logs) if run.rows else None) or _ended(run, logs)
    missing, waiting = missing_and_waiting(seen)
    others = _unreported(logs, seen)
    going_on = [log for log in others if _goes_on(log, seen)]
    lasting = max(rank.seconds for rank in seen) >= _SILENT_S
    # Ranks that have ended their training are missing only where others wait for them.
    absent = [log for log in others if log not in going_on and (waiting or not log.ended)]
    silent = absent if lasting else []
    if going_on and not missing and not silent:
        return None
    unreported = [] if lasting else [log for log in others if not log.ended]
    if unreported and not _have_had_time(seen):
        return None
    if not _is_a_stop(seen, missing, silent):
        return None
    latest = max(seen, key=lambda rank: rank.since_ns)
    ranks = (*map(_of_position, missing), *map(_of_silent, silent))
    if not ranks:
        named = stalled_ranks(run)
        ranks = tuple(_of_named(rank) for rank in seen if rank.log.rank in named)
    missing_there = {rank.rank for rank in ranks}
    sentences = evidence(
        run, latest.seconds, latest.step, missing, silent, unreported, waiting, seen
    )
    return Stopped(
        since=datetime.fromtimestamp(latest.since_ns / 1e9, tz=UTC),
        seconds=latest.seconds,
        step=min(rank.step for rank in seen),
        ranks=tuple(sorted(ranks, key=lambda rank: rank.rank)),
        waiting=tuple(sorted({rank.log.rank for rank in waiting} - missing_there)),
        evidence=" ".join(sentences),
        unreported=tuple(sorted(log.rank for log in unreported)),
    )


def _died(run: Run, logs: Sequence[Log]) -> Stopped | None:
    """Describe a job that ended because a rank died; None if no rank is known to have died.

    Either the launcher reports the rank, or its process is gone while another rank's process runs or has
    closed its log. If all processes ended at once, as when a user stops the job, none is named.
    """
    still_open = [log for log in logs if not log.ended]
    exits = exits_of(run)
    by_launcher = [log for log in still_open if log.rank in exits]
    ended = [log for log in still_open if process_has_ended(log)]
    dead = by_launcher or (ended if len(ended) < len(logs) else [])
    if not dead:
        return None
    ranks = tuple(sorted(map(_of_silent, dead), key=lambda rank: rank.rank))
    return Stopped(
        since=None,
        seconds=0.0,
        step=_next_step(run),
        ranks=ranks,
        waiting=(),
        evidence=" ".join(has_stopped(log, exits) for log in dead),
    )


def _ended(run: Run, logs: Sequence[Log]) -> Stopped | None:
    """Describe a job that ended with a message, and no step after it; None if there is none."""
    if all(log.ended for log in logs):
        return None
    order = list(FAILURES)
    events = [event for event in run.events if event.kind in FAILURES]
    last = _last_ends(run) if events else {}
    events = [event for event in events if _is_last(event, run, last)]
    events.sort(key=lambda event: order.index(event.kind))
    if not events:
        return None
    cause = events[0]
    timeouts = [event for event in events if event.kind == "collective_timeout"]
    timeout = timed_out(run, timeouts) if timeouts else None
    ranks = run.ranks_of(cause)
    sentences = []
    for kind, group in groupby(events, key=lambda event: event.kind):
        if kind == "collective_timeout" and timeout is not None:
            sentences.append(timeout.evidence)
            ranks = timeout.missing if cause.kind == kind else ranks
        else:
            sentences += [f"{_with_ranks(event)}." for event in group]
    hosts = {log.rank: log.host for log in run.logs}
    host = cause.hosts[0] if len(cause.hosts) == 1 else "unknown host"
    return Stopped(
        since=None
        if cause.wall_ns is None
        else datetime.fromtimestamp((cause.wall_ns - cause.waited_ns) / 1e9, tz=UTC),
        seconds=cause.waited_ns / 1e9,
        step=_next_step(run),
        ranks=tuple(
            StoppedRank(rank, hosts.get(rank, host), None, None, (), None) for rank in ranks
        ),
        waiting=() if timeout is None else tuple(sorted({*timeout.waiting} - {*ranks})),
        evidence=" ".join(sentences[:_MOST_MESSAGES]),
        advice=Advice(FAILURES[cause.kind].advice),
        is_fault=FAILURES[cause.kind].is_fault,
    )


def _with_ranks(event: Event) -> str:
    """Write a message with its ranks, unless it names them."""
    names = listed("rank", event.ranks) if event.ranks else ""
    of_ranks = f" ({names})" if names and names not in event.what else ""
    return f"{capitalised(event.what)}{of_ranks}"


def _is_last(event: Event, run: Run, last: Mapping[int, int]) -> bool:
    """Whether no step of a run follows an event.

    Output of several processes is mixed in one file, so timestamps count more than the order of lines.

    Args:
        event: the event.
        run: the run.
        last: see ``_last_ends``.
    """
    of_lines = not run.rows
    if of_lines and not event.followed and event.where in {log.path for log in run.logs}:
        return True
    ends = [
        moment
        for index, end in last.items()
        if (moment := _on_its_clock(event, run, run.logs[index], end)) is not None
    ]
    if not ends:
        return of_lines and not event.followed
    at = event.local_ns if event.wall_ns is None else event.wall_ns
    return at is not None and at + event.uncertainty_ns + _CLOCK_NS >= max(ends)


def _last_ends(run: Run) -> dict[int, int]:
    """Return when the last step or interval of each log ended, on the log's clock, by its number."""
    ends: dict[int, int] = {}
    for table in (run.steps, run.intervals):
        latest = table.group_by("log").aggregate([("end", "max")])
        pairs = zip(latest["log"].to_pylist(), latest["end_max"].to_pylist(), strict=True)
        for log, end in pairs:
            if end is not None:
                ends[log] = max(int(end), ends.get(log, int(end)))
    return ends


def _on_its_clock(event: Event, run: Run, log: Log, ns: int) -> int | None:
    """Convert a log's time to the clock of an event's time; None if nothing ties them."""
    if event.wall_ns is not None and log.has_wall_clock:
        return ns + run.wall_offset(log)
    began = log.facts.get("began_local")
    if event.local_ns is None or not isinstance(began, str):
        return None
    zero = datetime.fromisoformat(began).replace(tzinfo=UTC)
    return ns + int(zero.timestamp()) * 10**9


def _next_step(run: Run) -> int:
    """Return the step after the last one that any rank of the last generation recorded."""
    last = max(log.generation for log in run.logs)
    if not run.rows:
        return int(pc.max(run.intervals["step"]).as_py() or 0)
    return 1 + max(by_parts(run.steps, ("generation", "step"), _last_step, last), default=-1)


def _last_step(part: pa.Table, generation: int) -> int:
    """Kernel: return the last step of a generation; -1 without one."""
    last = pc.max(part.filter(arrow.equal(part["generation"], generation))["step"]).as_py()
    return -1 if last is None else int(last)


def stopped_verdict(stopped: Stopped) -> Bottleneck:
    """Return the verdict on a run that hangs."""
    stages = {rank.stage for rank in stopped.ranks}
    stage = stages.pop() if len(stages) == 1 else None
    return Bottleneck(
        "stopped",
        stage if stopped.ranks else "network" if stopped.waiting else None,
        stopped.evidence,
        ranks=tuple(rank.rank for rank in stopped.ranks),
        advice=(_advice(stopped),),
        fault=True,
    )


def _advice(stopped: Stopped) -> Advice:
    if stopped.advice is not None:
        return stopped.advice
    described = [rank.rank for rank in stopped.ranks if rank.stage is not None or rank.stack]
    if described:
        return Advice(
            f"The stacks of all threads of {listed('rank', described)} are in files that end with "
            "`.stacks.txt`, next to the logs, once a step takes 30 seconds"
        )
    if stopped.ranks:
        return Advice(
            "Look at the end of the output of these ranks, and at the memory of their hosts"
        )
    return Advice(
        "Look at the network between the hosts, and at what the reduction prints",
        detail=": start the job with `HOROVOD_LOG_LEVEL=info`, or with `NCCL_DEBUG=INFO` on GPUs",
    )


def _unreported(logs: Sequence[Log], seen: Sequence[OverduePosition]) -> list[Log]:
    """Return the logs without a report of their step."""
    described = {rank.log.rank for rank in seen}
    return [log for log in logs if log.rank not in described]


def _goes_on(log: Log, seen: Sequence[OverduePosition]) -> bool:
    """Whether a rank has just continued, so that the others are about to: they write at other times.

    The rank may have ended since.
    """
    went_on = log.facts.get("went_on_us")
    if not isinstance(went_on, int):
        return False
    at_ns = log.anchor + log.wall_minus_monotonic + went_on * 1000
    last_seen_ns = max(rank.since_ns + int(rank.seconds * 1e9) for rank in seen)
    later = all(rank.since_ns < at_ns for rank in seen)
    return later and last_seen_ns - at_ns < int(_SILENT_S * 1e9)


def _have_had_time(seen: Sequence[OverduePosition]) -> bool:
    """Whether the other ranks would have reported their work by now, such as a checkpoint."""
    return any(
        rank.usual_ns is not None and rank.seconds >= overdue_ns(rank.usual_ns) / 1e9 + _REPORTED_S
        for rank in seen
    )


def _is_a_stop(
    seen: Sequence[OverduePosition], missing: Sequence[OverduePosition], silent: Sequence[Log]
) -> bool:
    """Whether the job hangs, and is not just starting, validating or writing a checkpoint."""
    seconds = max(rank.seconds for rank in seen)
    if all(rank.usual_ns is None for rank in seen) and seconds < _LONGEST_START_S:
        return False
    if silent or seconds >= _LONGEST_PAUSE_S:
        return True
    holding = missing or [rank for rank in seen if not rank.waits_in_reduction]
    if holding and all(rank.pause for rank in holding):
        return False
    return any(rank.waits_in_reduction for rank in seen) or all(map(_stands_still, holding))


def _stands_still(rank: OverduePosition) -> bool:
    """Whether a rank is within a step, or has been at one place between two steps for long."""
    return not rank.is_between_steps or (rank.still_seconds or 0.0) >= _STILL_S


def _of_position(rank: OverduePosition) -> StoppedRank:
    stage: HangPlace = rank.stage
    if rank.waits_in is not None:
        stage = "allreduce" if rank.waits_in_reduction else "collective"
    return StoppedRank(
        rank.log.rank, rank.log.host, stage, rank.pause, rank.stack, rank.users_frame
    )


def _of_named(rank: OverduePosition) -> StoppedRank:
    # By its log the rank waits like the others, but the Flight Recorder names it as missing.
    return replace(_of_position(rank), stage=None, pause=None)


def _of_silent(log: Log) -> StoppedRank:
    return StoppedRank(log.rank, log.host, None, None, (), None)
