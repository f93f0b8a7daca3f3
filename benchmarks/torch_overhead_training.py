"""Train copies of one model step by step in turns: without a recorder, with StepLogger, with traceml-ai,
and with the sections of NVIDIA's straggler detection (nvidia-resiliency-ext), for torch_overhead.py.

    traceml run benchmarks/torch_overhead_training.py --args OUT ROUNDS STEPS LAYERS
    python benchmarks/torch_overhead_training.py OUT ROUNDS STEPS LAYERS [DEVICE]

Every arm trains a copy, and the arms alternate after every step: disturbances last longer than a
step and affect all arms. Copies differ in speed because their memory lies elsewhere; in a round every
arm trains every copy, so that this cancels out. StepLogger removes its hooks from a model after its
turn. traceml-ai's patches of torch and its sampling thread stay active in all arms, so its measured
cost is too low. NVIDIA's sections are timed on the CPU only, and its reports, which need a GPU, are
never made. A tool that is not installed has no arm.

Writes OUT/result.json: for every arm and round, the microseconds that it adds to a step; and
OUT/logs.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

from stallscope.torch import StepLogger


def straggler_detection() -> Any:
    """Import NVIDIA's straggler detection, whose extension needs CUPTI's library also without a GPU.

    Raises:
        ImportError: if it is not installed.
    """
    cupti = importlib.util.find_spec("nvidia.cuda_cupti")
    if cupti is not None and cupti.submodule_search_locations:
        for library in Path(cupti.submodule_search_locations[0]).glob("lib/libcupti.so.*"):
            ctypes.CDLL(str(library))
    return importlib.import_module("nvidia_resiliency_ext.straggler")


try:
    import traceml_ai
except ImportError:
    traceml_ai = None
try:
    straggler = straggler_detection()
except ImportError:
    straggler = None

WIDTH = 64
BATCH = 32
# In its first eight steps StepLogger learns which gradient finishes last.
SKIPPED = 12
WARM_UP_ROUNDS = 1


class Copy:
    """A small network on prepared batches: a step takes a few milliseconds."""

    def __init__(self, layers: int, steps: int, device: str) -> None:
        torch.manual_seed(1)
        parts: list[torch.nn.Module] = []
        for _ in range(layers):
            parts += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()]
        self.model = torch.nn.Sequential(*parts).to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        # traceml-ai times how long this class takes to fetch.
        self.loader = DataLoader(
            [torch.randn(BATCH, WIDTH, device=device)] * steps, batch_size=None
        )

    def step_times(
        self, batches: Iterable[torch.Tensor], around: Callable[[], AbstractContextManager]
    ) -> Iterator[int]:
        """Train step by step, and yield the nanoseconds of each."""
        begun = time.perf_counter_ns()
        for batch in batches:
            with around():
                self.optimizer.zero_grad()
                self.model(batch).square().mean().backward()
                self.optimizer.step()
            yield time.perf_counter_ns() - begun
            begun = time.perf_counter_ns()


def steps_of_arm(arm: str, copy: Copy, logs: Path, stack: ExitStack) -> Iterator[int]:
    if arm == "steplogger":
        log = stack.enter_context(StepLogger(logs, optimizer=copy.optimizer, model=copy.model))
        return copy.step_times(log.watch(copy.loader), nullcontext)
    if arm == "traceml":
        return copy.step_times(copy.loader, lambda: traceml_ai.trace_step(copy.model))
    if arm == "nvidia":
        return copy.step_times(
            copy.loader, lambda: straggler.Detector.detection_section("step", profile_cuda=False)
        )
    return copy.step_times(copy.loader, nullcontext)


def turn(
    arms: dict[str, Copy], steps: int, logs: Path, order: random.Random
) -> tuple[dict[str, float], float]:
    """Return the microseconds that each arm adds to a step of the bare arm, and those of that step."""
    with ExitStack() as stack:
        ways = {arm: steps_of_arm(arm, copy, logs, stack) for arm, copy in arms.items()}
        times: dict[str, list[int]] = {arm: [] for arm in arms}
        for _ in range(steps):
            for arm in order.sample(sorted(arms), len(arms)):
                times[arm].append(next(ways[arm]))
    pairs = {arm: list(zip(arm_times, times["none"]))[SKIPPED:] for arm, arm_times in times.items()}
    added = {
        arm: statistics.median(time - none for time, none in its) / 1e3
        for arm, its in pairs.items()
        if arm != "none"
    }
    return added, statistics.median(none for _, none in pairs["none"]) / 1e3


def main() -> None:
    out = Path(sys.argv[1])
    rounds, steps, layers = map(int, sys.argv[2:5])
    device = sys.argv[5] if len(sys.argv) > 5 else "cpu"
    torch.set_num_threads(1)
    arms = ["none", "steplogger"]
    if traceml_ai is not None:
        # As its documentation shows for custom loops.
        traceml_ai.init(mode="auto")
        arms.append("traceml")
    if straggler is not None:
        straggler.Detector.initialize()
        arms.append("nvidia")
    copies = [Copy(layers, steps, device) for _ in arms]
    order = random.Random(7)
    added: dict[str, list[float]] = {arm: [] for arm in arms[1:]}
    bare = []
    for number in range(WARM_UP_ROUNDS + rounds):
        turns = []
        for shift in range(len(arms)):
            turned = copies[shift:] + copies[:shift]
            turns.append(turn(dict(zip(arms, turned)), steps, out / "logs", order))
        if number >= WARM_UP_ROUNDS:
            for arm in added:
                added[arm].append(statistics.fmean(by_arm[arm] for by_arm, _ in turns))
            bare += [step_us for _, step_us in turns]
    result = {"gradients": 2 * layers, "added_us": added, "step_us": statistics.median(bare)}
    (out / "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
