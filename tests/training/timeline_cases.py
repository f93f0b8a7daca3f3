"""Train in several ways under Horovod, each with its own Timeline and a known number of steps.

    HOROVOD_TIMELINE=DYNAMIC horovodrun -np 2 python timeline_cases.py torch OUT
    HOROVOD_TIMELINE=DYNAMIC horovodrun -np 2 python timeline_cases.py keras OUT

Rank 0 writes ``OUT/CASE.json``. Each case starts with a broadcast, as training does: requests of another
rank before rank 0 has started the Timeline are not in it. In the case ``killed`` rank 0 kills itself
after the last step.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any, Callable

STEPS = 20
EVALUATED = 30


def torch_cases() -> tuple[Any, dict[str, Callable[[], None]]]:
    import horovod.torch as hvd
    import torch
    from asleep import wait_asleep

    hvd.init()
    wait_asleep()
    torch.set_num_threads(1)
    data, labels = torch.randn(8, 32), torch.zeros(8, dtype=torch.long)

    def network() -> Any:
        torch.manual_seed(1)
        layers = [torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)]
        return torch.nn.Sequential(*layers)

    def backward(model: Any) -> Any:
        loss = torch.nn.functional.cross_entropy(model(data), labels)
        loss.backward()
        return loss.detach()

    def train(backwards: int = 1, evaluate: bool = False, logged: int = 0, **options: Any) -> None:
        model = network()
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.01),
            named_parameters=model.named_parameters(),
            backward_passes_per_step=backwards,
            **options,
        )
        for step in range(STEPS):
            optimizer.zero_grad()
            for _ in range(backwards):
                loss = backward(model)
            optimizer.step()
            for _ in range(logged):
                hvd.allreduce(loss, name="loss")
            if evaluate and step % 10 == 9:
                for _ in range(EVALUATED):
                    hvd.allreduce(loss, name="val_loss")

    def without_names(at_once: bool) -> None:
        model = network()
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(STEPS):
            optimizer.zero_grad()
            backward(model)
            gradients = [parameter.grad for parameter in model.parameters()]
            if at_once:
                for handle in [hvd.allreduce_async_(gradient) for gradient in gradients]:
                    hvd.synchronize(handle)
            else:
                for gradient in gradients:
                    hvd.allreduce_(gradient)
            optimizer.step()

    return hvd, {
        "plain": train,
        "accumulated": lambda: train(backwards=3),
        "grouped": lambda: train(num_groups=2),
        "logged": lambda: train(logged=2),
        "evaluated": lambda: train(evaluate=True),
        "unnamed": lambda: without_names(at_once=False),
        "unnamed_at_once": lambda: without_names(at_once=True),
        "killed": train,
    }


def keras_cases() -> tuple[Any, dict[str, Callable[[], None]]]:
    import horovod.tensorflow.keras as hvd
    import numpy as np
    import tensorflow as tf
    from horovod.tensorflow import DistributedGradientTape, allreduce, broadcast_variables

    hvd.init()
    data, labels = np.zeros((80, 16), np.float32), np.zeros(80)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def network() -> Any:
        tf.random.set_seed(1)
        layers = [tf.keras.Input([16]), tf.keras.layers.Dense(32), tf.keras.layers.Dense(4)]
        return tf.keras.Sequential(layers)

    def fit() -> None:
        model = network()
        model.compile(hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.01)), loss, ["accuracy"])
        callbacks = [
            hvd.callbacks.BroadcastGlobalVariablesCallback(0),
            hvd.callbacks.MetricAverageCallback(),
        ]
        options = {"epochs": STEPS // 10, "validation_data": (data, labels)}
        model.fit(data, labels, 8, callbacks=callbacks, verbose=0, **options)

    def own_loop(tape: bool) -> None:
        model = network()
        broadcast_variables(model.variables, root_rank=0)
        for _ in range(STEPS):
            with tf.GradientTape() as recorded:
                value = loss(labels[:8], model(data[:8]))
            if tape:
                recorded = DistributedGradientTape(recorded)
            gradients = recorded.gradient(value, model.trainable_variables)
            if not tape:
                for gradient in gradients:
                    allreduce(gradient)

    return hvd, {
        "fit": fit,
        "tape": lambda: own_loop(tape=True),
        "eager": lambda: own_loop(tape=False),
    }


def main() -> None:
    framework, out = sys.argv[1], Path(sys.argv[2])
    hvd, cases = torch_cases() if framework == "torch" else keras_cases()
    for number, (name, train) in enumerate(cases.items()):
        hvd.start_timeline(str(out / f"{name}.json"), mark_cycles=number % 2 == 1)
        train()
        if name == "killed" and hvd.rank() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        hvd.stop_timeline()


if __name__ == "__main__":
    main()
