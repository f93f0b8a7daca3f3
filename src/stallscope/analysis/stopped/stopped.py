"""Find out whether a job stands still, which ranks the others wait for, and where those are.

A collective needs all ranks. So ranks whose gradients are ready wait, and those that have come less far
are missing. Where all ranks wait in the same reduction, the logs name none of them; dumps of PyTorch's
Flight Recorder may.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from stallscope.arrays.pivot import by_parts
from stallscope.collector.recorder.stacks import Frame, is_users
from stallscope.formatting.frames import in_frame
from stallscope.formatting.lists import capitalised, listed
from stallscope.run import Event, Log, Run

from ..gains.bottleneck import Bottleneck
from .processes import has_gone

# The timestamps of a step in order, and what a rank is doing once it has reached each of them.
_REACHED = ("end", "begin", "data", "ready", "reduced")
_STAGES = ("other", "input", "compute", "allreduce", "other")
_READY = _REACHED.index("ready")
_DOING = {
    "input": "waits for its batch",
    "compute": "has its batch, and its gradients are not ready",
    "other": "is between two steps",
    "allreduce": "waits in the allreduce",
}
# Before the usual time of a step is known, steps are traced and compiled.
_LONGEST_START_S = 300.0
# Validation and checkpoints may take long.
_LONGEST_PAUSE_S = 600.0
# A rank that lives describes its step by then.
_SILENT_S = 10.0
# Collectives of PyTorch's Flight Recorder that are quoted.
_MOST_STALLS = 2
# Launchers end the other ranks, and users whole jobs, with SIGTERM: such a rank did not fail.
_TERMINATED = (143, -15)
_DEBUGGERS = ("pdb", "bdb", "pydevd", "debugpy", "ipdb")


@dataclass(frozen=True)
class StoppedRank:
    """A rank that the others wait for."""

    rank: int
    host: str
    #: ``input``, ``compute`` or ``other``; None if its log shows no more than its last step.
    stage: str | None
    #: ``validation`` or ``checkpoint`` if it runs one.
    pause: str | None
    #: Its training thread's stack, the innermost frame first.
    stack: tuple[Frame, ...]
    #: The innermost frame of the user's own code, in any thread.
    where: Frame | None


@dataclass(frozen=True)
class Stopped:
    """A job that stands still."""

    #: When the last rank made progress, in UTC; None if unknown.
    since: datetime | None
    #: How long it had been standing still when a rank was last seen.
    seconds: float
    step: int
    #: The ranks that have not arrived; empty if all ranks wait.
    ranks: tuple[StoppedRank, ...]
    waiting: tuple[int, ...]
    evidence: str
    #: The ranks that have not described their step yet; they may within seconds.
    undescribed: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Rank:
    """The position of one rank whose step is overdue."""

    log: Log
    step: int
    reached: int
    since_ns: int
    seconds: float
    usual_known: bool
    pause: str | None
    stack: tuple[Frame, ...]
    other_threads: tuple[tuple[Frame, ...], ...]

    @classmethod
    def of(cls, log: Log) -> _Rank | None:
        """Read the position; None if no step is overdue, or if the log's facts are damaged."""
        fact = log.facts.get("in_flight")
        if log.ended or not isinstance(fact, Mapping):
            return None
        try:
            since, seen = int(fact["since_us"]), int(fact["seen_us"])
            return cls(
                log,
                int(fact["step"]),
                _REACHED.index(fact["reached"]),
                log.anchor + log.wall_minus_monotonic + since * 1000,
                max(0.0, (seen - since) / 1e6),
                fact.get("usual_us") is not None,
                fact.get("pause") if fact.get("pause") in ("validation", "checkpoint") else None,
                _frames(fact.get("stack")),
                tuple(map(_frames, fact.get("other_threads") or ())),
            )
        except (KeyError, TypeError, ValueError):
            return None

    @property
    def arrived(self) -> tuple[int, int]:
        """Return what orders ranks by how far they have come."""
        # A rank that has reduced its gradients comes no further before the next step.
        return (self.step + 1, 0) if self.reached > _READY else (self.step, self.reached)

    @property
    def waits(self) -> bool:
        return self.reached == _READY


