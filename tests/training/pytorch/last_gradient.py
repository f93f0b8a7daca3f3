"""Train models in which the gradient that comes last changes."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
from pytorch.base import (
    CLASSES,
    INPUTS,
    SLOW_SECONDS,
    STEPS,
    Case,
    Training,
    alone,
    ranked,
)
from torch import nn
from torch_loops import sleep_in_backward

from stallscope.collector.recorder.pytorch import gradient_timestamps


class TwoOrders(nn.Module):
    """Two layers that change places: the gradient of the front one is the last one, and late."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(11)
        self.layers = nn.ModuleList([nn.Linear(INPUTS, INPUTS) for _ in range(2)])
        self.head = nn.Linear(INPUTS, CLASSES)
        self.swapped = False

    def forward(self, inputs: Any) -> Any:
        front, back = reversed(self.layers) if self.swapped else self.layers
        return self.head(back(sleep_in_backward(front(inputs), SLOW_SECONDS)))


class Witness:
    """Hooks on all gradients, before the recorder's: they record when each step's last one is ready."""

    def __init__(self, net: Any) -> None:
        self.last: list[int] = []
        self._net = net
        self._handles = [
            parameter.register_post_accumulate_grad_hook(self._seen)
            for parameter in net.parameters()
        ]

    def _seen(self, _: Any) -> None:
        self.last[-1] = time.monotonic_ns()

    def others(self) -> int:
        """Return the number of the recorder's hooks."""
        return sum(
            len(parameter._post_accumulate_grad_hooks) - 1 for parameter in self._net.parameters()
        )

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()


@contextlib.contextmanager
def as_if_quiet(longest_ns: float = math.inf) -> Iterator[None]:
    """Let no pass end late by less than this: on a busy machine all do, and all hooks stay."""
    limits = {"_LONGER": 0, "_LEAST_NS": longest_ns, "_MOST_USUAL_NS": math.inf}
    with mock.patch.multiple(gradient_timestamps, **limits):
        yield


@ranked
def another_gradient_comes_last(case: Case) -> Any:
    """Let the layers change places twice; in between, the recorder watches few gradients."""
    training = Training(TwoOrders())
    witness, hooks = Witness(training.net), []
    with as_if_quiet(SLOW_SECONDS * 1e9 / 2), training.logger(case) as log:
        for number, batch in enumerate(log.watch(case.loader(60))):
            training.net.swapped = 20 <= number < 40
            witness.last.append(0)
            training.step(batch)
            hooks.append(witness.others())
    witness.remove()
    return training.seen(last=witness.last, hooks=hooks)


@alone
def other_parts_train(case: Case) -> Any:
    """Let other parameters train from one step on."""
    training = Training(TwoOrders())
    hooks = []
    with as_if_quiet(), training.logger(case) as log:
        for number, (inputs, _) in enumerate(log.watch(case.loader(24))):
            training.optimizer.zero_grad()
            training.net.layers[number // 12](inputs).sum().backward()
            training.optimizer.step()
            hooks.append(len(training.ours()))
    return training.seen(hooks=hooks)


@alone
def the_end_comes_late(case: Case) -> Any:
    """Let a pass end long after its last gradient: another one could be ready in between."""
    training = Training(TwoOrders())
    hooks = []
    with training.logger(case) as log:
        for number, batch in enumerate(log.watch(case.loader(20))):
            if number == 0:
                # A slow hook of the user, after the gradient is ready.
                for parameter in training.net.layers[0].parameters():
                    parameter.register_post_accumulate_grad_hook(lambda _: time.sleep(0.001))
            training.step(batch)
            hooks.append(len(training.ours()))
    return training.seen(hooks=hooks)


@alone
def layers_get_frozen(case: Case) -> Any:
    """Freeze the layer with the last gradient, from the last step of an epoch on."""
    training = Training(TwoOrders())
    front = training.net.layers[0]
    with training.logger(case) as log:
        for epoch in range(3):
            for number, batch in enumerate(log.watch(case.loader())):
                front.requires_grad_(epoch == 0 and number < STEPS - 1)
                training.step(batch)
    return training.seen()
