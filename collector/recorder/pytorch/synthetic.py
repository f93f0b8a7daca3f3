"""Random data in the shape of real data: the baseline run's input."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Iterable, Iterator

import torch

_SEED = 20240229


def synthetic_like(loader: Iterable[Any]) -> "SyntheticLoader":
    """Random batches of the same structure, shapes and dtypes as the loader's, held in memory.

    One real batch is looked at: integers stay within the range of its own, so that labels stay
    labels. It is one batch that comes again and again; torch's random numbers stay where they were.

    Args:
        loader: a ``DataLoader``, or anything else that gives batches.

    Returns:
        A loader as long as the real one where that has a length, otherwise endless. Everything else
        about it, such as its sampler, is the real one's.

    Raises:
        ValueError: if the loader has no batch.
    """
    with torch.random.fork_rng(devices=[]):
        try:
            real = next(iter(loader))
        except StopIteration:
            raise ValueError("the loader has no batch to take shapes from") from None
    return SyntheticLoader(loader, _random_like(real, torch.Generator().manual_seed(_SEED)))


class SyntheticLoader:
    """One batch, again and again."""

    def __init__(self, real: Iterable[Any], batch: Any) -> None:
        self._real = real
        self._batch = batch

    def __len__(self) -> int:
        return len(self._real)  # type: ignore[arg-type]  # raises what the real one's would

    def __iter__(self) -> Iterator[Any]:
        try:
            batches = len(self)
        except TypeError:
            while True:
                yield self._batch
        for _ in range(batches):
            yield self._batch

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # not there yet while a copy is made
            raise AttributeError(name)
        return getattr(self._real, name)


def _random_like(structure: Any, generator: torch.Generator) -> Any:
    if isinstance(structure, torch.Tensor):
        return _random_tensor(structure, generator)
    if isinstance(structure, Mapping):
        made = {key: _random_like(value, generator) for key, value in structure.items()}
        if isinstance(structure, dict):
            like = copy.copy(structure)
            like.update(made)
            return like
        return type(structure)(made)  # type: ignore[call-arg]  # a tokenizer's batch takes a dict
    if isinstance(structure, torch.nn.utils.rnn.PackedSequence):
        return structure._replace(data=_random_tensor(structure.data, generator))
    if isinstance(structure, tuple) and hasattr(structure, "_fields"):
        return type(structure)(*[_random_like(value, generator) for value in structure])
    if isinstance(structure, (list, tuple)):
        return type(structure)([_random_like(value, generator) for value in structure])
    # Numbers, text and other people's objects.
    return structure


def _random_tensor(real: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The like on the same device, in pinned memory where the real one is."""
    # Where values are in a sparse tensor decides how much work there is: it stays as it is.
    if real.numel() == 0 or real.layout is not torch.strided:
        return real
    flat = real.detach().cpu().reshape(-1)
    order = torch.randperm(flat.numel(), generator=generator)
    if flat.dtype.is_floating_point:
        finite = flat[flat.isfinite()].double()
        low, high = finite.aminmax() if finite.numel() else (0.0, 1.0)
        random = torch.rand(flat.shape, generator=generator, dtype=torch.float64)
        values = (low + (high - low) * random).to(flat.dtype)
    elif flat.dtype.is_complex or flat.dtype is torch.bool:
        values = flat[order]
    else:
        low, high = flat.min(), flat.max()
        values = torch.randint(int(low), int(high) + 1, flat.shape, generator=generator)
        values = values.to(flat.dtype)
    values = values.reshape(real.shape).to(real.device)
    return values.pin_memory() if real.is_pinned() else values
