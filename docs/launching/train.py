"""Train a small model with DistributedDataParallel, under a launcher that sets RANK, WORLD_SIZE and
MASTER_ADDR:

    python train.py [LOGS]

LOGS is the folder for the step log; without it, the log is in what the rank prints.
"""

import sys

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from stallscope.torch import StepLogger

logs = sys.argv[1] if len(sys.argv) > 1 else None

torch.distributed.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.rand(4096, 32), torch.randint(10, (4096,)))
loader = DataLoader(data, batch_size=64, sampler=DistributedSampler(data))
model = DistributedDataParallel(nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10)))
optimizer = torch.optim.SGD(model.parameters(), 0.01)

with StepLogger(
    logs, optimizer=optimizer, model=model, run_name="run-42", sink="file" if logs else "logging"
) as log:
    for epoch in range(2):
        loader.sampler.set_epoch(epoch)
        for inputs, labels in log.watch(loader):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()

# PyTorch aborts a process that ends while one of Gloo's threads is not done.
torch.distributed.monitored_barrier()
torch.distributed.destroy_process_group()
