"""The slow hosts of the scorecard: framework, hosts, the fault of one of them, and its size.

Standard library only: the trainings read their case as well, in other environments.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

FRAMEWORKS = ("torch", "ddp")
#: Faults of one host, with the possible numbers of hosts. Neighbours take a core, and this machine has
#: one for each of two ranks; with two hosts, no link can be compared with another.
FAULTS = {
    "throttled": (2, 3),
    "neighbour": (2,),
    "disk": (2, 3),
    "memory": (2, 3),
    "link": (3, 4),
}
CLEAN = "clean"
CLEAN_HOSTS = (2, 3, 4)
#: One host's clocks are wrong, and run too fast; nothing is slow.
CLOCK = "clock"
CLOCK_HOSTS = (2, 3)
#: The least and the greatest size of a fault: cores, busy processes, MB/s, MB, Mbit/s, ppm.
SIZES = {
    "throttled": (0.2, 0.4),
    "neighbour": (2, 3),
    "disk": (2.0, 6.0),
    "memory": (30.0, 60.0),
    "link": (20.0, 60.0),
    CLOCK: (50.0, 300.0),
}
_HOSTS = {**FAULTS, CLEAN: CLEAN_HOSTS, CLOCK: CLOCK_HOSTS}
#: By how much the wrong wall clock is ahead.
AHEAD_SECONDS = 7.3
#: The reasons that are right.
REASONS = {
    "throttled": {"throttled"},
    "neighbour": {"waits_for_cores", "other_processes"},
    "disk": {"disk"},
    "memory": {"major_faults", "memory_pressure"},
}

STEPS = 300
_CASE = "case.json"


@dataclass(frozen=True)
class Case:
    """One training on hosts with a rank each, and the fault of one of them."""

    framework: str
    hosts: int
    seed: int
    number: int
    #: One of ``FAULTS``, ``CLOCK`` or ``CLEAN``.
    what: str
    #: The faulty host's rank; None in a clean run.
    rank: int | None
    #: In the unit of the fault.
    size: float

    @property
    def name(self) -> str:
        """Return the case's name, which is also its folder's."""
        return f"{self.framework}-s{self.seed}-{self.number:03d}-{self.what}-{self.hosts}"


def cases(framework: str, seed: int) -> Iterator[Case]:
    """Yield endless cases of a framework; each round has every fault once, and a clean run."""
    chosen = random.Random(f"{seed} {framework}")
    numbers = itertools.count()
    while True:
        round_ = [*FAULTS, CLEAN]
        chosen.shuffle(round_)
        for what in round_:
            yield _case(framework, seed, next(numbers), what, chosen)


def clock_cases(framework: str, seed: int) -> Iterator[Case]:
    """Yield endless cases of a framework with a wrong clock."""
    chosen = random.Random(f"{seed} {framework} {CLOCK}")
    return (_case(framework, seed, number, CLOCK, chosen) for number in itertools.count())


def _case(framework: str, seed: int, number: int, what: str, chosen: random.Random) -> Case:
    hosts = chosen.choice(_HOSTS[what])
    low, high = SIZES.get(what, (0, 0))
    size = chosen.randint(low, high) if isinstance(low, int) else chosen.uniform(low, high)
    rank = None if what == CLEAN else chosen.randrange(hosts)
    return Case(framework, hosts, seed, number, what, rank, round(size, 2))


def plan(frameworks: tuple[str, ...], runs: int, seed: int) -> list[Case]:
    """Choose so many runs, equally many of each framework, and one with a wrong clock per eight."""
    chosen = []
    for of, count in ((cases, runs), (clock_cases, runs // 8)):
        endless = {name: of(name, seed) for name in frameworks}
        turns = itertools.islice(itertools.cycle(frameworks), count)
        chosen += [next(endless[name]) for name in turns]
    return chosen


def write_case(folder: Path, case: Case) -> None:
    (folder / _CASE).write_text(json.dumps(asdict(case)))


def read_case(folder: Path) -> Case:
    return Case(**json.loads((folder / _CASE).read_text()))


def log_dir(folder: Path) -> Path:
    return folder / "logs"


def data_path(folder: Path, rank: int) -> Path:
    """Return the file that a rank's loader reads."""
    return folder / f"data-{rank}"


def clock_path(folder: Path, rank: int) -> Path:
    """Return the file in which a rank writes readings of its clock and of the true one."""
    return folder / f"clock-{rank}.json"
