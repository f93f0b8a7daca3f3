"""The hangs of the scorecard: framework, ranks and hosts, the fault, its place and time.

A rank makes its part of a case happen with ``Place``. Standard library only: the trainings run in other
environments.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from injection import write_at_once

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

#: How long healthy runs pause.
SECONDS = {"validation": 20.0, "evaluation": 20.0, "checkpoint": 15.0, "first step": 15.0}
# How many parts an evaluation has, each with a collective.
_PARTS = 200
# A step's compute mostly waits, as for a device, because ranks share cores.
_DEVICE_SECONDS = 0.008
# Steps of a healthy run after its pause, and of one without a pause.
_STEPS_AFTER = 600
_PLAIN_STEPS = 1500

_SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


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


# -- one rank of a run ----------------------------------------------------------------------------


class Place:
    """Makes one rank's part of a case happen.

    Args:
        folder: the run's folder, with its case.
        rank: this process's rank.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        self.case = read_case(folder)
        self.log_dir = folder / "logs"
        self._folder = folder
        self._rank = rank
        #: Calls a collective that is in no step.
        self.collective: Callable[[], object] | None = None
        self._passes: dict[str, itertools.count[int]] = defaultdict(itertools.count)
        write_at_once(pid_path(folder, rank), os.getpid())

    @property
    def steps(self) -> int:
        """Return the number of steps, if nothing ends the training earlier."""
        return _PLAIN_STEPS if self.case.what == "plain" else self.case.step + _STEPS_AFTER

    def here(self, place: str) -> None:
        """Hang or signal this rank if it is due; call this once per step at each place of ``STAGES``."""
        step = next(self._passes[place])
        if place == "loader" and self._rank == 0 and step == self._recorded_step:
            self._record_moment()
        if step != self.case.step or self._rank != self.case.rank:
            return
        if place == "loader" and self.case.what == "power":
            # The scoring then cuts the host's power.
            self._record_moment()
        if place == self.case.what:
            self._record_moment()
            self._hang()
        if place == "loader" and self.case.what in _SIGNALS:
            threading.Thread(target=self._signal_soon, daemon=True).start()

    @property
    def _recorded_step(self) -> int | None:
        """The step at which a healthy run without another pause records the moment."""
        return self.case.step if self.case.what in ("pause", "plain") else None

    def _hang(self) -> None:
        if self.case.what == "collective":
            assert self.collective is not None
            self.collective()
        threading.Event().wait()

    def evaluate(self) -> None:
        """Evaluate for long, with many collectives of all ranks."""
        if self._rank == 0:
            self._record_moment()
        assert self.collective is not None
        for part in range(_PARTS):
            # One rank takes longer than the others, which wait for it.
            slower = 1.5 if self._rank == part * 4 // _PARTS % self.case.ranks else 0.5
            time.sleep(slower * SECONDS["evaluation"] / _PARTS)
            self.collective()

    def compute(self) -> None:
        """Wait as long as a step's compute takes."""
        time.sleep(_DEVICE_SECONDS)

    def pauses(self, what: str, step: int | None = None) -> bool:
        """Return whether the training pauses for this in this step (None: in any step)."""
        return what == self.case.what and step in (None, self.case.step)

    def pause(self) -> None:
        """Wait as long as this case's validation, checkpoint or tracing takes."""
        assert self.case.what in CLEAN
        if self._rank == 0:
            self._record_moment()
        time.sleep(SECONDS[self.case.what])

    def _signal_soon(self) -> None:
        time.sleep(self.case.delay_ms / 1e3)
        self._record_moment()
        os.kill(os.getpid(), _SIGNALS[self.case.what])

    def _record_moment(self) -> None:
        write_at_once(moment_path(self._folder), time.time())
