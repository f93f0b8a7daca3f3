"""Find which logs form one generation: the ranks that train together between changes of membership.

Each process counts its own generations, in the names of its logs. Under an elastic launcher these
counts do not match: a process that joins counts from 0, while the others have counted on. But a
reduction completes on all of its ranks together: the sessions of one generation complete the same steps
at the same time. ``Log.generation`` numbers the generations in the order in which they began.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.arrays import arrow
from stallscope.arrays.types import Ints
from stallscope.run import Log, sessions_of, wall_offsets

#: The steps of a log, ascending, and when each was reduced (or ended, without that), nanoseconds.
Completions = Callable[[int], tuple[Ints, Ints]]
#: The completions of a log without steps.
NOTHING_COMPLETED: tuple[Ints, Ints] = (np.zeros(0, np.int64), np.zeros(0, np.int64))

# The number of shared steps for comparing two sessions.
_COMPARED = 256
# The number of completions that are kept of a log with its rows elsewhere.
_KEPT = 1024
# The largest difference between completions of one step on one clock. A repeated step comes later: a
# generation takes seconds to form.
_APART_NS = 1_000_000_000
# The largest difference between the clocks of two hosts, and of its scatter.
_CLOCK_ERROR_NS = 600 * 1_000_000_000
_SCATTER_NS = 100_000_000
_SCATTER_OF_STEP = 0.2
# The number of members of a generation that a session is compared with.
_MEMBERS_COMPARED = 3
# The number of sessions by which clocks are compared.
_SESSIONS_COMPARED = 64


class _Apart(NamedTuple):
    """By how many nanoseconds two sessions' completions differ, over this many steps."""

    ns: float
    steps: int


@dataclass(frozen=True)
class _Session:
    """The logs of one training session of a process, and its completed steps."""

    #: Indices of its logs, the first one first.
    logs: tuple[int, ...]
    log: Log
    steps: Ints
    completed: Ints
    #: Nanoseconds to add to its times to get wall time, on all hosts alike.
    to_wall: int

    @property
    def size(self) -> int:
        return int(self.log.facts.get("size") or 0)

    @cached_property
    def began(self) -> int:
        """Return the wall time of its first completion, or else of the start of its log, nanoseconds."""
        first = int(self.completed[0]) if len(self.completed) else self.log.anchor
        return first + self.to_wall

    def is_process_of(self, session: _Session) -> bool:
        """Whether both are sessions of one process."""
        log, session_log = self.log, session.log
        pid = log.facts.get("pid")
        if log.clock_domain != session_log.clock_domain or pid != session_log.facts.get("pid"):
            return False
        if pid is None:
            return log.recorded_generation == session_log.recorded_generation
        return log.is_of_process_started_at(session_log.process_start)

    def distance(self, session: _Session) -> float | None:
        """Return the time between two sessions' completions of the same steps, nanoseconds.

        None if they share no step, or do not complete them together.
        """
        apart = self.later_than(session)
        if apart is None:
            return None
        same_clock = self.log.clock_domain == session.log.clock_domain
        most = _APART_NS if same_clock else _CLOCK_ERROR_NS
        return abs(apart.ns) if abs(apart.ns) <= most else None

    def later_than(self, session: _Session) -> _Apart | None:
        """Return how much later this session completed the same steps; None as for ``distance``."""
        steps, _, session_indices = np.intersect1d(
            _thinned(self.steps, session.steps), session.steps, return_indices=True
        )
        if not len(steps):
            return None
        indices = np.searchsorted(self.steps, steps)
        difference = self.completed[indices] - session.completed[session_indices]
        if self.log.clock_domain == session.log.clock_domain:
            return _Apart(float(np.median(np.abs(difference))), len(steps))
        difference += self.to_wall - session.to_wall
        middle = float(np.median(difference))
        scatter = float(np.median(np.abs(difference - middle)))
        usual = float(np.median(np.diff(session.completed))) if len(session.completed) > 1 else 0.0
        together = scatter <= max(_SCATTER_NS, _SCATTER_OF_STEP * usual)
        return _Apart(middle, len(steps)) if together else None


