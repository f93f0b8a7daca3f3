"""Read where each rank hangs: its position in a step, its stack, its process."""

from __future__ import annotations

import re
import socket
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath
from typing import Any

from stallscope.collector.recorder.hangs import Frame, is_users
from stallscope.collector.recorder.job.job_facts import clock_domain
from stallscope.collector.recorder.job.world import process_start_ns
from stallscope.formatting.lists import capitalised, joined, listed
from stallscope.formatting.plain import in_frame
from stallscope.run import Event, Log, Run
from stallscope.words import PartByCause

from ..steps.alignment import PAUSES

# The timestamps of a step in order, and the stage that follows each of them.
_REACHED = ("end", "begin", "data", "ready", "reduced")
_STAGES: tuple[PartByCause, ...] = ("other", "input", "compute", "allreduce", "other")
_READY = _REACHED.index("ready")
_LIBRARIES = re.compile(r"-packages/(?:horovod|torch/distributed)/")
_NAMES = re.compile(
    r"(?:grouped_|sparse_)?(?:all_?reduce|all_?gather|broadcast|reduce_?scatter|all_?to_?all)"
    r"(?:_\w*)?|(?:monitored_)?barrier|join|reduce|gather|scatter|send|recv|synchronize"
)
# Horovod's reduction of a step's gradients: PyTorch's optimizer, and functions for other frameworks.
_OPTIMIZER = "-packages/horovod/torch/optimizer.py"
_OF_GRADIENTS = ("allreduce_grads", "aggregate_gradients", "gradient")
#: A file with a line, or the name of a function of the library.
Place = tuple[str, int] | str
#: The place of the reduction of a step's gradients.
OF_STEP: Place = "step"

