"""A small training in plain JAX, recorded: OUT LAYERS STEPS, and "no-stages"."""

import sys

import jax
import jax.numpy as jnp
import numpy as np

from stallscope.jax import StepLogger

out, layers, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
WIDTH, BATCH = 64, 32
layer = {"kernel": np.eye(WIDTH, dtype=np.float32), "bias": np.zeros(WIDTH, np.float32)}
model = jax.device_put([layer] * (layers + 1))


def loss_of(model: list[dict[str, jax.Array]], inputs: jax.Array) -> jax.Array:
    for layer in model:
        inputs = jax.nn.relu(inputs @ layer["kernel"] + layer["bias"])
    return jnp.mean(inputs**2)


@jax.jit
def train(model, inputs):  # type: ignore[no-untyped-def]
    loss, gradients = jax.value_and_grad(loss_of)(model, inputs)
    return jax.tree.map(lambda weight, gradient: weight - 1e-3 * gradient, model, gradients), loss


batches = np.zeros((steps, BATCH, WIDTH), np.float32)
with StepLogger(out, stages="no-stages" not in sys.argv) as log:
    for batch in log.watch(batches):
        model, loss = train(model, batch)
        log.results(loss)
        # As with a loss that is printed at times; otherwise the host runs far ahead of the device.
        float(loss)
