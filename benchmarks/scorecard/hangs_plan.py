"""The hangs of the scorecard: framework, ranks and hosts, the fault, its place and time.

Standard library only: the trainings read their case as well, in other environments.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

FRAMEWORKS = ("torch", "keras", "ddp")
RANKS = (2, 4)
#: What happens to one rank, for good.
FAULTS = ("loader", "backward", "between", "collective", "kill", "stop", "power")
#: What takes long in a healthy run.
CLEAN = ("validation", "evaluation", "checkpoint", "first step", "pause", "plain")
#: The stage of a hang; ranks that do not run report none.
STAGES = {
    "loader": "input",
    "backward": "compute",
    "between": "other",
    "collective": "collective",
}

# Three clean runs follow the faults of each round.
_CLEAN_PER_ROUND = 3
# By then warm-up is over, and the usual step time is known.
_STEPS = (25, 60)
# A kill or a stop comes at any moment of a step.
_STEP_MS = 20.0


@dataclass(frozen=True)
class Case:
    """One training and its fault or pause."""

    framework: str
    ranks: int
    #: One, or one for each rank.
    hosts: int
    seed: int
    number: int
    #: One of ``FAULTS`` or of ``CLEAN``.
    what: str
    #: The affected rank; None in a clean run.
    rank: int | None
    step: int
    #: The time from the start of that step to a kill or a stop.
    delay_ms: float

    @property
    def name(self) -> str:
        """Return the case's name, which is also its folder's."""
        what = self.what.replace(" ", "-")
        ranks = f"{self.ranks}-on-{self.hosts}"
        return f"{self.framework}-s{self.seed}-{self.number:03d}-{what}-{ranks}"

    @property
    def clean(self) -> bool:
        return self.what in CLEAN

    @property
    def stage(self) -> str | None:
        """Return the stage to be found."""
        return STAGES.get(self.what)


def cases(framework: str, seed: int) -> Iterator[Case]:
    """Yield endless cases of a framework; each round has every fault once on 2 and on 4 ranks."""
    chosen = random.Random(f"{seed} {framework}")
    healthy = itertools.cycle(chosen.sample(CLEAN, len(CLEAN)))
    numbers = itertools.count()
    while True:
        faults = list(itertools.product(FAULTS, RANKS))
        chosen.shuffle(faults)
        clean = [(next(healthy), chosen.choice(RANKS)) for _ in range(_CLEAN_PER_ROUND)]
        for what, ranks in (*faults, *clean):
            yield Case(
                framework,
                ranks,
                # The launcher's host keeps its power.
                ranks if what == "power" else chosen.choice((1, ranks)),
                seed,
                next(numbers),
                what,
                chosen.randrange(1 if what == "power" else 0, ranks) if what in FAULTS else None,
                chosen.randint(*_STEPS),
                round(chosen.uniform(0, _STEP_MS), 1),
            )


def plan(frameworks: tuple[str, ...], runs: int, seed: int) -> list[Case]:
    """Return so many cases, of the frameworks in turn."""
    turns = zip(*(cases(framework, seed) for framework in frameworks), strict=True)
    return list(itertools.islice(itertools.chain.from_iterable(turns), runs))


# -- files between the scoring and the trainings -------------------------------------------------


def case_path(folder: Path) -> Path:
    return folder / "case.json"


def moment_path(folder: Path) -> Path:
    """Return where a rank writes the wall time of the fault, in seconds."""
    return folder / "moment.json"


def pid_path(folder: Path, rank: int) -> Path:
    return folder / f"pid-{rank}.json"


def write_case(folder: Path, case: Case) -> None:
    case_path(folder).write_text(json.dumps(asdict(case)))


def read_case(folder: Path) -> Case:
    return Case(**json.loads(case_path(folder).read_text()))
