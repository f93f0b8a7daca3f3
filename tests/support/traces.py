"""Synthetic traces in torch.profiler's format: one process, its loader, and streams of a GPU."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
ANNOTATION, OPERATOR, KERNEL = "user_annotation", "cpu_op", "kernel"
ON_DEVICE = "gpu_user_annotation"
#: Threads: of training, and of Gloo.
MAIN, GLOO = 7, 8
#: Streams of the device.
COMPUTE, COMMUNICATION = 17, 20

#: Start and length, microseconds.
Times = tuple[float, float]


def event(
    name: str, ts: float, dur: float, kind: str = ANNOTATION, tid: int = MAIN, **args: int | str
) -> str:
    pid = 0 if kind in (KERNEL, ON_DEVICE) else 4711
    what = f'"cat": "{kind}", "name": "{name}", "pid": {pid}, "tid": {tid}'
    more = f', "args": {json.dumps(args)}' if args else ""
    return f'{{"ph": "X", {what}, "ts": {ts:.3f}, "dur": {dur:.3f}{more}}}'


def trace_of(*events: str, head: str = '"deviceProperties": [],') -> bytes:
    text = ",\n".join(events)
    return f'{{"schemaVersion": 1, {head} "traceEvents": [\n{text}\n]}}'.encode()


def head_of(rank: int, size: int, host: str = "node-0", backend: str = "nccl") -> str:
    world = {"backend": backend, "rank": rank, "world_size": size}
    known = f'"distributedInfo": {json.dumps(world)}, "host_name": "{host}",'
    return f'"deviceProperties": [], {known} "baseTimeNanoseconds": 1790857026000000000,'


@dataclass
class GpuStep:
    """The true times of one step on a GPU, milliseconds."""

    input: float
    compute: float
    #: The time of the allreduce's kernels, and how much of it compute hides.
    communication: float
    overlapped: float
    update: float


@dataclass
class GpuRank:
    """A rank of a job on GPUs. A step loads a batch, computes, and starts to reduce before its end."""

    rank: int
    size: int
    host: str = "node-0"
    #: By how much this host's clock is ahead, milliseconds.
    clock_ms: float = 0.0
    events: list[str] = field(default_factory=list)
    _now: float = 1_000_000.0
    # When the host launches the next kernel.
    _launching: float = 0.0

    def add(self, number: int, step: GpuStep, reduced: float) -> float:
        """Add a step whose allreduce ends on all ranks at a time (µs); return the next one's start."""
        begin = self._now
        ms = 1e3
        loaded = begin + step.input * ms
        self._launching = loaded + self.clock_ms * ms + 2
        ready = loaded + step.compute * ms
        started = ready - step.overlapped * ms
        update = step.update * ms
        end = reduced + update
        self._host(f"ProfilerStep#{number}", begin, end - begin)
        self._host(LOADER, begin, step.input * ms)
        self._kernels("void at::native::sgemm", loaded, ready)
        self._kernel(NCCL, started, reduced, COMMUNICATION)
        self._kernel("nccl:all_reduce", started, reduced, COMMUNICATION, ON_DEVICE)
        self._kernel("multi_tensor_apply_kernel", reduced, end, COMPUTE)
        self._kernel(f"ProfilerStep#{number}", loaded, end, COMPUTE, ON_DEVICE)
        self._kernel(f"ProfilerStep#{number}", started, reduced, COMMUNICATION, ON_DEVICE)
        # The launches of kernels have other times than the kernels.
        self._host("nccl:all_reduce", loaded + 1, 20)
        self._host("aten::mm", loaded + 1, 30, OPERATOR)
        self._now = end
        return end

    def _host(self, name: str, at: float, takes: float, kind: str = ANNOTATION) -> None:
        self.events.append(event(name, at + self.clock_ms * 1e3, takes, kind))

    def _kernels(self, name: str, begin: float, end: float) -> None:
        """Add kernels without gaps."""
        middle = (begin + end) / 2
        self._kernel(name, begin, middle, COMPUTE)
        self._kernel(name, middle, end, COMPUTE)

    def _kernel(self, name: str, begin: float, end: float, stream: int, kind: str = KERNEL) -> None:
        begin, takes, number = begin + self.clock_ms * 1e3, end - begin, len(self.events)
        place = {"device": 0, "stream": stream, "correlation": number, "External id": number}
        self.events.append(event(name, begin, takes, kind, stream, **place))
        if kind == KERNEL:
            launched = event(
                "cudaLaunchKernel", self._launching, 4, "cuda_runtime", cbid=211, correlation=number
            )
            self.events.append(launched)
            self._launching += 5

    def write(self, folder: Path) -> None:
        data = trace_of(*self.events, head=head_of(self.rank, self.size, self.host))
        (folder / f"rank{self.rank}.pt.trace.json").write_bytes(data)


def write_gpu_job(
    folder: Path,
    steps: int,
    *,
    input_ms: tuple[float, ...],
    clock_ms: tuple[float, ...] = (0.0, 0.0),
    hosts: tuple[str, ...] = ("node-0", "node-0"),
    seed: int = 0,
) -> list[list[GpuStep]]:
    """Write the traces of a job and return the true times, by rank and step.

    Args:
        input_ms: by rank, how long a batch takes.
    """
    chance = Random(seed)
    size = len(input_ms)
    ranks = [GpuRank(rank, size, hosts[rank], clock_ms[rank]) for rank in range(size)]
    true: list[list[GpuStep]] = [[] for _ in ranks]
    for number in range(3, 3 + steps):
        drawn = [
            (input_ms[gpu.rank] * chance.uniform(0.9, 1.1), chance.uniform(18, 22)) for gpu in ranks
        ]
        overlapped = chance.uniform(3, 5)
        ready = [
            gpu._now + (inp + comp) * 1e3 for gpu, (inp, comp) in zip(ranks, drawn, strict=True)
        ]
        reduced = max(ready) + chance.uniform(6, 8) * 1e3
        for gpu, (inp, comp), at in zip(ranks, drawn, ready, strict=True):
            exposed = (reduced - at) / 1e3
            step = GpuStep(inp, comp, exposed + overlapped, overlapped, 1.0)
            true[gpu.rank].append(step)
            gpu.add(number, step, reduced)
    for gpu in ranks:
        gpu.write(folder)
    return true
