"""One rank's part of a launch that trains pairs: data, faults, and the trainings that alternate.

Standard library and numpy only. Only one of the trainings runs at a time.
"""

from __future__ import annotations

import gc
import os
import statistics
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, Protocol

import numpy as np
import numpy.typing as npt
from injection import burn, sleep, write_at_once
from pairs_plan import (
    FIRST,
    R,
    Segment,
    in_turns,
    rank_path,
    read_plan,
    segment_content,
    segment_path,
)

#: 42 tensors, 5.3 MB of gradients, and 20 to 40 ms of one core per step. In shorter steps the fixed
#: overhead, about a millisecond, would decide how well gains are predicted.
BATCH = 640
WIDTH = 256
LAYERS = 20
CLASSES = 10

_SAMPLES = 4096

# Connecting and the first negotiation of every tensor are done by then.
_WARM_UP = 15
# Batches that a loader prefetches, and the one that it is making.
_QUEUED = 3
_SETTLE_SECONDS = 0.05

#: How long a training may take to end after its last turn.
END_SECONDS = 60

#: A training calls it where it may pause; it returns when the training's next turn starts.
Pause = Callable[[], None]


class Samples:
    """Samples in memory as bytes, and batches of them like a usual loader's."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._pixels = self._random.integers(0, 256, (_SAMPLES, WIDTH), np.uint8)
        self._labels = self._random.integers(0, CLASSES, _SAMPLES)

    def batch(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """Return random samples, scaled to −1 to 1, half of them mirrored; with their labels."""
        chosen = self._random.integers(0, _SAMPLES, BATCH)
        x = self._pixels[chosen].astype(np.float32) / 127.5 - 1
        mirrored = self._random.random(BATCH) < 0.5
        x[mirrored] = x[mirrored, ::-1]
        return x, self._labels[chosen]


class Training:
    """Runs a training in a separate thread, and only during its turns.

    Args:
        train: the whole training; calls its argument to end a turn.
    """

    def __init__(self, train: Callable[[Pause], None]) -> None:
        self._train = train
        self._begins, self._ends = threading.Semaphore(0), threading.Semaphore(0)
        self._error: BaseException | None = None
        # A failed training must not keep the process alive.
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def take_turn(self) -> None:
        """Run until the training pauses or ends.

        Raises:
            BaseException: whatever the training raises.
        """
        self._begins.release()
        self._ends.acquire()
        if self._error is not None:
            raise self._error

    def finish(self) -> None:
        """Run until the training has ended; it must not pause again.

        Raises:
            BaseException: whatever the training raises.
            RuntimeError: if it pauses.
        """
        self.take_turn()
        self._thread.join(END_SECONDS)
        if self._thread.is_alive():
            raise RuntimeError("a training has not ended after its last turn")

    def _run(self) -> None:
        self._begins.acquire()
        try:
            self._train(self._pause)
        except BaseException as error:
            self._error = error
        self._ends.release()

    def _pause(self) -> None:
        self._ends.release()
        self._begins.acquire()


class Delays(Protocol):
    """What takes its time at the hooks of a model."""

    def here(self, stage: str) -> None:
        """Take as long as it takes in this stage; called once per step and stage."""


class Fault:
    """One rank's share of a segment's fault, or no fault.

    The hooks are the same in every training, also without a fault. They do not count steps: a
    prefetching loader runs ahead, also in other threads and processes.
    """

    def __init__(self, segment: Segment, rank: int, clean_step_ms: float) -> None:
        pair = segment.pair if segment.role == "faulty" else None
        here = pair is not None and pair.rank in (None, rank)
        self._stage = pair.stage if pair is not None and here else None
        self._inject = burn if pair is not None and pair.way == "burn" else sleep
        #: The size of the fault in one step, also on ranks without it.
        self.ms = 0.0 if pair is None else pair.fault_ms(clean_step_ms)
        self.prefetched = segment.pair is not None and segment.pair.prefetched
        self._ends: list[int] = []

    def here(self, stage: str) -> None:
        """Inject the fault if it is in this stage; call it once per step and stage."""
        if stage == "other":
            self._ends.append(time.perf_counter_ns())
        if stage == self._stage:
            self._inject(int(self.ms * 1e6))

    @property
    def step_ms(self) -> float:
        """Return the median time from step to step, without the first ones."""
        ends = self._ends[_WARM_UP:]
        return statistics.median(b - a for a, b in zip(ends, ends[1:])) / 1e6

    def write(self, folder: Path, rank: int) -> None:
        """Write this rank's measurements."""
        write_at_once(rank_path(folder, rank), {"step_ms": self.step_ms, "steps": len(self._ends)})


