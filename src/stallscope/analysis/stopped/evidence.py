"""Describe how a job hangs: the missing ranks, where they are, and the ranks that wait."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath

from stallscope.collector.recorder.hangs.stacks import Frame
from stallscope.formatting.frames import in_frame
from stallscope.formatting.lists import capitalised, joined, listed
from stallscope.run import Event, Log, Run

from .positions import OverduePosition
from .processes import process_has_ended

# The predicate of one rank and of several ranks in a stage.
_DOING = {
    "input": ("waits for its batch", "wait for their batches"),
    "compute": (
        "has its batch, and its gradients are not ready",
        "have their batches, and their gradients are not ready",
    ),
    "other": ("is between two steps", "are between two steps"),
    "allreduce": ("waits in the allreduce", "wait in the allreduce"),
}
# Collectives of PyTorch's Flight Recorder that are quoted.
_MOST_STALLS = 2
_DEBUGGERS = ("pdb", "bdb", "pydevd", "debugpy", "ipdb")
# Launchers end the other ranks, and users whole jobs, with SIGTERM: such a rank did not fail.
_TERMINATED = (143, -15)


def evidence(
    run: Run,
    seconds: float,
    step: int,
    missing: Sequence[OverduePosition],
    silent: Sequence[Log],
    unreported: Sequence[Log],
    waiting: Sequence[OverduePosition],
    seen: Sequence[OverduePosition],
) -> Iterator[str]:
    """Yield the sentences about a job that hangs.

    Args:
        seconds: for how long no step has finished.
        step: the step of the rank that made progress last.
        missing: the ranks that have not arrived and have reported where they are.
        silent: the logs that have stopped.
        unreported: the logs of ranks that may still report where they are.
        waiting: the ranks that wait for these.
        seen: all ranks that have reported where they are.
    """
    yield f"No step has finished for {seconds:,.0f} s, since step {step}."
    yield from _positions(missing, bool(waiting))
    exits = exits_of(run) if silent else {}
    for log in silent:
        yield has_stopped(log, exits)
    if unreported:
        yield _have_not_reported(unreported)
    stalls, stalled = _collective_stalls(run), stalled_ranks(run)
    if waiting and (missing or silent or unreported or stalled):
        named = stalled if not missing and not silent else set()
        yield from _waiting([rank for rank in waiting if rank.log.rank not in named])
    elif waiting and not stalls:
        yield _all_wait(run, waiting)
    elif not missing and not silent and not unreported and not waiting:
        yield from _positions(seen, False)
        yield "The logs do not show which rank the others wait for."
    yield from _stall_reports(run)
    for event in stalls[:_MOST_STALLS]:
        yield f"PyTorch's Flight Recorder: {event.what}."


def exits_of(run: Run) -> dict[int, str]:
    """Return the launcher's messages about ranks that failed, by rank."""
    return {
        rank: event.what
        for event in run.events
        if event.kind == "rank_exited" and event.status not in _TERMINATED
        for rank in run.ranks_of(event)
    }


def has_stopped(log: Log, exits: Mapping[int, str]) -> str:
    """Describe the end of a log that has stopped, and the state of its process.

    Args:
        exits: the launcher's messages about ranks that failed.
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
    }[process_has_ended(log)]
    return f"{subject} has stopped without a last line{process}."


def stalled_ranks(run: Run) -> set[int]:
    """Return the ranks that are missing in a collective according to PyTorch's Flight Recorder."""
    # The first collective is the cause of the others.
    return {rank for event in _collective_stalls(run)[:1] for rank in event.ranks}


def _collective_stalls(run: Run) -> list[Event]:
    return [event for event in run.events if event.kind == "collective_stall"]


def _positions(ranks: Sequence[OverduePosition], others_wait: bool) -> Iterator[str]:
    """Yield one sentence per place, with all ranks that are there."""
    groups: dict[tuple[object, ...], list[OverduePosition]] = {}
    for rank in sorted(ranks, key=lambda rank: rank.log.rank):
        place = (rank.pause or rank.stage, rank.waits_in, rank.users_frame, _debugged(rank.stack))
        groups.setdefault(place, []).append(rank)
    for group in groups.values():
        subject = _subject(group)
        first, several = group[0], len(group) > 1
        if _debugged(first.stack):
            held = "them" if several else "it"
            yield f"{subject} {_doing(first, several)}: a debugger holds {held}."
        elif first.waits_in is not None and others_wait:
            alone = "a collective that the other ranks have not reached"
            yield f"{subject} {_doing(first, several)}, {alone}."
        else:
            yield f"{subject} {_doing(first, several)}{in_frame(first.users_frame)}."


def _subject(ranks: Sequence[OverduePosition]) -> str:
    names = capitalised(listed("rank", [rank.log.rank for rank in ranks]))
    return f"{names} on {joined(list(dict.fromkeys(rank.log.host for rank in ranks)))}"


def _doing(rank: OverduePosition, several: bool) -> str:
    if rank.pause:
        return f"run their {rank.pause}" if several else f"runs its {rank.pause}"
    if rank.collective is not None and not rank.waits_in_reduction:
        verb = "wait" if several else "waits"
        return f"{verb} in `{rank.collective.name}`{in_frame(rank.collective.caller)}"
    stage = "allreduce" if rank.waits_in_reduction else rank.stage
    return _DOING[stage][several]


def _debugged(stack: Sequence[Frame]) -> bool:
    return any(PurePath(path).stem in _DEBUGGERS for path, _, _ in stack)


def _have_not_reported(logs: Sequence[Log]) -> str:
    if len(logs) == 1:
        return f"Rank {logs[0].rank} on {logs[0].host} has not reported where it is."
    names = listed("rank", sorted(log.rank for log in logs))
    return f"{capitalised(names)} have not reported where they are."


def _waiting(ranks: Sequence[OverduePosition]) -> Iterator[str]:
    if ranks:
        names = capitalised(listed("rank", sorted(rank.log.rank for rank in ranks)))
        yield f"{names} {_doing(ranks[0], len(ranks) > 1)}."


def _all_wait(run: Run, waiting: Sequence[OverduePosition]) -> str:
    """Describe ranks that all wait at one place, and the likely cause."""
    first = waiting[0]
    if run.missing_ranks:
        cause = f"{listed('rank', run.missing_ranks)} left no log here and may be missing there."
    else:
        cause = "the network or the reduction itself hangs."
    if first.waits_in_reduction:
        return f"All ranks with a log wait in the same allreduce: {cause}"
    return f"All ranks with a log {_doing(first, True)}: {cause}"


def _stall_reports(run: Run) -> Iterator[str]:
    """Yield the report of Horovod's stall inspector, if its output was collected."""
    named = sorted({rank for event in run.events if event.kind == "stall" for rank in event.ranks})
    if named:
        yield f"Horovod's stall inspector names {listed('rank', named)} as well."