# The predicate of one rank and of several ranks in a stage.
_DOING: dict[PartByCause, tuple[str, str]] = {
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


@dataclass(frozen=True)
class OverduePosition:
    """The position of one rank with an overdue step."""

    log: Log
    step: int
    #: The index of the last timestamp that it has reached.
    reached: int
    #: Wall time of the last progress, nanoseconds.
    since_ns: int
    #: The seconds from then until the rank was last seen.
    seconds: float
    #: For how long all samples of the stack have been equal; None if no stack is recorded.
    still_seconds: float | None
    #: The usual time of a step; None if not yet known.
    usual_ns: float | None
    #: ``validation`` or ``checkpoint`` if the rank runs one.
    pause: str | None
    #: The training thread's stack, the innermost frame first.
    stack: tuple[Frame, ...]
    other_threads: tuple[tuple[Frame, ...], ...]

    @classmethod
    def of(cls, log: Log) -> OverduePosition | None:
        """Read the position; None if no step is overdue, or if the log's facts are damaged."""
        fact = log.facts.get("in_flight")
        if log.ended or not isinstance(fact, Mapping):
            return None
        try:
            since, seen = int(fact["since_us"]), int(fact["seen_us"])
            still_since = fact.get("stack_since_us")
            return cls(
                log=log,
                step=int(fact["step"]),
                reached=_REACHED.index(fact["reached"]),
                since_ns=log.anchor + log.wall_minus_monotonic + since * 1000,
                seconds=max(0.0, (seen - since) / 1e6),
                still_seconds=None if still_since is None else (seen - int(still_since)) / 1e6,
                usual_ns=None if fact.get("usual_us") is None else fact["usual_us"] * 1000.0,
                pause=fact.get("pause") if fact.get("pause") in PAUSES else None,
                stack=_frames(fact.get("stack")),
                other_threads=tuple(map(_frames, fact.get("other_threads") or ())),
            )
        except (KeyError, TypeError, ValueError):
            return None

    @property
    def arrived(self) -> tuple[int, int]:
        """Return a key that orders ranks by their progress."""
        # A rank with reduced gradients is as far as it can be before the next step.
        return (self.step + 1, 0) if self.reached > _READY else (self.step, self.reached)

    @property
    def stage(self) -> PartByCause:
        """Return the stage that it has not finished."""
        return _STAGES[self.reached]

    @property
    def is_between_steps(self) -> bool:
        return self.stage == "other"

    @cached_property
    def collective(self) -> Collective | None:
        """Return the collective in which the rank waits; None if its stack shows none.

        Validation and checkpoints may call many collectives, so they have none here.
        """
        return None if self.pause else collective_of(self.stack)

    @property
    def waits_in_reduction(self) -> bool:
        """Whether the rank waits for its step's gradients to be reduced."""
        collective = self.collective
        return collective.of_step if collective is not None else self.reached == _READY

    @property
    def waits_in(self) -> Place | None:
        """Return the place of the collective in which the rank waits; None if it is in none."""
        if self.waits_in_reduction:
            return OF_STEP
        return None if self.collective is None else self.collective.place

    @property
    def users_frame(self) -> Frame | None:
        """Return the user's frame that is innermost, over all stacks.

        TensorFlow runs the generator of a loader in another thread, while the training thread is
        deep inside the library.
        """
        depths = [
            (depth, frame)
            for stack in (self.stack, *self.other_threads)
            for depth, frame in enumerate(stack)
            if is_users(frame)
        ]
        return min(depths, key=lambda pair: pair[0])[1] if depths else None


def missing_and_waiting(
    seen: Sequence[OverduePosition],
) -> tuple[list[OverduePosition], list[OverduePosition]]:
    """Return the ranks that have not arrived, and those that wait for them.

    A collective needs all ranks. The ranks in the collective with most of them wait for the ranks that
    are further behind, and for those that wait in another collective. If no rank waits, ranks without
    their batch are missing, because loaders need no other rank; about other ranks nothing is known.
    """
    waiting = [rank for rank in seen if rank.waits_in is not None]
    if not waiting:
        return [rank for rank in seen if rank.stage == "input"], []
    others = [rank for rank in seen if rank.waits_in is None]
    at_reduction = [rank.arrived for rank in waiting if rank.waits_in_reduction]
    behind = [rank for rank in others if not at_reduction or rank.arrived < max(at_reduction)]
    main = _largest_group(waiting)
    elsewhere = [rank for rank in waiting if rank.waits_in != main]
    return [*behind, *elsewhere], [rank for rank in waiting if rank.waits_in == main]


def _largest_group(waiting: Sequence[OverduePosition]) -> Place | None:
    """Return the place where most ranks wait; in a tie the reduction, which comes later."""
    groups = Counter(rank.waits_in for rank in waiting)
    return max(groups, key=lambda place: (groups[place], place == OF_STEP))


def _frames(recorded: Any) -> tuple[Frame, ...]:
    return tuple((str(path), int(line), str(name)) for path, line, name in recorded or ())


# -- Recognise the collective in which a rank waits by its stack ----------------------------------


@dataclass(frozen=True)
class Collective:
    """A collective in which a thread waits."""

    #: The library's function.
    name: str
    #: The user's line that leads to it; None if no frame is the user's.
    caller: Frame | None
    #: Whether it is the reduction of the step's gradients.
    of_step: bool

    @property
    def place(self) -> Place:
        """Return the place, which is the same on all ranks that wait in one collective."""
        if self.of_step:
            return OF_STEP
        return self.name if self.caller is None else self.caller[:2]


def collective_of(stack: Sequence[Frame]) -> Collective | None:
    """Find the collective that a thread has called and that has not returned yet.

    Args:
        stack: the thread's frames, the innermost first.
    """
    at_users = next((at for at, frame in enumerate(stack) if is_users(frame)), len(stack))
    called = [frame for frame in stack[:at_users] if _is_collective(frame)]
    if not called:
        return None
    caller = stack[at_users] if at_users < len(stack) else None
    of_step = any(map(_reduces_gradients, stack[:at_users]))
    return Collective(called[-1][2].strip("_"), caller, of_step)


def _is_collective(frame: Frame) -> bool:
    path, _, name = frame
    return bool(_LIBRARIES.search(_slashes(path)) and _NAMES.fullmatch(name.strip("_")))


def _reduces_gradients(frame: Frame) -> bool:
    path = _slashes(frame[0])
    return bool(_LIBRARIES.search(path)) and (
        path.endswith(_OPTIMIZER) or frame[2].strip("_") in _OF_GRADIENTS
    )


def _slashes(path: str) -> str:
    return path.replace("\\", "/")


# -- Describe how a job hangs: the missing ranks, where they are, and the ranks that wait ---------


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
    stage: PartByCause = "allreduce" if rank.waits_in_reduction else rank.stage
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


# -- Check whether the process that wrote a log still exists, if it ran on this machine -----------


def process_has_ended(log: Log) -> bool | None:
    """Whether a log's process has ended; None if it ran elsewhere, or if that is unknown."""
    pid = log.facts.get("pid")
    if not isinstance(pid, int) or not _is_of_this_machine(log):
        return None
    return not log.is_of_process_started_at(process_start_ns(pid))


def _is_of_this_machine(log: Log) -> bool:
    """Whether a log has this host name and boot: containers of one machine share only the boot."""
    return log.host == socket.gethostname() and log.clock_domain == clock_domain()