def find_stopped(run: Run) -> Stopped | None:
    """Return how a run stands still; None if it makes progress, has ended, or was not seen waiting."""
    logs = list(run.last_logs.values())
    seen = [rank for rank in map(_Rank.of, logs) if rank is not None]
    if not seen:
        return _died(run, logs)
    missing = _missing(seen)
    others = _undescribed(logs, seen)
    going_on = [log for log in others if _goes_on(log, seen)]
    lasting = max(rank.seconds for rank in seen) >= _SILENT_S
    silent = [log for log in others if log not in going_on] if lasting else []
    if going_on and not missing and not silent:
        return None
    undescribed = [] if lasting else [log for log in others if not log.ended]
    if not _is_a_stop(seen, missing, silent):
        return None
    latest = max(seen, key=lambda rank: rank.since_ns)
    ranks = (*map(_of_rank, missing), *map(_of_silent, silent))
    named = {rank for event in _collective_stalls(run)[:1] for rank in event.ranks}
    if not ranks:
        ranks = tuple(_of_named(rank) for rank in seen if rank.log.rank in named)
    missing_there = {rank.rank for rank in ranks}
    waiting = tuple(
        sorted(rank.log.rank for rank in seen if rank.waits and rank.log.rank not in missing_there)
    )
    return Stopped(
        since=datetime.fromtimestamp(latest.since_ns / 1e9, tz=UTC),
        seconds=latest.seconds,
        step=min(rank.step for rank in seen),
        ranks=tuple(sorted(ranks, key=lambda rank: rank.rank)),
        waiting=waiting,
        evidence=" ".join(_evidence(run, latest, ranks, silent, undescribed, waiting)),
        undescribed=tuple(sorted(log.rank for log in undescribed)),
    )


def _died(run: Run, logs: Sequence[Log]) -> Stopped | None:
    """Return how a job ended whose rank ended too early; None if no rank is known to have.

    A rank is known to have by its launcher's word; or by its process, where that of another rank goes
    on or closed its log. Where all processes ended at once, as when a user ends the job, none is named.
    """
    still_open = [log for log in logs if not log.ended]
    exits = _exits(run)
    by_launcher = [log for log in still_open if log.rank in exits]
    gone = [log for log in still_open if has_gone(log)]
    dead = by_launcher or (gone if len(gone) < len(logs) else [])
    if not dead:
        return None
    ranks = tuple(sorted(map(_of_silent, dead), key=lambda rank: rank.rank))
    return Stopped(
        since=None,
        seconds=0.0,
        step=_next_step(run),
        ranks=ranks,
        waiting=(),
        evidence=" ".join(_has_stopped(log, exits) for log in dead),
    )


def _next_step(run: Run) -> int:
    """Return the step after the last one that any rank of the last world recorded."""
    last = max(log.generation for log in run.logs)
    return 1 + max(by_parts(run.steps, _last_step, last), default=-1)


def _last_step(part: pa.Table, generation: int) -> int:
    """Kernel: return the last step of a generation; -1 without one."""
    own = pc.max(part.filter(pc.equal(part["generation"], generation))["step"]).as_py()
    return -1 if own is None else int(own)


def _exits(run: Run) -> dict[int, str]:
    """Return what the launcher says of the ranks that failed, by rank."""
    return {
        rank: event.what
        for event in run.events
        if event.kind == "rank_exited" and event.status not in _TERMINATED
        for rank in run.ranks_of(event)
    }


def stopped_verdict(stopped: Stopped) -> Bottleneck:
    """Return the verdict on a run that stands still."""
    stages = {rank.stage for rank in stopped.ranks}
    stage = stages.pop() if len(stages) == 1 else None
    return Bottleneck(
        "stopped",
        stage if stopped.ranks else "network",
        stopped.evidence,
        ranks=tuple(rank.rank for rank in stopped.ranks),
        advice=(_advice(stopped),),
        fault=True,
    )


def _advice(stopped: Stopped) -> str:
    described = [rank.rank for rank in stopped.ranks if rank.stage is not None or rank.stack]
    if described:
        return (
            f"The stacks of all threads of {listed('rank', described)} are in files that end with "
            "`.stacks.txt`, next to the logs, once a step takes 30 seconds."
        )
    if stopped.ranks:
        return "Look at the end of the output of these ranks, and at the memory of their hosts."
    return (
        "Look at the network between the hosts, and at what the reduction prints: start the job with "
        "`HOROVOD_LOG_LEVEL=info`, or with `NCCL_DEBUG=INFO` on GPUs."
    )


def _missing(seen: Sequence[_Rank]) -> list[_Rank]:
    """Return the ranks that have come less far than a rank that waits; without one, none is known."""
    waiting = [rank.arrived for rank in seen if rank.waits]
    return (
        [rank for rank in seen if not rank.waits and rank.arrived < max(waiting)] if waiting else []
    )


def _undescribed(logs: Sequence[Log], seen: Sequence[_Rank]) -> list[Log]:
    """Return the logs that describe no step while other ranks wait."""
    described = {rank.log.rank for rank in seen}
    return [log for log in logs if log.rank not in described]


def _goes_on(log: Log, seen: Sequence[_Rank]) -> bool:
    """Whether a rank has just gone on, so that the others are about to: they write at other moments.

    The rank may have ended since.
    """
    went_on = log.facts.get("went_on_us")
    if not isinstance(went_on, int):
        return False
    at_ns = log.anchor + log.wall_minus_monotonic + went_on * 1000
    last_seen_ns = max(rank.since_ns + int(rank.seconds * 1e9) for rank in seen)
    later = all(rank.since_ns < at_ns for rank in seen)
    return later and last_seen_ns - at_ns < int(_SILENT_S * 1e9)


