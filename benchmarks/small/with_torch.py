"""A small training of PyTorch, recorded: OUT LAYERS STEPS."""

import sys

import torch

from stallscope.torch import StepLogger

out, layers, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
torch.set_num_threads(1)
WIDTH, BATCH = 64, 32
parts: list[torch.nn.Module] = []
for _ in range(layers):
    parts += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()]
model = torch.nn.Sequential(*parts, torch.nn.Linear(WIDTH, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
loader = torch.utils.data.DataLoader(torch.randn(BATCH * steps, WIDTH), BATCH)
with StepLogger(out, optimizer=optimizer, model=model) as log:
    for batch in log.watch(loader):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
