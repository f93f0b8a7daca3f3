"""The trainings of the probes chapter: loaders with a fault, the same ones repaired, and turns of both.

Standard library and numpy only: the trainings also read the plan, in their own environments.
"""

from __future__ import annotations

import itertools
import json
import time
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from injection import burn, sleep, write_at_once
from pairs_launch import Pause, RunsInTurns, Training
from pairs_plan import is_trained, rank_path, segment_path

#: The frameworks, and what the page calls them.
FRAMEWORKS = {
    "keras": "Keras + Horovod",
    "torch": "PyTorch + Horovod",
    "ddp": "DDP",
    "trainer": "Hugging Face Trainer",
}

#: Causes of slow input, and what the page calls them.
CAUSES = {
    "storage": "slow storage",
    "decoding": "slow decoding",
    "collating": "slow collating",
    "no_workers": "no workers",
    "few_workers": "one worker, four needed",
    "slow_worker": "one slow worker of two",
    "slow_shard": "a slow shard",
    "slow_samples": "a few slow samples",
}

#: Each kind of pair: the cause, and the workers of the loader that has it. In Keras, calls at once.
_STAGE_KINDS = tuple(itertools.product(("storage", "decoding", "collating"), (0, 1)))
_WORKER_KINDS = (("no_workers", 0), ("few_workers", 1), ("slow_worker", 2), ("slow_samples", 2))
KINDS: dict[str, tuple[tuple[str, int], ...]] = {
    # The recorder times no worker of tf.data.
    "keras": (*itertools.product(("storage", "decoding"), (0, 1)), ("storage", 2)),
    "torch": (*_STAGE_KINDS, *_WORKER_KINDS, ("slow_shard", 2)),
    "ddp": (*_STAGE_KINDS, *_WORKER_KINDS, ("slow_shard", 2)),
    # Accelerate's processes share the batches of an iterable data set.
    "trainer": (*_STAGE_KINDS, *_WORKER_KINDS),
}
#: By how many milliseconds a loader delays a step, about, used alternately.
DELAYS_MS = (20, 30, 40)

#: Samples of a rank's batch; few, so that a repaired loader costs next to nothing.
BATCH = 8
#: Hidden layers of the model; few, so that ranks and their workers, which share few cores, have time.
LAYERS = 4
#: A rank waits so long in each forward pass, as for a device.
DEVICE_SECONDS = 0.015
# A loader that works ahead must take so much longer before it delays a step, which takes about that.
_HIDDEN_MS = 20
# Workers that keep up with a step.
_ENOUGH_WORKERS = 4
# One sample of so many batches is slow: of an odd number, so that each worker has some.
_SLOW_ONE_IN = 11

#: Batches that a probe fetches ahead, and iterations from one probe to the next.
BATCHES_AHEAD, PROBE_EVERY = 20, 60

# Steps of the first training of a launch.
_WARM_UP = 30
# The trainings of a group take turns, with all of their workers in memory.
_MOST_FAULTY_PER_GROUP = 4


@dataclass(frozen=True)
class Loader:
    """One rank's loader: who makes batches, and the milliseconds that the parts of one take.

    Reading waits, as for storage; decoding and collating use CPU time.
    """

    workers: int = 0
    reading_ms: float = 0.0
    decoding_ms: float = 0.0
    collating_ms: float = 0.0
    #: What is slow to read: ``all``, one ``worker``, one of as many ``shard``s, or some ``samples``.
    slow: str = "all"

    def read(self, sample: int, worker: int) -> None:
        """Take as long as reading a sample."""
        if not self.reading_ms:
            return
        if self.slow == "samples":
            if sample % (_SLOW_ONE_IN * BATCH) == 0:
                sleep(int(self.reading_ms * _SLOW_ONE_IN * 1e6))
        elif self.slow == "all" or worker == 0:
            sleep(int(self.reading_ms * 1e6 / BATCH))

    def decode(self) -> None:
        """Take as long as decoding a sample."""
        if self.decoding_ms:
            burn(int(self.decoding_ms * 1e6 / BATCH))

    def collate(self) -> None:
        """Take as long as collating a batch."""
        if self.collating_ms:
            burn(int(self.collating_ms * 1e6))


