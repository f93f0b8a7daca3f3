"""The pairs of trainings: a faulty run, and the same run without the fault.

Standard library only: the trainings also read the plan, in their own environments.
"""

from __future__ import annotations

import itertools
import json
import random
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path

FRAMEWORKS = ("keras", "torch", "ddp")
#: Stages that a fault is in, and whether a prefetching loader hides some of it.
KINDS = (("input", False), ("input", True), ("compute", False), ("other", False))
WAYS = ("sleep", "burn")
WHO = ("one", "all")
#: Sizes of faults in percent of the clean step, used in turns.
PERCENTS = (100, 50, 200, 20, 150)

#: Set in the environment of trainings that come before all other work on the machine.
FIRST = "STALLSCOPE_PAIRS_FIRST"

# A group's trainings take turns, so that the machine's drift meets them alike. All are in memory.
_PAIRS_PER_BASELINE = 4

_SEGMENT = "segment.json"


@dataclass(frozen=True)
class Pair:
    """A fault, and where it is injected."""

    framework: str
    ranks: int
    repeat: int
    stage: str
    way: str
    who: str
    #: Of the clean step. A prefetched loader takes a clean step more, which prefetching hides.
    percent: float
    prefetched: bool = False

    @property
    def name(self) -> str:
        stage = f"prefetched-{self.stage}" if self.prefetched else self.stage
        fault = f"{stage}-{self.who}-{self.way}-{self.percent:g}"
        return f"{self.framework}-{self.ranks}-r{self.repeat}-{fault}"

    @property
    def rank(self) -> int | None:
        """The faulty rank; None where all ranks have the fault."""
        return zlib.crc32(self.name.encode()) % self.ranks if self.who == "one" else None

    @property
    def half(self) -> str:
        """The half of the pairs that this one belongs to: ``calibration`` or ``check``."""
        return ("calibration", "check")[zlib.crc32(f"half of {self.name}".encode()) % 2]

    def fault_ms(self, clean_step_ms: float) -> float:
        """The size of the fault in one step."""
        return clean_step_ms * (self.percent / 100 + self.prefetched)


@dataclass(frozen=True)
class Segment:
    """One training of a launch: a baseline, or one of the two runs of a pair."""

    #: ``baseline``, ``fixed`` or ``faulty``.
    role: str
    #: The folder of the baseline that this segment belongs to; a baseline's own folder.
    baseline: str
    pair: Pair | None = None

    @property
    def name(self) -> str:
        """Also the name of the segment's folder."""
        return self.baseline if self.pair is None else f"{self.pair.name}-{self.role}"

    @property
    def fixed(self) -> str | None:
        """The folder of the same run without the fault."""
        return None if self.pair is None else f"{self.pair.name}-fixed"


#: Segments that share a baseline, the first one.
Group = list[Segment]


@dataclass(frozen=True)
class Plan:
    """What a launch is to train."""

    groups: list[Group]
    #: Every segment trains so many times, and pauses for the others in between.
    turns: int
    #: Steps of a turn.
    steps: int

    @property
    def segments(self) -> list[Segment]:
        """The segments of all groups."""
        return list(itertools.chain.from_iterable(self.groups))


def pairs(framework: str, ranks: int, repeat: int) -> list[Pair]:
    """The pairs of one launch, in random order.

    Every kind of fault comes once. Its size differs between frameworks, numbers of ranks and
    repeats. One rank alone is all ranks.
    """
    who = WHO if ranks > 1 else ("all",)
    faults = list(itertools.product(KINDS, WAYS, who))
    first = FRAMEWORKS.index(framework) + 2 * ranks.bit_length() + 3 * repeat
    made = [
        Pair(framework, ranks, repeat, stage, way, who, percent, prefetched)
        for ((stage, prefetched), way, who), percent in zip(
            faults, itertools.islice(itertools.cycle(PERCENTS), first % len(PERCENTS), None)
        )
    ]
    random.Random(f"{framework} {ranks} {repeat}").shuffle(made)
    return made


def groups(wanted: list[Pair]) -> list[Group]:
    """The segments of a launch in order, in groups that share a baseline.

    A group begins with its baseline. Of its pairs, every second one trains the faulty run first.
    """
    made = []
    for number, first in enumerate(range(0, len(wanted), _PAIRS_PER_BASELINE)):
        own = wanted[first : first + _PAIRS_PER_BASELINE]
        one = own[0]
        baseline = f"{one.framework}-{one.ranks}-r{one.repeat}-baseline-{number}"
        group = [Segment("baseline", baseline)]
        for index, pair in enumerate(own):
            roles = ("fixed", "faulty") if index % 2 == 0 else ("faulty", "fixed")
            group += [Segment(role, baseline, pair) for role in roles]
        made.append(group)
    return made


def in_turns(group: Group, turn: int) -> Group:
    """The order in which a group's segments train in a turn.

    Every second turn has the opposite order: on average, all segments are trained at the same time.
    """
    return group if turn % 2 == 0 else group[::-1]


def write_plan(path: Path, plan: Plan) -> None:
    """Write what a launch is to train."""
    path.write_text(json.dumps(asdict(plan)))


def read_plan(path: Path) -> Plan:
    """What a launch is to train."""
    content = json.loads(path.read_text())
    segments = [[_segment(one) for one in group] for group in content["groups"]]
    return Plan(segments, content["turns"], content["steps"])


def segment_path(folder: Path) -> Path:
    """Where rank 0 describes a segment."""
    return folder / _SEGMENT


def rank_path(folder: Path, rank: int) -> Path:
    """Where a rank writes its measurements after a segment."""
    return folder / f"rank-{rank:05d}.json"


def segment_content(segment: Segment, ranks: int, fault_ms: float) -> dict[str, object]:
    """What rank 0 writes about a segment; ``fault_ms`` is the fault's size in one step."""
    links = {"fixed": segment.fixed, "rank": None if segment.pair is None else segment.pair.rank}
    return {**asdict(segment), **links, "ranks": ranks, "ms": fault_ms}


def is_trained(out: Path, segment: Segment) -> bool:
    """Whether every rank has finished the segment."""
    folder = out / segment.name
    if not segment_path(folder).exists():
        return False
    ranks = json.loads(segment_path(folder).read_text())["ranks"]
    return all(rank_path(folder, rank).exists() for rank in range(ranks))


def trained_pairs(out: Path) -> list[Segment]:
    """The faulty runs whose fixed run and baseline are trained, too; by name."""
    found = [_segment(json.loads(path.read_text())) for path in sorted(out.glob(f"*/{_SEGMENT}"))]
    return [one for one in found if one.role == "faulty" and _is_complete(out, one)]


def _is_complete(out: Path, faulty: Segment) -> bool:
    others = (Segment("fixed", faulty.baseline, faulty.pair), Segment("baseline", faulty.baseline))
    return all(is_trained(out, one) for one in (faulty, *others))


def _segment(content: dict[str, object]) -> Segment:
    pair = content["pair"]
    assert isinstance(pair, dict) or pair is None
    made = None if pair is None else Pair(**pair)
    return Segment(str(content["role"]), str(content["baseline"]), made)
