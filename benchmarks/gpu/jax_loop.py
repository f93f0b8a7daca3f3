"""Train loops in JAX with Stallscope's recorder, and note the times at which results are ready.

    python -m gpu.jax_loop OUT DEVICE

``OUT/CASE/logs`` holds the logs of each case, and ``OUT/CASE/truth-0.json`` the training's own times:

    waits        after each step, the training itself waits for the results
    ahead        the host runs ahead of the device
    slow-input   each batch takes long to load
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from time import monotonic_ns
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stallscope.jax import StepLogger

#: The cases, and the seconds that a batch takes to load.
CASES = {"waits": 0.0, "ahead": 0.0, "slow-input": 0.02}
STEPS = 100
_INPUTS, _LAYERS = 256, 4


def batches(samples: int, seconds: float) -> Iterator[Any]:
    batch = np.random.default_rng(1).standard_normal((samples, _INPUTS), np.float32)
    for _ in range(STEPS):
        if seconds:
            time.sleep(seconds)
        yield batch


def loss_of(weights: list[Any], inputs: Any) -> Any:
    for layer in weights:
        inputs = jnp.tanh(inputs @ layer)
    return jnp.mean(inputs**2)


@jax.jit
def train_step(weights: list[Any], inputs: Any) -> tuple[list[Any], Any]:
    loss, gradients = jax.value_and_grad(loss_of)(weights, inputs)
    return [
        weight - 1e-3 * gradient for weight, gradient in zip(weights, gradients, strict=True)
    ], loss


def train(out: Path, case: str, weights: list[Any], samples: int) -> None:
    times: list[dict[str, int]] = []
    with StepLogger(out / "logs") as log:
        for batch in log.watch(batches(samples, CASES[case])):
            times.append({"data": monotonic_ns()})
            weights, loss = train_step(weights, batch)
            log.results(loss)
            if case == "waits":
                loss.block_until_ready()
                times[-1]["end"] = monotonic_ns()
        jax.block_until_ready(weights)
        times[-1]["end"] = monotonic_ns()
    out.mkdir(parents=True, exist_ok=True)
    (out / "truth-0.json").write_text(json.dumps({"steps": times, "error_ns": 0}))


def main(out: Path, device: str) -> None:
    jax.config.update("jax_platforms", device)
    width, samples = (256, 256) if device == "cpu" else (4096, 2048)
    random = np.random.default_rng(1)
    sizes = [_INPUTS, *[width] * _LAYERS]
    weights = [
        jnp.asarray(random.standard_normal(size, np.float32) / size[0] ** 0.5)
        for size in zip(sizes, sizes[1:], strict=False)
    ]
    # Compiles, and is no part of what is checked.
    jax.block_until_ready(train_step(weights, next(batches(samples, 0.0))))
    for case in CASES:
        train(out / case, case, weights, samples)
    (out / "device.txt").write_text(jax.devices()[0].device_kind)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
