"""Train cells of the frameworks chapter with JAX; frameworks.py starts it.

python benchmarks/scorecard/train_frameworks_jax.py CELLS OUT      starts the ranks
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from cells import read_cells
from injection import WARM_UP, Injection, Launch
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from stallscope.jax import StepLogger

BATCH, WIDTH = 16, 64
DEVICE_SECONDS = 0.012
_PLACE = "RANK_OF_FRAMEWORKS"


def batches(injection: Injection, steps: int) -> Iterator[Any]:
    random = np.random.default_rng(jax.process_index())
    for _ in range(steps):
        injection.here("input")
        yield random.random((BATCH, WIDTH), np.float32)


def delayed(injection: Injection) -> Any:
    """Return a function for the compiled step that waits as for a device, and delays its gradient."""

    def wait(value: Any) -> Any:
        time.sleep(DEVICE_SECONDS)
        return value

    def slow_down(gradient: Any) -> Any:
        injection.here("compute")
        return gradient

    @jax.custom_vjp
    def pass_on(value: Any) -> Any:
        return value

    def forward(value: Any) -> Any:
        return jax.pure_callback(wait, value, value), None

    def backward(_: Any, gradient: Any) -> Any:
        return (jax.pure_callback(slow_down, gradient, gradient),)

    pass_on.defvjp(forward, backward)
    return pass_on


def train(injection: Injection, log_dir: Path, steps: int) -> None:
    mesh = Mesh(np.array(jax.devices()), ("data",))
    split, whole = PartitionSpec("data"), PartitionSpec()
    pass_on = delayed(injection)

    def update(weights: Any, inputs: Any) -> Any:
        def loss_of(matrix: Any) -> Any:
            return jnp.mean((pass_on(jnp.tanh(inputs @ matrix)) - 1.0) ** 2)

        loss, gradients = jax.value_and_grad(loss_of)(weights)
        return weights - 0.01 * jax.lax.pmean(gradients, "data"), jax.lax.pmean(loss, "data")

    step = jax.jit(
        jax.shard_map(update, mesh=mesh, in_specs=(whole, split), out_specs=whole, check_vma=False)
    )
    weights = jax.device_put(np.eye(WIDTH, dtype=np.float32), NamedSharding(mesh, whole))
    cell = injection.cell
    with StepLogger(log_dir, run_name=cell.name, synthetic=cell.synthetic) as log:
        for batch in log.watch(batches(injection, steps)):
            inputs = jax.make_array_from_process_local_data(NamedSharding(mesh, split), batch)
            weights, loss = step(weights, inputs)
            log.results(loss)
            # Like a training that prints its loss: the device is idle while the host loads.
            loss.block_until_ready()


def agree(number: float) -> float:
    """Return rank 0's number on every rank; JAX's floats have 32 bits."""
    return float(multihost_utils.broadcast_one_to_all(np.float32(number)))


def start(ranks: int) -> int:
    """Start this program once per rank; return the greatest exit status."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    started = [
        subprocess.Popen(
            [sys.executable, *sys.argv], env={**os.environ, _PLACE: f"{rank} {address}"}
        )
        for rank in range(ranks)
    ]
    return max(abs(process.wait()) for process in started)


def train_launch(train: Callable[[Injection, Path, int], None], warm_up: int = WARM_UP) -> None:
    """Train the cells of a launch, or start its ranks; the program gets their file and the folder."""
    cells, steps = read_cells(Path(sys.argv[1]))
    place = os.environ.pop(_PLACE, None)
    if place is None:
        sys.exit(start(cells[0].ranks))
    rank, address = place.split()
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, cells[0].ranks, int(rank))
    Launch(Path(sys.argv[2]), cells, steps, int(rank), warm_up=warm_up).train(train, agree)
    jax.distributed.shutdown()


if __name__ == "__main__":
    train_launch(train)
