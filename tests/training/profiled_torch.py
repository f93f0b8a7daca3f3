"""Train with DDP under torch.profiler and the recorder at the same time.

torchrun … profiled_torch.py OUT [CASE …]

``OUT/CASE/logs`` holds the step logs, ``OUT/CASE/traces`` the profiler's traces of the same steps.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from process_group import end_process_group
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, Dataset

from stallscope.torch import StepLogger

STEPS = 40
_BEFORE = 4
_BATCH = 16
_INPUTS = 256
_SLOW_SAMPLE_S = 0.0008
_LATE_S = 0.012
_OUTPUTS = 16
_MANY_WEIGHTS = 6_000_000

#: The properties of each case.
CASES: dict[str, frozenset[str]] = {
    "clean": frozenset(),
    "input-one-rank": frozenset({"slow loader", "on one rank"}),
    "input-all-ranks": frozenset({"slow loader"}),
    "input-of-workers": frozenset({"slow loader", "workers"}),
    "late-rank": frozenset({"late"}),
    "long-allreduce": frozenset({"many gradients"}),
    # Its buffers are broadcast before each forward pass.
    "buffers": frozenset({"buffers", "late"}),
    "accumulation": frozenset({"accumulation"}),
}


class Samples(Dataset[tuple[Tensor, int]]):
    def __init__(self, count: int, sample_s: float) -> None:
        self._count, self._sample_s = count, sample_s

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        time.sleep(self._sample_s)
        return torch.full((_INPUTS,), float(index)), 0


class Model(nn.Module):
    """Layers, and more weights that only make gradients larger."""

    def __init__(self, case: frozenset[str]) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(4):
            layers += [nn.Linear(_INPUTS, _INPUTS), nn.ReLU()]
            if "buffers" in case:
                layers.append(nn.BatchNorm1d(_INPUTS))
        self.layers = nn.Sequential(*layers, nn.Linear(_INPUTS, _OUTPUTS))
        many = _MANY_WEIGHTS if "many gradients" in case else 1
        self.weights = nn.Parameter(torch.zeros(many))

    def forward(self, inputs: Tensor) -> Tensor:
        result: Tensor = self.layers(inputs) + self.weights.sum()
        return result


def train(folder: Path, case: frozenset[str]) -> None:
    rank = dist.get_rank()
    model = DistributedDataParallel(Model(case), bucket_cap_mb=1)
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    slow = "slow loader" in case and (rank == 1 or "on one rank" not in case)
    passes = 2 if "accumulation" in case else 1
    batches = passes * (_BEFORE + STEPS)
    samples = Samples(batches * _BATCH, _SLOW_SAMPLE_S if slow else 0)
    loader = DataLoader(samples, _BATCH, num_workers=2 if "workers" in case else 0)
    traces = folder / "traces"
    traces.mkdir(parents=True, exist_ok=True)
    profiler = profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=_BEFORE - 1, active=STEPS, repeat=1),
        on_trace_ready=lambda trace: trace.export_chrome_trace(
            str(traces / f"rank{rank}.pt.trace.json")
        ),
    )
    log = StepLogger(str(folder / "logs"), optimizer=optimizer, model=model, flush_seconds=60)
    with log, profiler:
        for batch, (inputs, labels) in enumerate(log.watch(loader)):
            if "late" in case and rank == 1:
                time.sleep(_LATE_S)
            if (batch + 1) % passes:
                with model.no_sync():
                    cross_entropy(model(inputs), labels).backward()
                continue
            cross_entropy(model(inputs), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()


def main() -> None:
    out, names = Path(sys.argv[1]), sys.argv[2:] or list(CASES)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for name in names:
        dist.barrier()
        train(out / name, CASES[name])
    end_process_group()


if __name__ == "__main__":
    main()
