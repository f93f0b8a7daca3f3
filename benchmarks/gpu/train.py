"""Train one case of gpu_check.py, and write the times that the training itself measures.

    python -m gpu.train OUT CASE DEVICE STEPS
    torchrun --nproc-per-node 2 -m gpu.one_gpu_rank gpu.train OUT CASE DEVICE STEPS

``OUT/logs`` holds the logs, and ``OUT/truth-RANK.json`` the moments of every step in monotonic
nanoseconds, from events that are independent of the recorder. A case is made of words:

    input, compute   loading or computing is slow, on rank 1
    all              on all ranks instead
    buffers          rank 0 is slow instead, and the others wait for the buffers that it broadcasts
    profiled         torch.profiler writes its traces into ``OUT/traces``
    horovod          Horovod reduces
    waits            the host reads the loss twice in each step
    full             each tenth step finds no memory, until the allocator gives back what it keeps
    captures         the host captures a CUDA graph in each step, which a query of another thread breaks
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

from .cases import (
    CAPTURE_SECONDS,
    FAULT_SECONDS,
    GROWING_BYTES,
    GROWS_BY,
    GROWS_EVERY,
    MOST_BYTES,
    PROFILED,
)
from .ranks import connect, device_of

_BASES = 20
_INPUTS = 256
_LAYERS = 3


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
        return [{name: self._at(event) for name, event in step.items()} for step in self._steps]

    def _base(self) -> tuple[Any, float, float]:
        """Return an event, its time on the host's clock, and the largest error of that."""
        bases = []
        for _ in range(_BASES):
            event = torch.cuda.Event(enable_timing=True)
            torch.cuda.synchronize()
            before = time.monotonic_ns()
            event.record()
            event.synchronize()
            after = time.monotonic_ns()
            bases.append((event, (before + after) / 2, (after - before) / 2))
        return min(bases, key=lambda base: base[2])

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


def network(device: torch.device, buffers: bool, ranks: int) -> nn.Module:
    """Return a network whose steps take some milliseconds; its first parameter's gradient is last.

    Args:
        buffers: whether it has buffers, which DistributedDataParallel broadcasts.
        ranks: how many share the network's gradients: on one GPU they take long to reduce.
    """
    torch.manual_seed(1)
    width = 256 if device.type == "cpu" else 4096 if ranks == 1 else 1024
    layers: list[nn.Module] = [nn.Linear(_INPUTS, width, bias=False)]
    for _ in range(_LAYERS):
        layers += [nn.Linear(width, width), nn.ReLU()]
        if buffers:
            layers.append(nn.BatchNorm1d(width))
    return nn.Sequential(*layers, nn.Linear(width, 1)).to(device)


def reduced_by_horovod(optimizer: torch.optim.Optimizer, model: nn.Module) -> torch.optim.Optimizer:
    import horovod.torch as hvd

    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    wrapped: torch.optim.Optimizer = hvd.DistributedOptimizer(
        optimizer, named_parameters=model.named_parameters()
    )
    return wrapped


def mark_broadcasts(model: DistributedDataParallel, moments: Moments) -> None:
    """Mark when each broadcast of the model's buffers begins and ends."""
    model.register_forward_pre_hook(lambda *_: moments.mark("broadcast"))
    model.module.register_forward_pre_hook(lambda *_: moments.mark("broadcast_end"))


@contextlib.contextmanager
def profiled(out: Path, rank: int, wanted: bool) -> Iterator[Any]:
    if not wanted:
        yield None
        return
    path = out / "traces" / f"rank{rank}.pt.trace.json"
    path.parent.mkdir(exist_ok=True)
    profiler = torch.profiler.profile(
        schedule=torch.profiler.schedule(**PROFILED, repeat=1),
        on_trace_ready=lambda profile: profile.export_chrome_trace(str(path)),
    )
    with profiler:
        yield profiler


def read_twice(loss: torch.Tensor) -> float:
    first = loss.item()
    return first + float(loss)


def capture(device: torch.device) -> None:
    """Capture a graph for some milliseconds, in the mode in which other threads may query nothing."""
    if device.type != "cuda":
        return
    values = torch.zeros(8, device=device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        values.add_(1)
        time.sleep(CAPTURE_SECONDS)
    graph.replay()


class Growing:
    """Asks for more memory each time, so that no piece fits which the allocator has kept."""

    def __init__(self, device: torch.device, wanted: bool) -> None:
        self._device, self._wanted = device, wanted and device.type == "cuda"
        self._bytes = GROWING_BYTES
        if self._wanted:
            total = torch.cuda.get_device_properties(device).total_memory
            torch.cuda.set_per_process_memory_fraction(MOST_BYTES / total)

    def __call__(self, step: int) -> None:
        if self._wanted and step % GROWS_EVERY == 0:
            torch.empty(self._bytes, dtype=torch.uint8, device=self._device)
            self._bytes += GROWS_BY


def train(out: Path, case: str, device: torch.device, steps: int) -> None:
    by_horovod = "horovod" in case
    if by_horovod:
        import horovod.torch as hvd

        hvd.init()
        rank, ranks = hvd.rank(), hvd.size()
    else:
        rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    slow = "all" in case or rank == (0 if "buffers" in case else 1)
    late = Late(device, FAULT_SECONDS if slow and "compute" in case else 0.0)
    loads = FAULT_SECONDS if slow and "input" in case else 0.0
    samples = 256 if device.type == "cpu" else 1024 if ranks == 1 else 4096
    loader = DataLoader(Batches(steps, samples, loads), batch_size=None)
    model = network(device, "buffers" in case, ranks)
    moments = Moments(device)
    first = next(model.parameters())
    first.register_post_accumulate_grad_hook(lambda _: moments.mark("ready"))
    optimizer: Any = torch.optim.SGD(model.parameters(), 1e-4)
    if by_horovod:
        optimizer = reduced_by_horovod(optimizer, model)
    elif ranks > 1:
        connect(device)
        model = DistributedDataParallel(model)
        if "buffers" in case:
            mark_broadcasts(model, moments)
    growing = Growing(device, "full" in case)
    logger = StepLogger(out / "logs", optimizer=optimizer, model=model)
    # The context of the device, its libraries and its memory are no part of what is checked.
    with profiled(out, rank, "profiled" in case) as profiler, logger as log:
        for step, batch in enumerate(log.watch(loader)):
            moments.next_step()
            moments.mark("data")
            batch = batch.to(device, non_blocking=True)
            with torch.profiler.record_function("forward"):
                loss = model(batch).square().mean()
            late()
            with torch.profiler.record_function("backward"):
                loss.backward()
            if by_horovod:
                optimizer.synchronize()
            moments.mark("reduced")
            with torch.profiler.record_function("optimizer"):
                with optimizer.skip_synchronize() if by_horovod else contextlib.nullcontext():
                    optimizer.step()
                optimizer.zero_grad()
            moments.mark("end")
            if profiler is not None:
                profiler.step()
            if "waits" in case:
                read_twice(loss)
            if "captures" in case:
                capture(device)
            growing(step)
    truth = {"steps": moments.steps(), "error_ns": moments.error_ns}
    (out / f"truth-{rank}.json").write_text(json.dumps(truth))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    train(Path(sys.argv[1]), sys.argv[2], device_of(sys.argv[3]), int(sys.argv[4]))
