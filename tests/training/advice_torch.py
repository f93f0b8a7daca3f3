"""Train with PyTorch as people do, well and badly, for the facts that advice rests on.

horovodrun -np 2 python advice_torch.py OUT

``OUT/well`` and ``OUT/badly`` hold the logs.
"""

from __future__ import annotations

import sys
from pathlib import Path

import horovod.torch as hvd
import torch
from asleep import wait_asleep
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

from stallscope.torch import StepLogger

BATCH = 8
STEPS = 6
#: Fewer than a batch has: gathering their rows moves more than reducing them all.
WORDS = 30
CLASSES = 4


def train(out: Path, well: bool) -> None:
    random = torch.Generator().manual_seed(0)
    samples = STEPS * BATCH
    data = TensorDataset(
        torch.randint(WORDS, (samples, 5), generator=random),
        torch.randint(CLASSES, (samples,), generator=random),
    )
    torch.manual_seed(hvd.rank())
    words = nn.Embedding(WORDS, 16, sparse=not well)
    model = nn.Sequential(words, nn.Flatten(), nn.Linear(80, CLASSES))
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), 0.1),
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.fp16 if well else hvd.Compression.none,
    )
    if well:
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    sampler = DistributedSampler(data, num_replicas=hvd.size(), rank=hvd.rank())
    loader = DataLoader(data, BATCH, sampler=sampler)
    with StepLogger(out, optimizer=optimizer) as log:
        for epoch in range(3):
            if well:
                sampler.set_epoch(epoch)
            elif epoch == 2 and hvd.rank() == 1:
                optimizer.param_groups[0]["lr"] = 0.05
            for inputs, labels in log.watch(loader):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(inputs), labels).backward()
                optimizer.step()


def main() -> None:
    out = Path(sys.argv[1])
    hvd.init()
    wait_asleep()
    torch.set_num_threads(1)
    train(out / "well", well=True)
    train(out / "badly", well=False)


if __name__ == "__main__":
    main()
