"""The runs of the causes chapter: causes inside steps, of known size, alone and two at once.

Standard library only: the trainings also read the plan, in their own environments.
"""

from __future__ import annotations

import itertools
import json
import random
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pairs_plan import is_trained, segment_path

#: The frameworks, and what the page calls them.
FRAMEWORKS = {
    "ddp": "DDP",
    "torch": "PyTorch + Horovod",
    "keras": "Keras + Horovod",
    "trainer": "Hugging Face Trainer",
    "jax": "JAX",
}
#: The launches. Each process of a rank takes a core's time, so that more ranks would need more cores.
#: In the compiled step of several processes of JAX compute and waiting cannot be told apart.
RANKS = {"ddp": (2, 4), "torch": (2, 4), "keras": (2, 4), "trainer": (2,), "jax": (1,)}

#: The causes by their codes in reports, with the ranks that may have them.
WHO = {
    "garbage_collection": ("one", "rotating", "all"),
    "unequal_work": ("one", "rotating"),
    "saving": ("one", "all"),
    "compilation": ("one", "rotating", "all"),
    "background_saving": ("one", "all"),
    "padding": ("all",),
    "background_evaluation": ("all",),
    "interpreter": ("one",),
}
#: Causes that are trained together, alone and two at once.
TOGETHER = (
    ("garbage_collection", "unequal_work"),
    ("saving", "compilation"),
    ("background_saving", "padding"),
)
#: These are trained after the others: in one launch both, and in those of PyTorch only the latter. In
#: Keras' and JAX's, threads of the framework compute, and training waits for these in turn.
_ON_THREADS = (("background_evaluation", "interpreter"),)
_OF_PYTORCH, _FOR_THE_LOCK = ("ddp", "torch", "trainer"), (("interpreter",),)
#: Keras' recorder takes saves for checkpoints between steps, and counts no tokens; that of JAX knows
#: Orbax's saves only. One rank's work is equal to itself.
_TOGETHER_IN = {
    "keras": (("garbage_collection", "unequal_work"), ("compilation",)),
    "jax": (("garbage_collection", "padding"), ("compilation",)),
}
#: Sizes in percent of the clean step.
PERCENTS = (5, 10, 30)

#: What makes steps slow and is no cause inside them, with the ranks that may have it.
SLOW = {
    "slow_rank": ("one",),
    "slow_input": ("one", "all"),
    # Batches of different sizes that take the same time.
    "free_work": ("all",),
}
#: Causes whose repair leaves what they are about: collections of frozen objects, compilations for all
#: shapes. The repair of the others leaves them out.
REPAIRED_IN_PLACE = ("garbage_collection", "compilation")
#: The launch that has every kind of ranks for each cause; the others have one, in turn.
_WHOLE = ("ddp", 2)

#: A cause that pauses a rank does so in one of as many steps.
EVERY = {"garbage_collection": 10, "saving": 10, "compilation": 30}
#: What goes on beside training, which makes steps slower as long as it lasts.
BESIDE = ("background_saving", "background_evaluation")
#: It starts in one of so many steps, and is over after so many.
SAVE_EVERY, SAVE_LASTS = 40, 10
#: The steps from one to the next, for each one beside one.
PER_STEP_BESIDE = SAVE_EVERY / SAVE_LASTS
# The first one starts in this step.
_FIRST_SAVE = 10

#: Samples of a batch, and tokens of one, in the mean.
BATCH, LENGTH = 8, 200
#: How long the simulated device takes for a mean batch, in each forward pass; its time is
#: proportional to the batch.
DEVICE_MS = 20.0
# Lengths of batches vary by this share of the mean from step to step.
_SPREAD = 0.2


@dataclass(frozen=True)
class Fault:
    """A cause of slow steps, and its size."""

    #: One of ``WHO`` or ``SLOW``.
    cause: str
    who: str
    #: Percent of the clean step that it costs the job.
    percent: float
    #: Whether it is repaired in place, and costs next to nothing.
    repaired: bool = False

    @property
    def name(self) -> str:
        return f"{self.cause}-{self.who}-{'repaired' if self.repaired else f'{self.percent:g}'}"


