"""Slow data sets and slow backward passes for trainings with PyTorch."""

from __future__ import annotations

import itertools
import time
from typing import Any

import torch
from torch.utils.data import Dataset


class SlowData(Dataset):
    """A data set with a delay for each batch of a loader without workers."""

    def __init__(self, data: Any, batch: int, seconds: float) -> None:
        self._data = data
        self._batch = batch
        self._seconds = seconds
        self._samples = itertools.count()

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, index: int) -> Any:
        if self._seconds and next(self._samples) % self._batch == 0:
            time.sleep(self._seconds)
        return self._data[index]


class _Sleep(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, inputs: Any, seconds: float) -> Any:
        context.seconds = seconds
        return inputs.clone()

    @staticmethod
    def backward(context: Any, gradient: Any) -> Any:
        if context.seconds:
            time.sleep(context.seconds)
        return gradient, None


def sleep_in_backward(inputs: Any, seconds: float) -> Any:
    """Return the inputs, and make their backward pass longer by these seconds."""
    return _Sleep.apply(inputs, seconds)
