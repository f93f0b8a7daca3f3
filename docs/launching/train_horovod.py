"""Train a small model with Horovod:

    horovodrun … python train_horovod.py LOGS

LOGS is the folder for the step log.
"""

import sys

import horovod.torch as hvd
import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from stallscope.torch import StepLogger

hvd.init()
torch.manual_seed(0)
data = TensorDataset(torch.rand(4096, 32), torch.randint(10, (4096,)))
sampler = DistributedSampler(data, num_replicas=hvd.size(), rank=hvd.rank())
loader = DataLoader(data, batch_size=64, sampler=sampler)
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)

with StepLogger(sys.argv[1], optimizer=optimizer, run_name="run-42") as log:
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for inputs, labels in log.watch(loader):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
