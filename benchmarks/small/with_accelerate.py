"""A small training with Accelerate, recorded: OUT LAYERS STEPS."""

import sys

import torch
from accelerate import Accelerator

from stallscope.torch import StepLogger

out, layers, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(1)
WIDTH, BATCH = 64, 32
parts: list[torch.nn.Module] = []
for _ in range(layers):
    parts += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()]
net = torch.nn.Sequential(*parts, torch.nn.Linear(WIDTH, 10))
accelerator = Accelerator(cpu=True)
model, optimizer, loader = accelerator.prepare(
    net,
    torch.optim.SGD(net.parameters(), lr=1e-3),
    torch.utils.data.DataLoader(torch.randn(BATCH * steps, WIDTH), BATCH),
)
with StepLogger(out, optimizer=optimizer, model=model) as log:
    for batch in log.watch(loader):
        optimizer.zero_grad()
        accelerator.backward(model(batch).square().mean())
        optimizer.step()
