"""Inject faults and measure their real size.

Standard library only. Every cell has the same hooks, including clean ones, so that cells differ only in
the fault.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from cells import Cell, truth_path, write_cell

# burn() hashes this: about 0.1 ms of work, mostly without the GIL.
_DATA = bytes(1 << 17)

#: Steps after which tracing, connecting and the first negotiation of every tensor are done.
WARM_UP = 100


class Injection:
    """Injects one rank's share of a cell's fault.

    Args:
        cell: the training.
        rank: this rank.
        steps: how many steps it trains.
        clean_step_ns: the step of the cell's baseline.
        batches: batches per step; each gets its part of the fault.
        warm_up: steps at the start whose times are not those of a clean step.
    """

    def __init__(
        self,
        cell: Cell,
        rank: int,
        steps: int,
        clean_step_ns: float,
        batches: int = 1,
        warm_up: int = WARM_UP,
    ) -> None:
        self.cell = cell
        self._rank = rank
        self._batches = batches
        self._warm_up = warm_up
        # Work after a step's end belongs to the next one, and the last step has no next one.
        self._turns = [*cell.turns(steps), ()]
        self._ns = int(clean_step_ns * cell.percent / 100 / batches)
        self._inject = spin if cell.way == "spin" else sleep
        #: Nanoseconds injected on this rank, per step.
        self.injected = [0] * (steps + 1)
        #: When each step's first batch was requested, to measure the clean step.
        self._requested: list[int] = []
        self._waited = cpu_wait_ns()
        self._batch = {"input": 0, "compute": 0, "device": 0, "other": batches}

    def here(self, stage: str) -> None:
        """Inject the fault if it is in this stage; call it once per batch and stage."""
        step, batch = divmod(self._batch[stage], self._batches)
        self._batch[stage] += 1
        if stage == "input" and not batch:
            self._requested.append(time.perf_counter_ns())
        if stage == self.cell.stage and self._rank in self._turns[step]:
            begin = time.perf_counter_ns()
            self._inject(self._ns)
            self.injected[step] += time.perf_counter_ns() - begin

    def fault_in(self, step: int) -> tuple[tuple[int, ...], int]:
        """Return the ranks that have the fault in a step, and its nanoseconds."""
        return self._turns[step], self._ns

    @property
    def step_ns(self) -> float:
        """Return the mean time from step to step, without warm-up."""
        return mean_step_ns(self._requested, self._warm_up)

    def write(self, folder: Path) -> None:
        """Write the truth for the scoring."""
        if self._rank == 0:
            write_cell(folder, self.cell)
        content = {
            "step_ns": self.step_ns,
            "cpu_wait_ns": cpu_wait_ns() - self._waited,
            "injected_ns": self.injected[:-1],
        }
        write_at_once(truth_path(folder, self._rank), content)


def mean_step_ns(times: list[int], warm_up: int) -> float:
    """Return the mean time from step to step, given a time of each step, without the first ones."""
    steady = times[warm_up:]
    return statistics.mean(b - a for a, b in zip(steady, steady[1:]))


def write_at_once(path: Path, content: object) -> None:
    """Write JSON so that readers never see a part of it."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content))
    part.rename(path)


def cpu_wait_ns() -> int:
    """Return how long all threads of this process have waited for a core so far."""
    waited = 0
    for path in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # a thread may end meanwhile
            waited += _thread_wait_ns(path)
    return waited


def own_wait_ns() -> int:
    """Return how long this thread has been ready to run without a core so far."""
    return _thread_wait_ns(Path("/proc/thread-self/schedstat"))


def _thread_wait_ns(schedstat: Path) -> int:
    return int(schedstat.read_text().split()[1])


def sleep(ns: int) -> None:
    time.sleep(ns / 1e9)


def spin(ns: int) -> None:
    """Keep a core busy until so many nanoseconds have passed."""
    end = time.perf_counter_ns() + ns
    while time.perf_counter_ns() < end:
        pass


def burn(ns: int) -> None:
    """Use so many nanoseconds of CPU time, like decoding: without the GIL, longer on a busy core."""
    end = time.thread_time_ns() + ns
    while time.thread_time_ns() < end:
        hashlib.sha256(_DATA)


class Machine:
    """Adapts the training to the cores of this rank: its own core, or shared ones.

    Ranks that share cores slow each other down at times, by more than most faults. So most of their
    compute is waiting, as for a device, and only the rest of the step competes for the cores.
    """

    _DEVICE_SECONDS = 0.006
    _SHARE_OF_SAMPLES = 12

    def __init__(self, shared: bool) -> None:
        self._shared = shared

    @classmethod
    def of_this_rank(cls) -> Machine:
        """Pin this rank to a core if there are enough; call it before any library creates threads."""
        rank, size = (int(os.environ[f"HOROVOD_LOCAL_{name}"]) for name in ("RANK", "SIZE"))
        cores = sorted(os.sched_getaffinity(0))
        if size <= len(cores):
            os.sched_setaffinity(0, {cores[rank]})
        return cls(shared=size > len(cores))

    def samples(self, on_a_core: int) -> int:
        """Return the batch size, given that on an unshared core."""
        return on_a_core // self._SHARE_OF_SAMPLES if self._shared else on_a_core

    def wait_for_device(self) -> None:
        if self._shared:
            time.sleep(self._DEVICE_SECONDS)


class Launch:
    """The cells of one launch, trained one after the other.

    Args:
        out: the folder of the cells' folders.
        cells: what is trained.
        steps: of each cell.
        rank: this rank.
        batches: batches per step.
        warm_up: steps that warm up; a training of twice as many comes before all cells.
    """

    def __init__(
        self,
        out: Path,
        cells: list[Cell],
        steps: int,
        rank: int,
        batches: int = 1,
        warm_up: int = WARM_UP,
    ) -> None:
        self._out = out
        self._cells = cells
        self._steps = steps
        self._rank = rank
        self._batches = batches
        self._warm_up = warm_up

    def train(
        self,
        train: Callable[[Injection, Path, int], None],
        agree: Callable[[float], float],
    ) -> None:
        """Train all cells.

        Args:
            train: trains one cell for so many steps, and logs into the folder.
            agree: returns rank 0's number on every rank.
        """
        first = self._cells[0]
        warm = self._injection(Cell(first.framework, first.ranks, 0, 0), 2 * self._warm_up, 0.0)
        train(warm, self._out / f"warm-up-{first.framework}-{first.ranks}", 2 * self._warm_up)
        for number, cell in enumerate(self._cells, 1):
            began = time.monotonic()
            folder = self._out / cell.name
            injection = self._injection(cell, self._steps, agree(self._clean_step(cell)))
            train(injection, folder / "logs", self._steps)
            injection.write(folder)
            if self._rank == 0:
                seconds = time.monotonic() - began
                print(f"{number}/{len(self._cells)} {cell.name} {seconds:.1f} s", flush=True)

    def _injection(self, cell: Cell, steps: int, clean_step_ns: float) -> Injection:
        return Injection(cell, self._rank, steps, clean_step_ns, self._batches, self._warm_up)

    def _clean_step(self, cell: Cell) -> float:
        """Return the step of the cell's baseline, trained earlier; in nanoseconds."""
        path = truth_path(self._out / cell.baseline, self._rank)
        return json.loads(path.read_text())["step_ns"] if cell.percent else 0.0
