"""One rank's part of a launch of the causes chapter: it delays steps, and measures by how much.

Standard library and numpy only. The device sleeps; collections, compilations and saves are real, and
take as long as they must.
"""

from __future__ import annotations

import gc
import math
import queue
import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from causes_plan import (
    BATCH,
    BESIDE,
    DEVICE_MS,
    EVERY,
    LENGTH,
    PER_STEP_BESIDE,
    Batch,
    Fault,
    Run,
    read_plan,
)
from injection import own_wait_ns, sleep, write_at_once
from pairs_launch import Pause, RunsInTurns, Training
from pairs_plan import rank_path, segment_path

#: Hidden layers of the model; few, so that ranks that share few cores have time.
LAYERS = 4

# Steps of the first training, and of each one whose times are not used.
_WARM_UP = 20
_SAVING, _INTERPRETER = "saving", "interpreter"
# So many objects show how long a collection takes for one of them.
_TRIED_OBJECTS = 100_000
_TRIED_COLLECTIONS = 500
# The last save of a turn is over by then.
_SAVE_SECONDS = 10.0
# Python passes the lock on after 5 ms: another thread has it for less at a time, from a moment before
# training wants it.
_LONGEST_HOLD_MS, _HOLDS_BEFORE_MS = 4.0, 0.5

#: Compiles something for a length that is new, or once for any length, and takes so many seconds more.
Compile = Callable[[int, float], object]


class Sink:
    """A file that takes its time until all that was written is on the disk."""

    def __init__(self, wait: Callable[[], object]) -> None:
        self._wait = wait
        self._is_flushed = False

    def write(self, data: bytes) -> int:
        return len(data)

    def flush(self) -> None:
        if not self._is_flushed:
            self._is_flushed = True
            self._wait()


class LockHolder:
    """A thread that has Python's lock at given moments."""

    def __init__(self) -> None:
        self._orders: queue.SimpleQueue[tuple[int, int] | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="lock-holder", daemon=True).start()

    def hold(self, begin: int, end: int) -> None:
        """Have the lock between two moments, in nanoseconds of ``perf_counter_ns``."""
        self._orders.put((begin, end))

    def stop(self) -> None:
        self._orders.put(None)

    def _run(self) -> None:
        while (order := self._orders.get()) is not None:
            begin, end = order
            time.sleep(max(0, begin - time.perf_counter_ns()) / 1e9)
            while time.perf_counter_ns() < end:
                pass


