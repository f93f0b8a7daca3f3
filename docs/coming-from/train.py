"""Train a small model on two ranks, one of which reads its images from a slow storage:

torchrun --nproc-per-node 2 train.py
"""

import time

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class StoredImages(Dataset):
    def __init__(self, slow):
        self.slow = slow

    def __len__(self):
        return 9600

    def __getitem__(self, index):
        if self.slow:
            time.sleep(0.004)
        return torch.rand(3, 32, 32), index % 10


torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
torch.manual_seed(0)
data = StoredImages(slow=rank == 1)
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
