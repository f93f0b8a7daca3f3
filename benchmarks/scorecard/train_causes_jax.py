"""Train the causes chapter with JAX, in one process.

python benchmarks/scorecard/train_causes_jax.py PLAN OUT
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from causes_launch import Causes, Compile, Rank
from causes_plan import BATCH
from pairs_launch import CLASSES, WIDTH, Pause

from stallscope.jax import StepLogger

Batch = dict[str, Any]


def batches(causes: Causes, number: int) -> Iterator[Batch]:
    """Yield so many batches, whose sizes the causes tell; each has an attention mask."""
    for _ in range(number):
        batch = causes.next_batch()
        mask = np.arange(batch.length) < np.array(batch.lengths)[:, None]
        yield {"inputs": np.zeros((BATCH, batch.length), np.float32), "attention_mask": mask}


def compiler(for_all_shapes: bool) -> Compile:
    """Return a function that compiles another one for each new length, or once for all of them."""
    seconds = 0.0

    @jax.jit
    def doubled(values: Any) -> Any:
        # Runs while JAX traces.
        time.sleep(seconds)
        return values * 2

    def run(length: int, more: float) -> Any:
        nonlocal seconds
        seconds = more
        # Arrays of one size serve all lengths.
        return doubled(np.zeros(1 if for_all_shapes else length, np.float32))

    return run


def updating(causes: Causes) -> Any:
    """Return the compiled step: it takes as long as the causes say for so many elements."""

    def wait(elements: Any) -> Any:
        causes.compute(int(elements))
        return elements

    @jax.jit
    def update(weights: Any, means: Any, elements: Any) -> Any:
        waited = jax.pure_callback(wait, elements, elements)

        def loss_of(matrix: Any) -> Any:
            # XLA would leave out what has no effect on the result.
            return jnp.mean((means @ matrix - 1.0) ** 2) + 1e-9 * waited

        loss, gradient = jax.value_and_grad(loss_of)(weights)
        return weights - 0.001 * gradient, loss

    return update


def train(causes: Causes, log_dir: Path, turns: int, steps: int, pause: Pause) -> None:
    """Train one run with a loop, and pause after every turn, which is an epoch."""
    for fault in causes.run.faults:
        if fault.cause == "compilation":
            causes.compile = compiler(fault.repaired)
    update = updating(causes)
    weights = jnp.ones((WIDTH, CLASSES))
    with StepLogger(log_dir, run_name=causes.run.name) as log:
        for _ in range(turns):
            for batch in log.watch(batches(causes, steps)):
                causes.compiled()
                inputs = batch["inputs"]
                # The step is compiled once, for one size: a mean of each sample.
                means = np.repeat(inputs.mean(1, keepdims=True), WIDTH, axis=1)
                weights, loss = update(weights, means, np.int32(inputs.size))
                log.results(loss)
                # Like a training that prints its loss: the device is idle while the host goes on.
                loss.block_until_ready()
                causes.end_of_step()
            pause()


def main() -> None:
    plan, out = Path(sys.argv[1]), Path(sys.argv[2])
    Rank(out, 0, train, lambda number: number).run(plan)


if __name__ == "__main__":
    main()
