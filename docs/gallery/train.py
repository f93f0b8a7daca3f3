"""Train a small model whose images come from a storage that takes 20 ms for a batch.

torchrun --nproc-per-node 2 train.py [--hang]
"""

import sys
import time

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class StoredImages(Dataset):
    def __init__(self, hangs):
        self.hangs = hangs
        self.read = 0

    def __len__(self):
        return 300 * 16 * torch.distributed.get_world_size()

    def __getitem__(self, index):
        self.read += 1
        if self.hangs and self.read == 2400:
            time.sleep(3600)
        time.sleep(0.00125)
        return torch.rand(3, 32, 32), index % 10


torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
torch.manual_seed(0)
# With --hang the storage does not answer rank 1 in the 150th batch.
data = StoredImages(hangs="--hang" in sys.argv and torch.distributed.get_rank() == 1)
loader = DataLoader(data, batch_size=16, sampler=DistributedSampler(data))
model = DistributedDataParallel(
    nn.Sequential(nn.Conv2d(3, 16, 5), nn.ReLU(), nn.Flatten(), nn.Linear(12544, 10))
)
optimizer = torch.optim.SGD(model.parameters(), 0.01)

for inputs, labels in loader:
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()

# PyTorch aborts a process that ends while one of Gloo's threads is not done.
torch.distributed.monitored_barrier()
torch.distributed.destroy_process_group()
