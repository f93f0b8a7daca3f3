"""The pairs of trainings: a faulty run, and the same run without the fault.

Standard library only: the trainings also read the plan, in their own environments.
"""

from __future__ import annotations

import itertools
import json
import random
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol, TypeVar


class Named(Protocol):
    """A run, whose name is that of its folder."""

    @property
    def name(self) -> str: ...


R = TypeVar("R", bound=Named)

FRAMEWORKS = ("keras", "torch", "ddp")
#: Stages with a fault, and whether a prefetching loader hides some of it.
KINDS = (("input", False), ("input", True), ("compute", False), ("other", False))
WAYS = ("sleep", "burn")
WHO = ("one", "all")
#: Sizes of faults in percent of the clean step, used alternately.
PERCENTS = (100, 50, 200, 20, 150)

#: Set in the environment of trainings that have priority on the machine.
FIRST = "STALLSCOPE_PAIRS_FIRST"

# A group's trainings alternate, so that the machine's drift affects them alike. All are in memory.
_PAIRS_PER_BASELINE = 4

_SEGMENT = "segment.json"


@dataclass(frozen=True)
class Pair:
    """A fault and the place of its injection."""

    framework: str
    ranks: int
    repeat: int
    stage: str
    way: str
    who: str
    #: Percent of the clean step. With a prefetched loader, add a clean step, which prefetching
    #: hides.
    percent: float
    prefetched: bool = False

    @property
    def name(self) -> str:
        stage = f"prefetched-{self.stage}" if self.prefetched else self.stage
        fault = f"{stage}-{self.who}-{self.way}-{self.percent:g}"
        return f"{self.framework}-{self.ranks}-r{self.repeat}-{fault}"

    @property
    def rank(self) -> int | None:
        """Return the faulty rank; None if all ranks have the fault."""
        return zlib.crc32(self.name.encode()) % self.ranks if self.who == "one" else None

    @property
    def half(self) -> str:
        """Return the pair's half: ``calibration`` or ``check``."""
        return ("calibration", "check")[zlib.crc32(f"half of {self.name}".encode()) % 2]

    def fault_ms(self, clean_step_ms: float) -> float:
        """Return the size of the fault in one step."""
        return clean_step_ms * (self.percent / 100 + self.prefetched)


@dataclass(frozen=True)
class Segment:
    """One training of a launch: a baseline, or one of the two runs of a pair."""

    #: ``baseline``, ``fixed`` or ``faulty``.
    role: str
    #: The folder of this segment's baseline; a baseline's own folder.
    baseline: str
    pair: Pair | None = None

    @property
    def name(self) -> str:
        """Return the segment's name, which is also its folder's."""
        return self.baseline if self.pair is None else f"{self.pair.name}-{self.role}"

    @property
    def fixed(self) -> str | None:
        """Return the folder of the same run without the fault."""
        return None if self.pair is None else f"{self.pair.name}-fixed"


#: Segments that share a baseline, which comes first.
Group = list[Segment]


@dataclass(frozen=True)
class Plan:
    """What a launch must train."""

    groups: list[Group]
    #: The number of turns of every segment; it pauses for the others in between.
    turns: int
    #: Steps of a turn.
    steps: int

    @property
    def segments(self) -> list[Segment]:
        """Return the segments of all groups."""
        return list(itertools.chain.from_iterable(self.groups))

    @property
    def first_pair(self) -> Pair:
        """Return a pair: all have the same framework, number of ranks and repeat."""
        return next(segment.pair for segment in self.segments if segment.pair is not None)


def pairs(framework: str, ranks: int, repeat: int) -> list[Pair]:
    """Return the pairs of one launch, in random order.

    Every kind of fault occurs once. Its size differs between frameworks, numbers of ranks and
    repeats. A single rank is all ranks.
    """
    who = WHO if ranks > 1 else ("all",)
    faults = list(itertools.product(KINDS, WAYS, who))
    first = FRAMEWORKS.index(framework) + 2 * ranks.bit_length() + 3 * repeat
    planned = [
        Pair(framework, ranks, repeat, stage, way, who, percent, prefetched)
        for ((stage, prefetched), way, who), percent in zip(
            faults, itertools.islice(itertools.cycle(PERCENTS), first % len(PERCENTS), None)
        )
    ]
    random.Random(f"{framework} {ranks} {repeat}").shuffle(planned)
    return planned