class Causes:
    """One rank's share of a run's faults.

    The hooks are the same in every run, and take no time without a fault.

    Args:
        run: the run.
        rank: this rank.
        clean_ms: the time of the clean step, which decides how large the faults are.
    """

    def __init__(self, run: Run, rank: int, clean_ms: float) -> None:
        self.run, self.rank, self.clean_ms = run, rank, clean_ms
        self._faults = {fault.cause: fault for fault in run.faults}
        self._objects: list[list[None]] = []
        self._beside: dict[str, tuple[threading.Thread, threading.Event]] = {}
        self._holder: LockHolder | None = None
        self._ends: list[int] = []
        self._batches = 0
        # What is compiled for, and the seconds that the compiler itself takes.
        self._length, self._compiler_seconds = 2, math.inf
        #: Nanoseconds by which each cause has delayed this rank, of each step.
        self._delays: dict[str, list[int]] = {fault.cause: [0] for fault in run.faults}
        #: Set by the training, which has frameworks: saves the model, evaluates it for as long as its
        #: argument takes, and compiles for a new length.
        self.save: Callable[[Sink], object] = lambda _: None
        self.evaluate: Callable[[Callable[[], object]], object] = lambda _: None
        self.compile: Compile | None = None

    # -- hooks of a training, each called once per step

    def next_batch(self) -> Batch:
        """Return the sizes of the next batch, once it has been read."""
        fault = self._here("slow_input")
        if fault is not None:
            self._sleep(fault, self._ms(fault))
        number, self._batches = self._batches, self._batches + 1
        return self.run.batch(number, self.rank, self.clean_ms)

    def compute(self, elements: int) -> None:
        """Take as long as a device for so many elements, and collect garbage."""
        share = elements / (BATCH * LENGTH)
        if "free_work" in self._faults:
            share = 1.0
        batch = self.run.batch(self._step, self.rank, self.clean_ms)
        self._delay("unequal_work", int(DEVICE_MS * share * 1e6))
        padding = 1 - batch.tokens / (BATCH * batch.length)
        self._delay("padding", int(DEVICE_MS * share * padding * 1e6))
        self._compute(int(DEVICE_MS * share * 1e6))
        slow = self._here("slow_rank")
        if slow is not None:
            self._sleep(slow, self._ms(slow))
        for cause in self._beside:
            self._sleep(self._faults[cause], self._ms(self._faults[cause]) * PER_STEP_BESIDE)
        fault = self._faults.get("garbage_collection")
        if fault is not None and self.run.is_due(fault, self._step, self.rank):
            began = time.perf_counter_ns()
            gc.collect()
            self._delay(fault.cause, time.perf_counter_ns() - began)

    def compiled(self) -> None:
        """Call a compiled function, perhaps for a length that is new."""
        fault = self._faults.get("compilation")
        if fault is None or self.compile is None:
            return
        is_due = self.run.is_due(fault, self._step, self.rank)
        self._length += is_due
        wanted = self._ms(fault) * EVERY[fault.cause] / 1e3
        # The first compilation takes longer than later ones.
        more = max(0.0, wanted - self._compiler_seconds) if is_due else 0.0
        began = time.perf_counter_ns()
        self.compile(self._length, more)
        took = time.perf_counter_ns() - began
        if is_due:
            self._delay(fault.cause, took)
        if is_due or not self._step:
            self._compiler_seconds = min(self._compiler_seconds, took / 1e9 - more)

    def end_of_step(self) -> None:
        """Save, and count the step."""
        self._ends.append(time.perf_counter_ns())
        for delays in self._delays.values():
            delays.append(0)
        saving = self._faults.get(_SAVING)
        if saving is not None and self.run.is_due(saving, self._step, self.rank):
            began = time.perf_counter_ns()
            self.save(Sink(lambda: sleep(int(self._ms(saving) * EVERY[_SAVING] * 1e6))))
            self._delay(_SAVING, time.perf_counter_ns() - began)
        for cause in BESIDE:
            fault = self._faults.get(cause)
            if fault is not None and self.run.goes_on_beside(fault, self._step, self.rank):
                self._begin_beside(cause)
            else:
                self._end_beside(cause)

    # -- between turns

    def begin_turn(self) -> None:
        """Make the objects that collections look at, and the thread that holds the lock."""
        if self._here(_INTERPRETER) is not None:
            self._holder = LockHolder()
        fault = self._faults.get("garbage_collection")
        if fault is None:
            return
        wanted = self._ms(fault) * EVERY[fault.cause] * 1e6
        number = _TRIED_OBJECTS
        for _ in range(2):
            self._have_objects(number)
            # The second time corrects for caches, which do not hold many objects.
            number = int(number * wanted / _collection_ns())
        self._have_objects(number)
        if fault.repaired:
            gc.freeze()

    def end_turn(self) -> None:
        """Remove the objects, and end what goes on in other threads."""
        self._objects.clear()
        for cause in BESIDE:
            self._end_beside(cause)
        if self._holder is not None:
            self._holder.stop()
            self._holder = None

    # -- results

    @property
    def step_ms(self) -> float:
        """Return the median time from step to step, without the first ones."""
        ends = self._ends[_WARM_UP:]
        return statistics.median(b - a for a, b in zip(ends, ends[1:])) / 1e6

    @property
    def measured(self) -> dict[str, Any]:
        """Return by how much each fault has delayed this rank, in nanoseconds of each step."""
        return {"delays": self._delays}

    # -- how

    @property
    def _step(self) -> int:
        return len(self._ends)

    def _here(self, cause: str) -> Fault | None:
        fault = self._faults.get(cause)
        on_rank = fault is not None and self.run.rank_of(fault) in (None, self.rank)
        return fault if on_rank else None

    def _ms(self, fault: Fault) -> float:
        """Return what a fault costs per step, in the mean."""
        return self.clean_ms * fault.percent / 100

    def _delay(self, cause: str, ns: int) -> None:
        if cause in self._delays:
            self._delays[cause][self._step] += ns

    def _sleep(self, fault: Fault, ms: float) -> None:
        sleep(int(ms * 1e6))
        self._delay(fault.cause, int(ms * 1e6))

    def _compute(self, ns: int) -> None:
        """Wait for the device, and then for Python's lock if another thread has it."""
        fault = self._here(_INTERPRETER)
        if fault is None or self._holder is None:
            sleep(ns)
            return
        parts = math.ceil(self._ms(fault) / _LONGEST_HOLD_MS)
        held, before = int(self._ms(fault) / parts * 1e6), int(_HOLDS_BEFORE_MS * 1e6)
        for _ in range(parts):
            without_core = own_wait_ns()
            began = time.perf_counter_ns()
            wakes = began + ns // parts
            self._holder.hold(wakes - before, wakes + held)
            sleep(ns // parts)
            late = time.perf_counter_ns() - wakes
            # A thread that is ready to run, and has no core, does not wait for the lock.
            without_core = own_wait_ns() - without_core
            self._delay(fault.cause, max(0, late - without_core))

    def _have_objects(self, number: int) -> None:
        # Many new objects would start collections.
        gc.disable()
        self._objects.extend([] for _ in range(number - len(self._objects)))
        del self._objects[number:]
        gc.enable()

    def _begin_beside(self, cause: str) -> None:
        if cause in self._beside:
            return
        is_over = threading.Event()

        def wait() -> object:
            return is_over.wait(_SAVE_SECONDS)

        if cause == "background_saving":
            thread = threading.Thread(target=self.save, args=(Sink(wait),))
        else:
            thread = threading.Thread(target=self.evaluate, args=(wait,))
        self._beside[cause] = thread, is_over
        thread.start()

    def _end_beside(self, cause: str) -> None:
        if cause in self._beside:
            thread, is_over = self._beside.pop(cause)
            is_over.set()
            thread.join()


def _collection_ns() -> float:
    """Return the shortest CPU time of some collections: ranks that share cores make as many objects.

    Raises:
        RuntimeError: if Python's collector does not run.
    """
    times: list[int] = []
    for _ in range(_TRIED_COLLECTIONS):
        before = _collections()
        began = time.thread_time_ns()
        gc.collect()
        took = time.thread_time_ns() - began
        if _collections() > before:
            times.append(took)
        else:
            # While another thread collects, it returns at once.
            time.sleep(0.01)
        if len(times) == 3:
            return min(times)
    raise RuntimeError("Python's collector did not run, as if another thread was always collecting")


def _collections() -> int:
    """Return how often the oldest generation has been collected."""
    return gc.get_stats()[2]["collections"]


#: Train one run and log into a folder: so many turns of so many steps, with a pause after every turn.
Train = Callable[[Causes, Path, int, int, Pause], None]


class Rank(RunsInTurns[Run]):
    """One rank of a launch.

    Args:
        out: folder for the runs' folders.
        rank: this process's rank.
        train: trains one run.
        agree: returns rank 0's number on every rank.
    """

    def __init__(self, out: Path, rank: int, train: Train, agree: Callable[[float], float]) -> None:
        super().__init__(out, rank)
        self._train = train
        self._agree = agree
        self._causes: dict[str, Causes] = {}
        # The step of the group's clean run in its first turn.
        self._clean_ms = 0.0

    def run(self, path: Path) -> None:
        """Train all groups of a plan, one after the other."""
        plan = read_plan(path)
        self.warm_up(plan.runs[0], path, _WARM_UP)
        self.train(plan.groups, plan.turns, plan.steps)

    def training(self, run: Run, log_dir: Path, turns: int, steps: int) -> Training:
        causes = self._causes[run.name] = Causes(run, self._rank, self._clean_ms)
        return Training(lambda pause: self._train(causes, log_dir, turns, steps, pause))

    def before_turn(self, run: Run) -> None:
        super().before_turn(run)
        # Collections of this run must not look at the objects of libraries and of other runs.
        gc.freeze()
        self._causes[run.name].begin_turn()

    def after_turn(self, run: Run, turn: int) -> None:
        causes = self._causes[run.name]
        causes.end_turn()
        if turn == 0 and not run.faults:
            self._clean_ms = self._agree(causes.step_ms)

    def write(self, run: Run) -> None:
        # What has ended is garbage now.
        gc.unfreeze()
        folder, causes = self._out / run.name, self._causes.pop(run.name)
        if self._rank == 0:
            write_at_once(segment_path(folder), asdict(run))
        write_at_once(rank_path(folder, self._rank), causes.measured)
