"""Small trainings in plain JAX, recorded and with a bare tool (see turns.py)."""

from pathlib import Path
from time import monotonic_ns
from typing import Any, Callable, Dict, Iterable, List

import jax
import jax.numpy as jnp
import numpy as np
from turns import BATCH, STAGES, WIDTH, Arms, Bare, Ruler, run

from stallscope.jax import StepLogger


class Batches(List[Any]):
    """Batches in memory."""


def loss_of(model: List[Dict[str, jax.Array]], inputs: jax.Array) -> jax.Array:
    for layer in model:
        inputs = jax.nn.relu(inputs @ layer["kernel"] + layer["bias"])
    return jnp.mean(inputs**2)


@jax.jit
def step(model, inputs):  # type: ignore[no-untyped-def]
    loss, gradients = jax.value_and_grad(loss_of)(model, inputs)
    return jax.tree.map(lambda weight, gradient: weight - 1e-3 * gradient, model, gradients), loss


def arms(layers: int, steps: int, ruler: Ruler) -> Arms:
    layer = {"kernel": np.eye(WIDTH, dtype=np.float32), "bias": np.zeros(WIDTH, np.float32)}
    start = jax.device_put([layer] * (layers + 1))
    batches = Batches(np.zeros((steps, BATCH, WIDTH), np.float32))

    def train(batches: Iterable[Any], results: Callable[[Any], None]) -> None:
        model = start
        for batch in batches:
            model, loss = step(model, batch)
            results(loss)
            # Like a loss that is printed; otherwise the host runs far ahead of the device.
            float(loss)

    def recorded(out: Path) -> None:
        with StepLogger(out, stages=STAGES) as log:
            train(ruler.loop(log.watch(batches)), ruler.around(log.results))

    def bare(tool: Bare) -> None:
        train(ruler.loop(tool.watch(batches)), ruler.around(lambda _: tool.keep(monotonic_ns())))

    return recorded, bare


run(arms, lambda ruler: ruler.time_loader(Batches))