def _thinned(steps: Ints, others: Ints) -> Ints:
    """Return some of the steps that may be among the others, evenly spread."""
    if not len(steps) or not len(others):
        return steps[:0]
    overlapping = steps[
        np.searchsorted(steps, others[0]) : np.searchsorted(steps, others[-1], "right")
    ]
    return overlapping[:: max(1, len(overlapping) // _COMPARED)]


@dataclass
class _Generation:
    """Sessions of different ranks that complete steps together, and their continuations."""

    sessions: list[_Session] = field(default_factory=list)

    @property
    def began(self) -> tuple[int, int]:
        first = min(self.sessions, key=lambda member: member.began)
        return first.began, first.log.recorded_generation

    @property
    def last_step(self) -> int:
        return max(
            (int(member.steps[-1]) for member in self.sessions if len(member.steps)), default=-1
        )

    @property
    def first_step(self) -> int:
        return min(
            (int(member.steps[0]) for member in self.sessions if len(member.steps)), default=2**62
        )

    def admits(self, session: _Session) -> bool:
        """Whether the session's rank and process are not in the generation yet."""
        return all(
            member.size == session.size
            and member.log.rank != session.log.rank
            and not (member.log.facts.get("pid") is not None and member.is_process_of(session))
            for member in self.sessions
        )

    def has(self, session: _Session) -> bool:
        """Whether a copy of the session is in the generation: the same steps of the same process."""
        return any(
            member.log.rank == session.log.rank
            and member.is_process_of(session)
            and session.distance(member) == 0
            for member in self.sessions
        )

    def distance(self, session: _Session) -> float | None:
        """Return the distance of a session to the nearest member; None if it does not belong here."""
        domain = session.log.clock_domain
        nearest_clock = sorted(self.sessions, key=lambda member: member.log.clock_domain != domain)
        distances = (session.distance(member) for member in nearest_clock[:_MEMBERS_COMPARED])
        return min((distance for distance in distances if distance is not None), default=None)

    def continues(self, before: _Generation) -> bool:
        """Whether the same processes, with the same ranks, continue after the previous generation."""
        if self.first_step <= before.last_step or self.sessions[0].size != before.sessions[0].size:
            return False
        places = {member.log.rank: member for member in before.sessions}
        known = [
            (member, places[member.log.rank])
            for member in self.sessions
            if member.log.rank in places
        ]
        same = all(member.is_process_of(earlier) for member, earlier in known)
        return same and len(known) == min(len(self.sessions), len(places))


def generations_of(logs: Sequence[Log], completions: Completions) -> list[int]:
    """Return the number of each log's generation.

    Args:
        logs: all logs of a run.
        completions: returns the completed steps of the log with this index; only called if the logs'
            facts do not show which of them form a generation.

    Without any completion, the generations that the processes counted are returned.
    """
    recorded = [log.recorded_generation for log in logs]
    of_session: dict[int, list[int]] = {}
    for index, first in enumerate(sessions_of(logs)):
        of_session.setdefault(first, []).append(index)
    if is_one_generation(logs, list(of_session)) or not all(log.has_wall_clock for log in logs):
        return recorded
    walls = wall_offsets(logs)
    sessions = [_session(logs, indices, completions, walls) for indices in of_session.values()]
    if not any(len(session.steps) for session in sessions):
        return recorded
    sessions = _on_common_time(sessions)
    numbers = [0] * len(logs)
    for number, generation in enumerate(_in_generations(sessions)):
        for session in generation.sessions:
            for index in session.logs:
                numbers[index] = number
    # The same generations keep the numbers that they were recorded with.
    renamed = {
        (number, recorded_number) for number, recorded_number in zip(numbers, recorded, strict=True)
    }
    in_order = [recorded_number for _, recorded_number in sorted(renamed)]
    same = len(renamed) == len(set(numbers)) == len(set(recorded)) and in_order == sorted(in_order)
    return recorded if same else numbers


def completions_of(steps: pa.Table) -> tuple[Ints, Ints]:
    """Return the numbers of a log's steps, and the times when each was reduced or else ended."""
    completed = pc.coalesce(steps["reduced"], steps["end"])
    if completed.null_count:
        known = pc.is_valid(completed)
        steps, completed = steps.filter(known), completed.filter(known)
    return arrow.numbers(steps["step"]), arrow.numbers(completed)


def some_completions_of(steps: pa.Table) -> tuple[Ints, Ints]:
    """Return the completions of the first, the last and of evenly spread steps.

    The numbers of these are multiples of a power of two, so that logs of the same steps share many of
    them, however long each log is.
    """
    numbers, completed = completions_of(steps)
    if len(numbers) <= _KEPT:
        return numbers, completed
    apart = 1 << int(np.ceil(np.log2((numbers.max() - numbers.min()) / _KEPT)))
    kept = numbers % apart == 0
    kept[[numbers.argmin(), numbers.argmax()]] = True
    return numbers[kept], completed[kept]


def with_generations(table: pa.Table, generation: npt.NDArray[np.int32] | np.int32) -> pa.Table:
    """Return a table of steps or intervals with other generations: one per row, or one for all."""
    column = arrow.array(np.broadcast_to(generation, table.num_rows).astype(np.int32))
    return table.set_column(table.schema.get_field_index("generation"), "generation", column)


def is_one_generation(logs: Sequence[Log], firsts: Sequence[int]) -> bool:
    """Whether every rank has one process, and all agree on the number of ranks and the generation.

    Args:
        logs: all logs of a run.
        firsts: the indices of the first log of each session.
    """
    processes = {
        (log.rank, log.host, log.facts.get("pid")) for log in (logs[index] for index in firsts)
    }
    same = {(log.recorded_generation, log.facts.get("size")) for log in logs}
    return len(same) == 1 and len(processes) == len({rank for rank, _, _ in processes})


def _session(
    logs: Sequence[Log],
    indices: Sequence[int],
    completions: Completions,
    walls: Mapping[str, int],
) -> _Session:
    steps, completed = (
        np.concatenate(parts)
        for parts in zip(*(completions(index) for index in indices), strict=True)
    )
    # In the order of steps; a step that a process recorded twice counts the last time.
    steps, at = np.unique(steps[::-1], return_index=True)
    first = logs[indices[0]]
    to_wall = walls.get(first.clock_domain, first.wall_minus_monotonic)
    return _Session(tuple(indices), first, steps, completed[::-1][at], to_wall)


def _on_common_time(sessions: Sequence[_Session]) -> list[_Session]:
    """Correct hosts' wall clocks, which may be wrong by hours, by steps that they completed together.

    Sessions of different generations may share steps, too, but differ by the time between them. Most
    shared steps are those of one generation.
    """
    by_clock: dict[str, list[_Session]] = {}
    for session in sessions:
        by_clock.setdefault(session.log.clock_domain, []).append(session)
    # From the clock with most steps on: the others are compared with those that are corrected already.
    first, *rest = sorted(by_clock.values(), key=_count_steps, reverse=True)
    common = [*first]
    for of_clock in rest:
        ahead = _clock_error(_of_each_generation(of_clock), _of_each_generation(common))
        common += [replace(session, to_wall=session.to_wall - ahead) for session in of_clock]
    of_logs = {session.logs: session for session in common}
    return [of_logs[session.logs] for session in sessions]


def _count_steps(sessions: Sequence[_Session]) -> int:
    return sum(len(session.steps) for session in sessions)


def _of_each_generation(sessions: Sequence[_Session]) -> list[_Session]:
    """Return a session with steps for each clock, count of generations and first step."""
    chosen: dict[tuple[object, ...], _Session] = {}
    for session in sessions:
        if len(session.steps):
            log = session.log
            key = log.clock_domain, log.recorded_generation, int(session.steps[0])
            chosen.setdefault(key, session)
    return list(chosen.values())[:_SESSIONS_COMPARED]


def _clock_error(sessions: Sequence[_Session], others: Sequence[_Session]) -> int:
    """Return by how many nanoseconds the sessions' wall clock is ahead of the others'; 0 if unknown."""
    pairs = [
        apart
        for session in sessions
        for peer in others
        if session.size == peer.size and session.log.rank != peer.log.rank
        if (apart := session.later_than(peer)) is not None
    ]

    def support(pair: _Apart) -> int:
        return sum(near.steps for near in pairs if abs(near.ns - pair.ns) <= _APART_NS)

    most = max(pairs, key=support, default=None)
    return 0 if most is None else round(most.ns)


def _in_generations(sessions: Sequence[_Session]) -> list[_Generation]:
    """Return the generations in the order in which they began."""
    generations: list[_Generation] = []
    order = sorted(
        sessions,
        key=lambda session: (session.began, session.log.recorded_generation, session.log.rank),
    )
    for session in (session for session in order if len(session.steps)):
        fitting = [
            (generation.distance(session), generation)
            for generation in generations
            if generation.admits(session) or generation.has(session)
        ]
        near = [(distance, generation) for distance, generation in fitting if distance is not None]
        if near:
            min(near, key=lambda candidate: candidate[0])[1].sessions.append(session)
        else:
            generations.append(_Generation([session]))
    for session in (session for session in order if not len(session.steps)):
        _put_without_steps(generations, session)
    joined: list[_Generation] = []
    for generation in sorted(generations, key=lambda generation: generation.began):
        if joined and generation.continues(joined[-1]):
            joined[-1].sessions += generation.sessions
        else:
            joined.append(generation)
    return joined


def _put_without_steps(generations: list[_Generation], session: _Session) -> None:
    """Put a session without completed steps into the generation that formed when its log began."""
    free = [generation for generation in generations if generation.admits(session)]
    if free:
        nearest = min(free, key=lambda generation: abs(generation.began[0] - session.began))
        nearest.sessions.append(session)
    else:
        generations.append(_Generation([session]))
