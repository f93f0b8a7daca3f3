"""Train for some seconds with large products in bfloat16, which take a GPU to its power cap.

python -m gpu.matmuls OUT DEVICE SECONDS
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

from stallscope.torch import StepLogger

from .ranks import device_of

_LAYERS = 4


def batches(batch: torch.Tensor, seconds: float) -> Iterator[torch.Tensor]:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        yield batch


def main(out: Path, device: torch.device, seconds: float) -> None:
    width = 8192 if device.type == "cuda" else 256
    layers = [nn.Linear(width, width, bias=False) for _ in range(_LAYERS)]
    model = nn.Sequential(*layers).to(device, torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    inputs = torch.randn(width, width, device=device, dtype=torch.bfloat16)
    with StepLogger(out / "logs", optimizer=optimizer, model=model) as log:
        for batch in log.watch(batches(inputs, seconds)):
            loss = model(batch).float().square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            # The device stays busy, and the host no further ahead than a step.
            loss.item()


if __name__ == "__main__":
    main(Path(sys.argv[1]), device_of(sys.argv[2]), float(sys.argv[3]))