@dataclass(frozen=True)
class Run:
    """One training of a launch."""

    framework: str
    ranks: int
    repeat: int
    #: The group's number within its launch: each has its own clean run.
    group: int
    faults: tuple[Fault, ...] = ()

    @property
    def name(self) -> str:
        what = "+".join(fault.name for fault in self.faults) or "clean"
        return f"{self.framework}-{self.ranks}-r{self.repeat}-g{self.group}-{what}"

    @property
    def causes(self) -> tuple[Fault, ...]:
        """Return the faults that a report must name."""
        return tuple(fault for fault in self.faults if fault.cause in WHO and not fault.repaired)

    def rank_of(self, fault: Fault) -> int | None:
        """Return the only rank with a fault; None if several have it."""
        place = f"{self.framework} {self.repeat} {self.group} {fault.cause}"
        return zlib.crc32(place.encode()) % self.ranks if fault.who == "one" else None

    def without(self, cause: str) -> Run:
        """Return the same run with this cause repaired."""
        others = tuple(fault for fault in self.faults if fault.cause != cause)
        if not others and cause in REPAIRED_IN_PLACE:
            # Every rank does the same, whichever had the fault.
            (fault,) = self.faults
            others = (replace(fault, who="all", repaired=True),)
        return replace(self, faults=others)

    def is_due(self, fault: Fault, step: int, rank: int) -> bool:
        """Tell whether a fault pauses a rank in a step."""
        number, rest = divmod(step, EVERY[fault.cause])
        if rest != EVERY[fault.cause] - 1:
            return False
        return fault.who == "all" or rank == (
            number % self.ranks if fault.who == "rotating" else self.rank_of(fault)
        )

    def goes_on_beside(self, fault: Fault, step: int, rank: int) -> bool:
        """Tell whether a rank saves or evaluates beside a step."""
        on_rank = self.rank_of(fault) in (None, rank)
        return on_rank and (step - _FIRST_SAVE) % SAVE_EVERY < SAVE_LASTS and step >= _FIRST_SAVE

    def batch(self, number: int, rank: int, clean_ms: float) -> Batch:
        """Return the sizes of a rank's batch, given the clean step's time.

        All ranks' batches of a step have the same sizes, unless work is unequal.
        """
        chance = random.Random(f"{self.ranks} {self.repeat} {self.group} {number}")
        usual = LENGTH * chance.uniform(1 - _SPREAD, 1 + _SPREAD)
        length = usual
        for fault in self.faults:
            share = fault.percent / 100 * clean_ms / DEVICE_MS
            if fault.cause == "unequal_work":
                only, drawn = self.rank_of(fault), chance.randrange(self.ranks)
                most = drawn if only is None else only
                more = chance.uniform(0, 2) * share
                length *= 1 + more if rank == most else 1 - more / (self.ranks - 1)
            elif fault.cause == "padding":
                length *= 1 + share
            elif fault.cause == "free_work":
                length *= [chance.uniform(1 - _SPREAD, 1 + _SPREAD) for _ in range(self.ranks)][
                    rank
                ]
        padding = any(fault.cause == "padding" for fault in self.faults)
        tokens = round(BATCH * length / (1 + share)) if padding else BATCH * round(length)
        return Batch(round(length), min(tokens, BATCH * round(length)))


@dataclass(frozen=True)
class Batch:
    """A batch's places per sample, and the tokens of all its samples together."""

    length: int
    tokens: int

    @property
    def lengths(self) -> list[int]:
        """Return the tokens of each sample; the first one has the whole length."""
        each, more = divmod(self.tokens - self.length, BATCH - 1)
        return [self.length, *(each + (number < more) for number in range(BATCH - 1))]


#: Runs that take turns, with the clean one first and all repaired ones.
Group = list[Run]


@dataclass(frozen=True)
class Plan:
    """What a launch must train."""

    groups: list[Group]
    #: The number of turns of every run, and the steps of a turn.
    turns: int
    steps: int

    @property
    def runs(self) -> list[Run]:
        """Return the runs of all groups."""
        return list(itertools.chain.from_iterable(self.groups))

    @property
    def name(self) -> str:
        run = self.runs[0]
        return f"{run.framework}-{run.ranks}-r{run.repeat}"


def groups(
    framework: str, ranks: int, repeat: int, percents: Sequence[int] = PERCENTS
) -> list[Group]:
    """Return the groups of a launch: for each size, causes that are trained together.

    A group has the same number whichever sizes are wanted.
    """
    sized = list(itertools.product(enumerate(PERCENTS), _TOGETHER_IN.get(framework, TOGETHER)))
    if framework in _OF_PYTORCH:
        more = _ON_THREADS if (framework, ranks) == _WHOLE else _FOR_THE_LOCK
        sized += itertools.product(enumerate(PERCENTS), more)
    first = repeat + ranks // 2 + list(FRAMEWORKS).index(framework)
    return [
        _group(Run(framework, ranks, repeat, number), causes, percent, first + size)
        for number, ((size, percent), causes) in enumerate(sized)
        if percent in percents
    ]


def _group(clean: Run, causes: Sequence[str], percent: int, turn: int) -> Group:
    alone = [
        [Fault(cause, who, percent) for who in _some(WHO[cause], turn, clean)] for cause in causes
    ]
    slow, who = list(SLOW.items())[(clean.group + turn) % len(SLOW)]
    # The smallest size would be too small to be noticed.
    only_slow = Fault(slow, who[turn % len(who)], max(percent, 10))
    faulty = [replace(clean, faults=(fault,)) for fault in (*itertools.chain(*alone), only_slow)]
    if len(alone) > 1:
        at_once = tuple(faults[turn % len(faults)] for faults in alone)
        faulty.append(replace(clean, faults=at_once))
    repaired = [run.without(fault.cause) for run in faulty for fault in run.causes]
    return list(dict.fromkeys([clean, *repaired, *faulty]))


def _some(who: tuple[str, ...], turn: int, run: Run) -> tuple[str, ...]:
    return who if (run.framework, run.ranks) == _WHOLE else (who[turn % len(who)],)


def write_plan(path: Path, plan: Plan) -> None:
    path.write_text(json.dumps(asdict(plan)))


def read_plan(path: Path) -> Plan:
    content = json.loads(path.read_text())
    return Plan(
        [[_run(run) for run in group] for group in content["groups"]],
        content["turns"],
        content["steps"],
    )


def trained_runs(out: Path) -> list[Run]:
    """Return all runs that every rank has finished, by name."""
    paths = sorted(out.glob(f"*/{segment_path(Path()).name}"))
    runs = [_run(json.loads(path.read_text())) for path in paths]
    return [run for run in runs if is_trained(out, run)]


def _run(content: dict[str, Any]) -> Run:
    return Run(**{**content, "faults": tuple(Fault(**fault) for fault in content["faults"])})
