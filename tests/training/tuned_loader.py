"""Train with different numbers of loader workers, and measure loaders: for test_proposed_loader.py.

python tuned_loader.py OUT
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

from stallscope.torch import StepLogger, measure_input

BATCH, BATCHES = 8, 80
# A batch takes one worker 80 ms, and a step 25 ms without waiting: four workers keep up.
SAMPLE_SECONDS, STEP_SECONDS = 0.010, 0.025
WORKERS = (1, 2, 4, 8)


class Samples(Dataset):
    def __len__(self) -> int:
        return BATCH * BATCHES

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(SAMPLE_SECONDS)
        return torch.full((16,), float(index))


def loader(workers: int) -> DataLoader:
    return DataLoader(Samples(), batch_size=BATCH, num_workers=workers, prefetch_factor=2)


def train(log_dir: Path, workers: int) -> None:
    model = torch.nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with StepLogger(log_dir, optimizer=optimizer, run_name=f"{workers} workers") as log:
        for inputs in log.watch(loader(workers)):
            time.sleep(STEP_SECONDS)
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()


def main() -> None:
    out = Path(sys.argv[1])
    torch.set_num_threads(1)
    for workers in WORKERS:
        train(out / f"workers-{workers}", workers)
    print(measure_input(loader(1), steps=24, log_dir=out / "workers-1", try_workers=max(WORKERS)))


if __name__ == "__main__":
    main()
