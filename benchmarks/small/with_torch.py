"""Small trainings of PyTorch, recorded and with a bare tool (see turns.py)."""

from pathlib import Path
from typing import Any, Iterable

import torch
from torch_net import loader, network
from turns import Arms, Bare, Ruler, run

from stallscope.torch import StepLogger


def arms(layers: int, steps: int, ruler: Ruler) -> Arms:
    model, batches = network(layers), loader(steps)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def train(batches: Iterable[Any]) -> None:
        for batch in batches:
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()

    def recorded(out: Path) -> None:
        with StepLogger(out, optimizer=optimizer, model=model) as log:
            train(ruler.loop(log.watch(batches)))

    def bare(tool: Bare) -> None:
        train(ruler.loop(tool.watch(batches)))

    return recorded, bare


run(arms, lambda ruler: ruler.time_loader(torch.utils.data.DataLoader))
