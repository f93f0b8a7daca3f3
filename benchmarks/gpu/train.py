"""Train one case of gpu_check.py, and write the times that the training itself measures.

    python train.py OUT CASE DEVICE STEPS
    torchrun --nproc-per-node 2 train.py OUT CASE DEVICE STEPS

``OUT/logs`` holds the logs, and ``OUT/truth-RANK.json`` the moments of every step in monotonic
nanoseconds, from events that are independent of the recorder. The case ``profiled`` also writes
``OUT/trace.json``.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

from stallscope.torch import StepLogger

#: The size of a fault: longer than any step without it.
FAULT_SECONDS = 0.03
#: The steps that torch.profiler records.
PROFILED = {"skip_first": 20, "wait": 0, "warmup": 3, "active": 10}
_BASES = 20
_INPUTS = 256


class Batches(Dataset[torch.Tensor]):
    """One batch again and again; each takes a while to load."""

    def __init__(self, steps: int, samples: int, seconds: float) -> None:
        self._batch = torch.randn(samples, _INPUTS)
        self._steps, self._seconds = steps, seconds

    def __len__(self) -> int:
        return self._steps

    def __getitem__(self, index: int) -> torch.Tensor:
        if self._seconds:
            time.sleep(self._seconds)
        return self._batch


class Moments:
    """Records when the device reaches marks; on a CPU, when they are set."""

    def __init__(self, device: torch.device) -> None:
        self._on_device = device.type == "cuda"
        self._steps: list[dict[str, Any]] = []
        self._bases = [self._base()] if self._on_device else []

    def next_step(self) -> None:
        self._steps.append({})

    def mark(self, name: str) -> None:
        if self._on_device:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._steps[-1][name] = event
        else:
            self._steps[-1][name] = time.monotonic_ns()

    def steps(self) -> list[dict[str, int]]:
        """Return the moments of all steps, in monotonic nanoseconds."""
        if not self._on_device:
            return self._steps
        self._bases.append(self._base())
        return [{name: self._at(event) for name, event in one.items()} for one in self._steps]

    def _base(self) -> tuple[Any, float, float]:
        """Return an event, its time on the host's clock, and the largest error of that."""
        found = []
        for _ in range(_BASES):
            event = torch.cuda.Event(enable_timing=True)
            torch.cuda.synchronize()
            before = time.monotonic_ns()
            event.record()
            event.synchronize()
            after = time.monotonic_ns()
            found.append((event, (before + after) / 2, (after - before) / 2))
        return min(found, key=lambda one: one[2])

    def _at(self, event: Any) -> int:
        (first, began, _), (last, ended, _) = self._bases
        rate = (ended - began) / first.elapsed_time(last)
        return round(began + first.elapsed_time(event) * rate)

    @property
    def error_ns(self) -> float:
        return max((error for *_, error in self._bases), default=0.0)


class Late:
    """Delays the device like a slow kernel that leaves capacity for other processes."""

    def __init__(self, device: torch.device, seconds: float) -> None:
        self._device, self._seconds = device, seconds
        self._cycles = self._calibrated() if seconds and device.type == "cuda" else 0

    def __call__(self) -> None:
        if self._cycles:
            torch.cuda._sleep(self._cycles)
        elif self._seconds:
            time.sleep(self._seconds)

    def _calibrated(self) -> int:
        cycles = 50_000_000
        for _ in range(3):
            torch.cuda.synchronize()
            began = time.perf_counter()
            torch.cuda._sleep(cycles)
            torch.cuda.synchronize()
            took = time.perf_counter() - began
        return int(cycles * self._seconds / took)


def network(device: torch.device) -> nn.Module:
    """Return a network whose steps take some milliseconds; its first parameter's gradient is last."""
    torch.manual_seed(1)
    width = 4096 if device.type == "cuda" else 256
    hidden: list[nn.Module] = []
    for _ in range(3):
        hidden += [nn.Linear(width, width), nn.ReLU()]
    layers = [nn.Linear(_INPUTS, width, bias=False), *hidden, nn.Linear(width, 1)]
    return nn.Sequential(*layers).to(device)


def device_of(kind: str) -> torch.device:
    if kind == "cpu":
        return torch.device("cpu")
    # Two ranks share the device if there is only one.
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def connect(device: torch.device) -> bool:
    """Connect the ranks, if there are several; NCCL refuses two on one device."""
    size = int(os.environ.get("WORLD_SIZE", 1))
    if size > 1:
        own = device.type == "cuda" and torch.cuda.device_count() >= size
        torch.distributed.init_process_group("nccl" if own else "gloo")
    return size > 1


@contextlib.contextmanager
def profiled(out: Path, wanted: bool) -> Iterator[Any]:
    if not wanted:
        yield None
        return
    profiler = torch.profiler.profile(
        schedule=torch.profiler.schedule(**PROFILED, repeat=1),
        on_trace_ready=lambda one: one.export_chrome_trace(str(out / "trace.json")),
    )
    with profiler:
        yield profiler


def train(out: Path, case: str, device: torch.device, steps: int) -> None:
    rank = int(os.environ.get("RANK", 0))
    slow = rank == 1 or "all" in case
    late = Late(device, FAULT_SECONDS if slow and "compute" in case else 0.0)
    loads = FAULT_SECONDS if slow and "input" in case else 0.0
    samples = 1024 if device.type == "cuda" else 256
    loader = DataLoader(Batches(steps, samples, loads), batch_size=None)
    model = network(device)
    first = next(model.parameters())
    if connect(device):
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    moments = Moments(device)
    first.register_post_accumulate_grad_hook(lambda _: moments.mark("ready"))
    logger = StepLogger(out / "logs", optimizer=optimizer, model=model)
    # The context of the device, its libraries and its memory are no part of what is checked.
    with profiled(out, case == "profiled") as profiler, logger as log:
        for batch in log.watch(loader):
            moments.next_step()
            moments.mark("data")
            batch = batch.to(device, non_blocking=True)
            with torch.profiler.record_function("forward"):
                loss = model(batch).square().mean()
            late()
            with torch.profiler.record_function("backward"):
                loss.backward()
            moments.mark("reduced")
            with torch.profiler.record_function("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
            moments.mark("end")
            if profiler is not None:
                profiler.step()
    truth = {"steps": moments.steps(), "error_ns": moments.error_ns}
    (out / f"truth-{rank}.json").write_text(json.dumps(truth))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    train(Path(sys.argv[1]), sys.argv[2], device_of(sys.argv[3]), int(sys.argv[4]))
