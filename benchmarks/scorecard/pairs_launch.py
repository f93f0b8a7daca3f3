"""One rank's part of a launch that trains pairs: the faults, and one training after the other.

Standard library only.
"""

from __future__ import annotations

import gc
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from injection import burn, cpu_wait_ns, mean_step_ns, sleep, write_at_once
from pairs_plan import FIRST, Segment, rank_path, read_plan, segment_content, segment_path

# Connecting and the first negotiation of every tensor are over by then.
_WARM_UP = 30


class Fault:
    """One rank's share of a segment's fault, which may be none.

    The hooks are the same in every training, also without a fault. They keep no count of steps:
    a prefetching loader runs ahead, also in other threads and processes.
    """

    def __init__(self, segment: Segment, rank: int, clean_step_ns: float) -> None:
        pair = segment.pair if segment.role == "faulty" else None
        here = pair is not None and pair.rank in (None, rank)
        self._stage = pair.stage if pair is not None and here else None
        self._inject = burn if pair is not None and pair.way == "burn" else sleep
        #: The size of the fault in one step, also on the ranks that do not have it.
        self.ms = 0.0 if pair is None else pair.fault_ms(clean_step_ns / 1e6)
        self.prefetched = segment.pair is not None and segment.pair.prefetched
        self._ends: list[int] = []
        self._waited = cpu_wait_ns()

    def here(self, stage: str) -> None:
        """Inject the fault if it is in this stage; to be called once per step and stage."""
        if stage == "other":
            self._ends.append(time.perf_counter_ns())
        if stage == self._stage:
            self._inject(int(self.ms * 1e6))

    def write(self, folder: Path, rank: int) -> None:
        """Write what this rank has measured."""
        content = {
            "step_ns": mean_step_ns(self._ends, _WARM_UP),
            "cpu_wait_ns": cpu_wait_ns() - self._waited,
            "steps": len(self._ends),
        }
        write_at_once(rank_path(folder, rank), content)


#: Trains one segment with a fault, logging into a folder, for so many steps.
Train = Callable[[Segment, Fault, Path, int], None]


def train_all(
    plan: Path, out: Path, rank: int, ranks: int, train: Train, agree: Callable[[float], float]
) -> None:
    """Train the segments of a plan one after the other.

    Args:
        plan: the file that lists the segments.
        out: folder for the segments' folders.
        rank: this process's rank.
        ranks: number of ranks.
        train: trains one segment.
        agree: hands every rank the number of rank 0.
    """
    if os.environ.get(FIRST):
        _come_first()
    segments, steps = read_plan(plan)
    # The first training connects the ranks and fills caches; it is no part of the data.
    first = Segment("warm-up", f"warm-up-{plan.stem}")
    train(first, Fault(first, rank, 0.0), out / first.name, 2 * _WARM_UP)
    for number, segment in enumerate(segments, 1):
        began = time.monotonic()
        folder = out / segment.name
        # Garbage of the last training is not to be collected during this one.
        gc.collect()
        fault = Fault(segment, rank, agree(_clean_step_ns(out, segment, rank)))
        train(segment, fault, folder / "logs", steps)
        if rank == 0:
            write_at_once(segment_path(folder), segment_content(segment, ranks, fault.ms))
        fault.write(folder, rank)
        if rank == 0:
            seconds = time.monotonic() - began
            print(f"{number}/{len(segments)} {segment.name} {seconds:.1f} s", flush=True)


def _come_first() -> None:
    """Prefer this process to other sessions' work.

    Linux shares cores between sessions; idle priority gives way to normal priority only within one.
    """
    Path("/proc/self/autogroup").write_text("-20")


def _clean_step_ns(out: Path, segment: Segment, rank: int) -> float:
    """The mean step of the segment's baseline, which was trained before it."""
    if segment.pair is None:
        return 0.0
    path = rank_path(out / segment.baseline, rank)
    return float(json.loads(path.read_text())["step_ns"])
