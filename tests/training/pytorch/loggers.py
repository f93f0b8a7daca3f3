"""Train with several loggers, and with loggers that get the wrong objects."""

from __future__ import annotations

from typing import Any

import torch
from pytorch.base import (
    HOROVOD,
    Case,
    Net,
    Training,
    accumulating,
    ranked,
)

from stallscope.torch import StepLogger

if HOROVOD:
    import horovod.torch as hvd


@ranked
def two_sessions(case: Case) -> Any:
    """Record the same optimizer in a second session; Adam counts its steps."""
    training = Training(base=lambda parameters: torch.optim.Adam(parameters, 0.002))
    training.recorded(case)
    return training.recorded(case)


@ranked
def two_loggers(case: Case) -> Any:
    training = Training()
    first, second = training.logger(case, "first"), training.logger(case)
    with first:
        for batch in first.watch(case.loader()):
            training.step(batch)
        with second:
            for batch in second.watch(case.loader()):
                training.step(batch)
        for batch in first.watch(case.loader()):
            training.step(batch)
    return training.seen()


@ranked
def without_stages(case: Case) -> Any:
    training = Training(passes=2)
    return training.recorded(case, accumulating(training, 2), stages=False)


@ranked
def optimizer_alone(case: Case) -> Any:
    """Pass a logger only the optimizer, while the user or an unknown wrapper reduces gradients."""

    def step(batch: Any) -> None:
        training.optimizer.zero_grad()
        training.backward(batch)
        if HOROVOD:
            for parameter in training.net.parameters():
                hvd.allreduce_(parameter.grad)
        training.optimizer.step()

    training = Training()
    if HOROVOD:
        training = by_hand()
    with StepLogger(case.logs(), optimizer=training.optimizer) as log:
        for batch in log.watch(case.loader()):
            step(batch)
    return training.seen()


def by_hand() -> Training:
    training = Training()
    training.net = training.model = Net()
    training.optimizer = torch.optim.SGD(training.net.parameters(), 0.1)
    return training


@ranked
def wrong_object(case: Case) -> Any:
    """Pass a logger another optimizer and model than those that train."""
    training, second_training = Training(), Training()
    with second_training.logger(case) as log:
        for _ in range(2):
            for batch in log.watch(case.loader()):
                training.step(batch)
    return training.seen()


@ranked
def unfrozen(case: Case) -> Any:
    """Unfreeze a layer before a second session, with a new wrapper as Horovod and DDP require."""
    net = Net()
    net.first.requires_grad_(False)
    training = Training(net)
    training.recorded(case)
    net.first.requires_grad_(True)
    if HOROVOD:
        # Horovod's hooks cannot be removed from parameters.
        net = Net()
    return Training(net).recorded(case)