def _is_a_stop(seen: Sequence[_Rank], missing: Sequence[_Rank], silent: Sequence[Log]) -> bool:
    """Whether it is more than the start of training, a validation or a checkpoint."""
    seconds = max(rank.seconds for rank in seen)
    if not any(rank.usual_known for rank in seen) and seconds < _LONGEST_START_S:
        return False
    holding = missing or [rank for rank in seen if not rank.waits]
    pauses = bool(holding) and not silent and all(rank.pause for rank in holding)
    return not pauses or seconds >= _LONGEST_PAUSE_S


def _of_rank(rank: _Rank) -> StoppedRank:
    return StoppedRank(
        rank.log.rank,
        rank.log.host,
        _STAGES[rank.reached],
        rank.pause,
        rank.stack,
        _users_frame((rank.stack, *rank.other_threads)),
    )


def _of_named(rank: _Rank) -> StoppedRank:
    # The log's stage is that of a rank that waits, which this one only seems to do.
    return replace(_of_rank(rank), stage=None, pause=None)


def _of_silent(log: Log) -> StoppedRank:
    return StoppedRank(log.rank, log.host, None, None, (), None)


def _evidence(
    run: Run,
    latest: _Rank,
    ranks: Sequence[StoppedRank],
    silent: Sequence[Log],
    undescribed: Sequence[Log],
    waiting: Sequence[int],
) -> Iterator[str]:
    yield f"No step has finished for {latest.seconds:,.0f} s, since step {latest.step}."
    for rank in ranks:
        if rank.stage is not None:
            yield _where(rank)
    exits = _exits(run) if silent else {}
    for log in silent:
        yield _has_stopped(log, exits)
    if undescribed:
        yield _has_not_reported(undescribed)
    if waiting and (ranks or undescribed):
        wait = "waits" if len(waiting) == 1 else "wait"
        yield f"{capitalised(listed('rank', waiting))} {wait} in the allreduce."
    elif waiting and not _collective_stalls(run):
        yield "All ranks with a log wait in the same allreduce: " + (
            f"{listed('rank', run.missing_ranks)} left no log here and may be missing there."
            if run.missing_ranks
            else "the network or the reduction itself stands still."
        )
    elif not ranks and not undescribed and not waiting:
        yield "The logs do not show which rank the others wait for."
    yield from _stall_reports(run)
    yield from _flight_recorder(run)


def _has_stopped(log: Log, exits: Mapping[int, str]) -> str:
    """Say of a log that shows nothing new how it ends, and what is known of its process.

    Args:
        exits: what the launcher says of the ranks that failed.
    """
    subject = f"The log of rank {log.rank} on {log.host}"
    if log.ended:
        return f"{subject} has ended its training."
    if log.rank in exits:
        return f"{subject} has stopped without a last line; its launcher says: {exits[log.rank]}."
    process = {
        None: "",
        True: ": its process has ended",
        False: ", and its process still exists: it is suspended, or its Python does not run",
    }[has_gone(log)]
    return f"{subject} has stopped without a last line{process}."


def _has_not_reported(logs: Sequence[Log]) -> str:
    if len(logs) == 1:
        return f"Rank {logs[0].rank} on {logs[0].host} has not reported where it is."
    names = listed("rank", sorted(log.rank for log in logs))
    return f"{capitalised(names)} have not reported where they are."


def _where(rank: StoppedRank) -> str:
    doing = f"runs its {rank.pause}" if rank.pause else _DOING[rank.stage or "other"]
    sentence = f"Rank {rank.rank} on {rank.host} {doing}"
    if any(PurePath(path).stem in _DEBUGGERS for path, _, _ in rank.stack):
        return f"{sentence}: a debugger holds it."
    return f"{sentence}{in_frame(rank.where)}."


def _stall_reports(run: Run) -> Iterator[str]:
    """Yield what Horovod's stall inspector reports, if its output is at hand."""
    named = sorted({rank for event in run.events if event.kind == "stall" for rank in event.ranks})
    if named:
        yield f"Horovod's stall inspector names {listed('rank', named)} as well."


def _flight_recorder(run: Run) -> Iterator[str]:
    """Yield what the dumps of PyTorch's Flight Recorder show, if they are at hand."""
    for event in _collective_stalls(run)[:_MOST_STALLS]:
        yield f"PyTorch's Flight Recorder: {event.what}."


def _collective_stalls(run: Run) -> list[Event]:
    """Return the collectives in which ranks wait; the first one is the cause of the others."""
    return [event for event in run.events if event.kind == "collective_stall"]


def _frames(recorded: Any) -> tuple[Frame, ...]:
    return tuple((str(path), int(line), str(name)) for path, line, name in recorded or ())


def _users_frame(stacks: Sequence[Sequence[Frame]]) -> Frame | None:
    """Return the user's frame that is closest to the end of its stack, of all these stacks.

    TensorFlow runs the generator of a loader in another thread, while the training thread is deep
    inside the library.
    """
    depths = [
        (depth, frame) for stack in stacks for depth, frame in enumerate(stack) if is_users(frame)
    ]
    return min(depths, key=lambda found: found[0])[1] if depths else None