def groups(wanted: list[Pair]) -> list[Group]:
    """Return the segments of a launch in order, in groups that share a baseline.

    A group starts with its baseline. Every second pair of it trains the faulty run first.
    """
    segment_groups = []
    for number, first in enumerate(range(0, len(wanted), _PAIRS_PER_BASELINE)):
        group_pairs = wanted[first : first + _PAIRS_PER_BASELINE]
        first_pair = group_pairs[0]
        baseline = (
            f"{first_pair.framework}-{first_pair.ranks}-r{first_pair.repeat}-baseline-{number}"
        )
        group = [Segment("baseline", baseline)]
        for index, pair in enumerate(group_pairs):
            roles = ("fixed", "faulty") if index % 2 == 0 else ("faulty", "fixed")
            group += [Segment(role, baseline, pair) for role in roles]
        segment_groups.append(group)
    return segment_groups


def in_turns(group: Sequence[R], turn: int) -> Sequence[R]:
    """Return the order in which a group's runs train in a turn.

    Every second turn has the opposite order, so that on average all runs are trained at the same time.
    """
    return group if turn % 2 == 0 else group[::-1]


def write_plan(path: Path, plan: Plan) -> None:
    """Write what a launch must train."""
    path.write_text(json.dumps(asdict(plan)))


def read_plan(path: Path) -> Plan:
    """Read what a launch must train."""
    content = json.loads(path.read_text())
    segments = [[_segment(segment) for segment in group] for group in content["groups"]]
    return Plan(segments, content["turns"], content["steps"])


def segment_path(folder: Path) -> Path:
    """Return where rank 0 describes a segment."""
    return folder / _SEGMENT


def rank_path(folder: Path, rank: int) -> Path:
    """Return where a rank writes its measurements after a segment."""
    return folder / f"rank-{rank:05d}.json"


def segment_content(segment: Segment, ranks: int, fault_ms: float) -> dict[str, object]:
    """Describe a segment for rank 0's file; ``fault_ms`` is the fault's size in one step."""
    links = {"fixed": segment.fixed, "rank": None if segment.pair is None else segment.pair.rank}
    return {**asdict(segment), **links, "ranks": ranks, "ms": fault_ms}


def is_trained(out: Path, run: Named) -> bool:
    """Tell whether every rank has finished a run."""
    folder = out / run.name
    if not segment_path(folder).exists():
        return False
    ranks = json.loads(segment_path(folder).read_text())["ranks"]
    return all(rank_path(folder, rank).exists() for rank in range(ranks))


def untrained_groups(out: Path, groups: Iterable[Sequence[R]]) -> list[list[R]]:
    """Return the groups with a run that is not trained; a group is trained as a whole."""
    return [list(group) for group in groups if not all(is_trained(out, run) for run in group)]


def trained_pairs(out: Path) -> list[Segment]:
    """Return the faulty runs whose fixed run and baseline are trained, too; by name."""
    segments = [
        _segment(json.loads(path.read_text())) for path in sorted(out.glob(f"*/{_SEGMENT}"))
    ]
    return [
        segment for segment in segments if segment.role == "faulty" and _is_complete(out, segment)
    ]


def _is_complete(out: Path, faulty: Segment) -> bool:
    others = (Segment("fixed", faulty.baseline, faulty.pair), Segment("baseline", faulty.baseline))
    return all(is_trained(out, segment) for segment in (faulty, *others))


def _segment(content: dict[str, object]) -> Segment:
    pair = content["pair"]
    assert isinstance(pair, dict) or pair is None
    parsed = None if pair is None else Pair(**pair)
    return Segment(str(content["role"]), str(content["baseline"]), parsed)