@dataclass(frozen=True)
class Run:
    """One training of a launch."""

    framework: str
    ranks: int
    repeat: int
    #: ``none`` for a repaired run.
    cause: str
    workers: int
    who: str = "all"
    #: By how much the loader delays a step, about.
    delay_ms: float = 0.0
    #: Whether the data is an iterable of shards.
    sharded: bool = False

    @property
    def name(self) -> str:
        fault = f"{self.cause}-{self.workers}-{self.who}-{self.delay_ms:g}"
        shards = "-shards" if self.sharded else ""
        return f"{self.framework}-{self.ranks}-r{self.repeat}-{fault}{shards}"

    @property
    def rank(self) -> int | None:
        """Return the rank with the fault; None if all ranks have it, or none."""
        return zlib.crc32(self.name.encode()) % self.ranks if self.who == "one" else None

    @property
    def repaired(self) -> Run:
        """Return the same training with a repaired loader."""
        if self.cause in ("no_workers", "few_workers"):
            # It makes the same batches in more workers.
            return replace(self, cause="none", workers=_ENOUGH_WORKERS, who="all")
        return replace(self, cause="none", who="all", delay_ms=0.0)

    def loader(self, rank: int) -> Loader:
        """Return the loader of a rank."""
        if self.rank not in (None, rank):
            return self.repaired.loader(rank)
        if self.cause == "none" and not self.delay_ms:
            return Loader(self.workers)
        if self.cause in ("none", "no_workers", "few_workers"):
            return Loader(self.workers, reading_ms=self.delay_ms + _HIDDEN_MS)
        # Workers work ahead while the step before takes its time.
        ms = self.delay_ms + (_HIDDEN_MS if self.workers else 0)
        if self.cause == "collating":
            return Loader(self.workers, collating_ms=ms)
        if self.cause in ("slow_worker", "slow_shard"):
            # Batches come in order: training waits for every second one.
            return Loader(self.workers, reading_ms=ms * 2, slow=self.cause.partition("_")[2])
        if self.cause == "slow_samples":
            return Loader(self.workers, reading_ms=ms, slow="samples")
        # So many batches are made at once.
        ms *= max(1, self.workers)
        if self.cause == "decoding":
            return Loader(self.workers, decoding_ms=ms)
        return Loader(self.workers, reading_ms=ms)


#: Runs that share a repaired run, which comes first.
Group = list[Run]


@dataclass(frozen=True)
class Plan:
    """What a launch must train."""

    groups: list[Group]
    #: Every run trains so many epochs of so many steps, one in a turn.
    epochs: int
    steps: int

    @property
    def runs(self) -> list[Run]:
        """Return the runs of all groups."""
        return list(itertools.chain.from_iterable(self.groups))

    @property
    def name(self) -> str:
        run = self.runs[0]
        return f"{run.framework}-{run.ranks}-r{run.repeat}"


def faulty_runs(framework: str, ranks: int, repeat: int) -> list[Run]:
    """Return the faulty runs of one launch.

    On two ranks, every kind occurs once; on one rank and on four, every second one.
    """
    first = list(FRAMEWORKS).index(framework) + repeat
    kinds = list(enumerate(KINDS[framework]))
    if ranks != 2:
        kinds = kinds[(first + (ranks > 2)) % 2 :: 2]
    runs = []
    for number, (cause, workers) in kinds:
        alone = (number + number // 2 + first) % 2 == 0 and ranks > 1
        delay_ms = DELAYS_MS[(number + first + ranks) % len(DELAYS_MS)]
        who = "one" if alone else "all"
        sharded = cause == "slow_shard"
        runs.append(Run(framework, ranks, repeat, cause, workers, who, delay_ms, sharded))
    return runs


def groups(runs: list[Run]) -> list[Group]:
    """Return runs in groups that share a repaired run."""
    by_repaired: dict[Run, list[Run]] = {}
    for run in runs:
        by_repaired.setdefault(run.repaired, []).append(run)
    return [
        [repaired, *faulty[first : first + _MOST_FAULTY_PER_GROUP]]
        for repaired, faulty in by_repaired.items()
        for first in range(0, len(faulty), _MOST_FAULTY_PER_GROUP)
    ]


def write_plan(path: Path, plan: Plan) -> None:
    path.write_text(json.dumps(asdict(plan)))


def read_plan(path: Path) -> Plan:
    content = json.loads(path.read_text())
    runs = [[Run(**run) for run in group] for group in content["groups"]]
    return Plan(runs, content["epochs"], content["steps"])


def trained_runs(out: Path) -> list[Run]:
    """Return all runs that every rank has finished, by name."""
    paths = sorted(out.glob(f"*/{segment_path(Path()).name}"))
    runs = [Run(**json.loads(path.read_text())) for path in paths]
    return [run for run in runs if is_trained(out, run)]


# -- One rank of a launch ------------------------------------------------------------------------

#: Train one run and log into a folder: epochs of so many steps, with a pause after each.
Train = Callable[[Run, Path, int, int, Pause], None]


class Rank(RunsInTurns[Run]):
    """One rank of a launch; the runs of a group take turns of an epoch."""

    def __init__(self, out: Path, rank: int, train: Train) -> None:
        super().__init__(out, rank)
        self._train = train

    def run(self, path: Path) -> None:
        """Train all groups of a plan, one after the other."""
        plan = read_plan(path)
        self.warm_up(plan.runs[0].repaired, path, _WARM_UP)
        self.train(plan.groups, plan.epochs, plan.steps)

    def training(self, run: Run, log_dir: Path, turns: int, steps: int) -> Training:
        return Training(lambda pause: self._train(run, log_dir, turns, steps, pause))

    def write(self, run: Run) -> None:
        if self._rank == 0:
            write_at_once(segment_path(self._out / run.name), asdict(run))
        write_at_once(rank_path(self._out / run.name, self._rank), {})


class Device:
    """A device that computes in every forward pass, while the host waits."""

    def here(self, stage: str) -> None:
        time.sleep(DEVICE_SECONDS)