#: Train one segment with a fault and log into a folder: so many turns of so many steps, with a
#: pause after every turn.
Train = Callable[[Segment, Fault, Path, int, int, Pause], None]


class RunsInTurns(ABC, Generic[R]):
    """One rank's runs of a launch; those of a group take turns.

    Args:
        out: folder for the runs' folders.
        rank: this process's rank.
    """

    def __init__(self, out: Path, rank: int) -> None:
        self._out = out
        self._rank = rank

    @abstractmethod
    def training(self, run: R, log_dir: Path, turns: int, steps: int) -> Training:
        """Prepare a run before its first turn; a turn has so many steps."""

    def before_turn(self, run: R) -> None:
        """Prepare a turn, while the training waits."""
        # Collects the garbage of other trainings before this one's turn.
        gc.collect()

    def after_turn(self, run: R, turn: int) -> None:
        """Clean up after a turn, while the training waits."""

    @abstractmethod
    def write(self, run: R) -> None:
        """Describe a run that has ended, and write this rank's measurements."""

    def warm_up(self, run: R, path: Path, steps: int) -> None:
        """Train a plan's first run, whose data is not used: it connects the ranks and fills caches."""
        training = self.training(run, self._out / f"warm-up-{path.stem}", 1, steps)
        training.take_turn()
        training.finish()

    def train(self, groups: Sequence[Sequence[R]], turns: int, steps: int) -> None:
        """Train all groups, one after the other."""
        for number, group in enumerate(groups, 1):
            began = time.monotonic()
            self._train_group(group, turns, steps)
            if self._rank == 0:
                seconds = time.monotonic() - began
                done = f"{number}/{len(groups)} {group[0].name}"
                print(f"{done} {len(group)} runs, {seconds:.1f} s", flush=True)

    def _train_group(self, group: Sequence[R], turns: int, steps: int) -> None:
        trainings: dict[str, Training] = {}
        for turn in range(turns):
            for run in in_turns(group, turn):
                if turn == 0:
                    log_dir = self._out / run.name / "logs"
                    trainings[run.name] = self.training(run, log_dir, turns, steps)
                self.before_turn(run)
                trainings[run.name].take_turn()
                self.after_turn(run, turn)
        # Recorders hook into libraries: what was placed last is removed first.
        for run in reversed(group):
            trainings[run.name].finish()
            self.write(run)


class Rank(RunsInTurns[Segment]):
    """One rank of a launch that trains pairs.

    Args:
        out: folder for the segments' folders.
        rank: this process's rank.
        ranks: number of ranks.
        train: trains one segment.
        agree: returns rank 0's number on every rank.
    """

    def __init__(
        self, out: Path, rank: int, ranks: int, train: Train, agree: Callable[[float], float]
    ) -> None:
        super().__init__(out, rank)
        self._ranks = ranks
        self._train = train
        self._agree = agree
        self._faults: dict[str, Fault] = {}
        # The step of the group's baseline in its first turn, which determines the size of the faults.
        self._clean_ms = 0.0

    def run(self, path: Path) -> None:
        """Train all groups of a plan, one after the other."""
        if os.environ.get(FIRST):
            _take_priority()
        plan = read_plan(path)
        self.warm_up(Segment("warm-up", "warm-up"), path, 2 * _WARM_UP)
        self.train(plan.groups, plan.turns, plan.steps)

    def training(self, run: Segment, log_dir: Path, turns: int, steps: int) -> Training:
        fault = self._faults[run.name] = Fault(run, self._rank, self._clean_ms)
        return Training(lambda pause: self._train(run, fault, log_dir, turns, steps, pause))

    def after_turn(self, run: Segment, turn: int) -> None:
        fault = self._faults[run.name]
        # A loader that runs ahead fills its queue before the next training starts.
        time.sleep(_SETTLE_SECONDS + _QUEUED * fault.ms / 1e3)
        if turn == 0 and run.pair is None:
            self._clean_ms = self._agree(fault.step_ms)

    def write(self, run: Segment) -> None:
        folder, fault = self._out / run.name, self._faults.pop(run.name)
        if self._rank == 0:
            write_at_once(segment_path(folder), segment_content(run, self._ranks, fault.ms))
        fault.write(folder, self._rank)


def _take_priority() -> None:
    """Give this process priority over the work of other sessions.

    Linux shares cores between sessions; idle priority yields to normal priority only within one.
    """
    Path("/proc/self/autogroup").write_text("-20")
