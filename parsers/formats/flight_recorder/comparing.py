"""Compare the dumps of all ranks to find the ranks that are missing in a collective.

Collectives of a process group have the same numbers on all ranks. A rank waits in the first one that it
has entered and not completed. Missing ranks have not entered it, or call another collective with that
number.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from stallscope.formatting.lists import ranks_in_words
from stallscope.formatting.plain import in_frame
from stallscope.run import Event, Problem

from .dump import CollectiveEntry, Dump, Group, group_title, is_default

#: The kind of the events.
KIND = "collective_stall"

# No rank can complete one of these before all ranks have entered it.
_ALL_ENTER = (
    "all_reduce",
    "allreduce",
    "all_gather",
    "allgather",
    "all_to_all",
    "barrier",
    "reduce_scatter",
)
# Collectives with inputs of equal size on all ranks.
_EQUAL_SIZES = ("all_reduce", "allreduce", "broadcast")
# Dumps in several folders are of one job if their times overlap within this; clocks of hosts differ.
_SAME_TIME_NS = 600 * 10**9


@dataclass(frozen=True)
class DumpComparison:
    """Stalls that dumps show together, and problems with dumps."""

    events: tuple[Event, ...] = ()
    problems: tuple[Problem, ...] = ()


@dataclass
class _Position:
    """The progress of a rank in one group."""

    dump: Dump
    entries: dict[int, CollectiveEntry] = field(default_factory=dict)

    @cached_property
    def last(self) -> int:
        return max(self.entries, default=-1)

    @cached_property
    def open(self) -> CollectiveEntry | None:
        """Return the first collective that is not completed."""
        numbers = [number for number, entry in self.entries.items() if not entry.completed]
        return self.entries[min(numbers)] if numbers else None

    @cached_property
    def passed(self) -> int:
        """Return the number of the last collective that all ranks must have entered."""
        passed = (
            number
            for number, entry in self.entries.items()
            if entry.completed and entry.name.lower().lstrip("_").startswith(_ALL_ENTER)
        )
        return max(passed, default=-1)


@dataclass(frozen=True)
class _Stall:
    """The first collective of a group in which ranks wait for others."""

    at: CollectiveEntry
    #: The dump of a rank that waits.
    path: str
    #: The ranks that the others wait for.
    named: tuple[int, ...]
    what: str
    #: The number of missing ranks that wait in another group.
    elsewhere: int

    def event(self) -> Event:
        return Event(KIND, self.path, self.what, ranks=self.named, wall_ns=self.at.entered_ns)


@dataclass(frozen=True)
class _Team:
    """The ranks of one process group."""

    positions: dict[int, _Position]
    #: The ranks that left no dump.
    absent: tuple[int, ...]

    def older(self) -> dict[int, Problem]:
        """Return problems of ranks that have not entered a collective that needs them and is over."""
        passed = max((position.passed for position in self.positions.values()), default=-1)
        over = [rank for rank, position in self.positions.items() if position.passed == passed]
        older = [rank for rank, position in self.positions.items() if position.last < passed]
        return {rank: self._older(rank, over, passed) for rank in older}

    def _older(self, rank: int, over: Sequence[int], number: int) -> Problem:
        title = _title(self.positions[over[0]].entries[number])
        return Problem(
            self.positions[rank].dump.path,
            f"rank {rank} has not entered {title}, which is over on {ranks_in_words(over)}: "
            "its dump is older than theirs, or the collective failed there",
        )

    def without(self, ranks: Container[int]) -> _Team:
        """Return the team without some ranks, as their position is unknown."""
        known = {rank: position for rank, position in self.positions.items() if rank not in ranks}
        return replace(self, positions=known)

    def opened(self) -> dict[int, CollectiveEntry]:
        """Return by rank the first collective that is not completed."""
        opened = {rank: position.open for rank, position in self.positions.items()}
        return {rank: entry for rank, entry in opened.items() if entry is not None}

    def stall(self, open_of: Mapping[int, Sequence[CollectiveEntry]]) -> _Stall | None:
        """Return the first collective in which ranks wait for others.

        Args:
            open_of: by rank, the first collective of each group that is not completed.
        """
        opened = self.opened()
        for number in sorted({entry.number for entry in opened.values()}):
            called = {
                rank: position.entries[number]
                for rank, position in self.positions.items()
                if number in position.entries
            }
            variants = _variants(called)
            if len(variants) > 1:
                return _mismatch(called, variants, self.positions)
            missing = [rank for rank, position in self.positions.items() if position.last < number]
            unstarted = _not_started(called)
            if missing or unstarted or self.absent:
                waiting = {
                    rank: entry
                    for rank, entry in opened.items()
                    if entry.number >= number and rank not in unstarted
                }
                return self._absence(number, waiting, missing, unstarted, open_of)
        return None

    def _absence(
        self,
        number: int,
        waiting: Mapping[int, CollectiveEntry],
        missing: Sequence[int],
        unstarted: Sequence[int],
        open_of: Mapping[int, Sequence[CollectiveEntry]],
    ) -> _Stall | None:
        here = [entry for entry in waiting.values() if entry.number == number]
        if not here:
            return None
        # A missing rank may wait in another group.
        elsewhere = {
            rank: others[0]
            for rank in missing
            if (
                others := [entry for entry in open_of.get(rank, ()) if entry.group != here[0].group]
            )
        }
        named = [rank for rank in missing if rank not in elsewhere] or unstarted
        sentence = _sentence(self.positions, waiting, here[0], missing, self.absent, unstarted)
        return _Stall(
            here[0],
            self.positions[min(waiting)].dump.path,
            tuple(named or self.absent or missing),
            "; ".join([*sentence, *_reasons(elsewhere)]),
            len(elsewhere),
        )


@dataclass(frozen=True)
class _Job:
    """The dumps of one job."""

    dumps: Mapping[int, Dump]

    def compared(self) -> DumpComparison:
        teams = self._teams()
        older = {rank: problem for team in teams for rank, problem in team.older().items()}
        teams = [team.without(older) for team in teams]
        open_of: dict[int, list[CollectiveEntry]] = {}
        for team in teams:
            for rank, entry in team.opened().items():
                open_of.setdefault(rank, []).append(entry)
        stalls = [stall for team in teams if (stall := team.stall(open_of)) is not None]
        # If missing ranks wait in another group, the stall there is the cause: sort it first.
        stalls.sort(key=lambda stall: stall.elsewhere)
        return DumpComparison(tuple(stall.event() for stall in stalls), tuple(older.values()))

    def _teams(self) -> list[_Team]:
        everyone = frozenset(self.dumps).union(
            *{ranks for dump in self.dumps.values() for ranks in dump.ranks.values()}
        )
        teams: dict[tuple[Group, frozenset[int]], dict[int, _Position]] = {}
        for rank, dump in sorted(self.dumps.items()):
            for entry in dump.entries:
                group = entry.group
                ranks = everyone if is_default(group) else dump.ranks.get(group[0], frozenset())
                team = teams.setdefault((group, ranks), {})
                # Of several entries with one number, the last one is complete.
                team.setdefault(rank, _Position(dump)).entries[entry.number] = entry
        for (_, ranks), team in teams.items():
            for rank in ranks & (self.dumps.keys() - team.keys()):
                # All entries of a rarely used group may be overwritten.
                if not self.dumps[rank].overwritten:
                    team[rank] = _Position(self.dumps[rank])
        return [
            _Team(dict(sorted(team.items())), tuple(sorted(ranks - self.dumps.keys())))
            for (_, ranks), team in teams.items()
        ]


def compare(dumps: Iterable[Dump]) -> DumpComparison:
    """Compare dumps, those of each job among themselves."""
    every = [_Job(job_dumps).compared() for job_dumps in _jobs(dumps)]
    return DumpComparison(
        tuple(event for comparison in every for event in comparison.events),
        tuple(problem for comparison in every for problem in comparison.problems),
    )


def _jobs(dumps: Iterable[Dump]) -> list[dict[int, Dump]]:
    """Return the dumps of each job by rank: those with the same prefix in the same folder.

    Folders are also one job if each host has its own and no rank is in two of them.
    """
    folders: dict[tuple[str, str], dict[int, Dump]] = {}
    for dump in dumps:
        by_rank = folders.setdefault((dump.prefix, dump.path.rpartition("/")[0]), {})
        known = by_rank.get(dump.rank)
        if known is None or _quality(dump) > _quality(known):
            by_rank[dump.rank] = dump
    jobs: list[dict[int, Dump]] = []
    for prefix in dict.fromkeys(prefix for prefix, _ in folders):
        parts = [part for (part_prefix, _), part in folders.items() if part_prefix == prefix]
        joined = {rank: dump for part in parts for rank, dump in part.items()}
        is_one_job = len(joined) == sum(map(len, parts)) and _at_one_time(joined.values())
        jobs += [joined] if is_one_job else parts
    return jobs


def _quality(dump: Dump) -> tuple[int, bool]:
    """Return a sort key for dumps of one rank: the newest wins, then one with stacks."""
    return dump.last_ns, any(entry.where for entry in dump.entries)


def _at_one_time(dumps: Iterable[Dump]) -> bool:
    filled = [dump for dump in dumps if dump.entries]
    first = max((dump.first_ns for dump in filled), default=0)
    return all(first <= dump.last_ns + _SAME_TIME_NS for dump in filled)


def _not_started(called: Mapping[int, CollectiveEntry]) -> list[int]:
    """Return the ranks on which the device has not started a collective that others have started."""
    if not any(entry.state == "started" for entry in called.values()):
        return []
    return [rank for rank, entry in called.items() if entry.state == "scheduled"]


def _variants(called: Mapping[int, CollectiveEntry]) -> list[list[int]]:
    """Group ranks by the collective that they call with one number, the most frequent first."""
    variants: dict[object, list[int]] = {}
    for rank, entry in called.items():
        values = entry.values if entry.name.startswith(_EQUAL_SIZES) else None
        variants.setdefault((entry.name, values), []).append(rank)
    return sorted(variants.values(), key=len, reverse=True)


def _mismatch(
    called: Mapping[int, CollectiveEntry],
    variants: Sequence[Sequence[int]],
    positions: Mapping[int, _Position],
) -> _Stall:
    """Describe ranks that call different collectives; the minority is named."""
    usual, *others = variants
    is_usual = len(usual) > len(others[0])
    named = sorted(rank for ranks in others for rank in ranks)
    calls = [
        f"{ranks_in_words(ranks)} {'calls' if len(ranks) == 1 else 'call'} "
        f"{_title(called[ranks[0]])}{in_frame(called[ranks[0]].where)}"
        for ranks in (*others, usual)
    ]
    return _Stall(
        called[usual[0]],
        positions[usual[0]].dump.path,
        tuple(named if is_usual else sorted(called)),
        "; ".join(calls),
        0,
    )


def _sentence(
    positions: Mapping[int, _Position],
    waiting: Mapping[int, CollectiveEntry],
    at: CollectiveEntry,
    missing: Sequence[int],
    absent: Sequence[int],
    unstarted: Sequence[int],
) -> Iterator[str]:
    here = [rank for rank, entry in waiting.items() if entry.number == at.number]
    later = [rank for rank in waiting if rank not in here]
    wait = _wait(here)
    further = f", and {ranks_in_words(later)} in a later one" if later else ""
    if missing:
        yield f"{ranks_in_words(missing)} {'is' if len(missing) == 1 else 'are'} not in {_title(at)}"
    elif unstarted:
        yield f"{ranks_in_words(unstarted)} scheduled {_title(at)} and did not start it"
    if absent:
        yield f"{ranks_in_words(absent)} left no dump"
    place = "there" if missing or unstarted else f"in {_title(at)}"
    yield f"{wait} {place}{further}{in_frame(at.where)}"
    if len(missing) == 1 and positions[missing[0]].entries:
        last = positions[missing[0]].entries[positions[missing[0]].last]
        yield f"the last one of rank {missing[0]} was {last.title}{in_frame(last.where)}"


def _reasons(elsewhere: Mapping[int, CollectiveEntry]) -> Iterator[str]:
    by_entry: dict[str, list[int]] = {}
    for rank, entry in elsewhere.items():
        by_entry.setdefault(_title(entry), []).append(rank)
    for title, ranks in by_entry.items():
        yield f"{_wait(ranks)} in {title}"


def _wait(ranks: Sequence[int]) -> str:
    return f"{ranks_in_words(ranks)} {'waits' if len(ranks) == 1 else 'wait'}"


def _title(entry: CollectiveEntry) -> str:
    sizes = f" ({entry.sizes})" if entry.sizes else ""
    return f"{entry.title}{sizes} of {group_title(entry.group)}"
