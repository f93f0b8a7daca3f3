"""The network that PyTorch's programs of this folder train."""

import torch
from turns import BATCH, WIDTH


def network(layers: int) -> torch.nn.Sequential:
    """Return a network with so many Dense layers before the last."""
    torch.set_num_threads(1)
    parts: list[torch.nn.Module] = []
    for _ in range(layers):
        parts += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()]
    return torch.nn.Sequential(*parts, torch.nn.Linear(WIDTH, 10))


def loader(steps: int) -> "torch.utils.data.DataLoader[torch.Tensor]":
    """Return batches for so many steps."""
    return torch.utils.data.DataLoader(torch.randn(BATCH * steps, WIDTH), BATCH)
