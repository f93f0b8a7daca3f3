"""Compare processes of JAX, of which the last one has a slow host or device, over many steps.

    python jax_hosts_cases.py ranks OUT [CASE …]      starts two
    python jax_hosts_cases.py four OUT [CASE …]       starts four, on a mesh of two by two

``OUT/CASE/logs`` holds the logs; for results and errors see ``run_cases``.
"""

from __future__ import annotations

import functools
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from case_runner import Cases
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax_cases import (
    SLOW_SECONDS,
    WIDTH,
    batches,
    main,
    recorded,
    slow_here,
    slow_on_host,
    update,
    wait_for_loss,
)

from stallscope.jax import StepLogger

#: The steps of a case.
MANY = 40
#: Products of matrices in a compiled step, which take ten milliseconds or more.
SLOW_PRODUCTS = 40_000

RANKS, FOUR = Cases(), Cases()
ranked = RANKS.add


@ranked
def equal_ranks(folder: Path) -> Any:
    return recorded(folder, wait_for_loss, lambda: batches(MANY), epochs=1)


@ranked
def slow_host(folder: Path) -> Any:
    return recorded(folder, slow_on_host, lambda: batches(MANY), epochs=1)


@ranked
def slow_loader(folder: Path) -> Any:
    return recorded(folder, wait_for_loss, lambda: batches(MANY, slow=slow_here()), epochs=1)


@ranked
def slow_loader_ahead(folder: Path) -> Any:
    """Let the hosts run ahead: only the slow loader's host is behind its device."""
    return recorded(folder, make=lambda: batches(MANY, slow=slow_here()), epochs=1)


@ranked
def slow_device(folder: Path) -> Any:
    """Compute longer on the last rank, within the compiled step."""
    mesh = Mesh(np.array(jax.devices()), ("data",))
    split = NamedSharding(mesh, PartitionSpec("data"))
    parts = PartitionSpec("data")

    @jax.jit
    @functools.partial(jax.shard_map, mesh=mesh, in_specs=(parts, parts), out_specs=PartitionSpec())
    def step(inputs: Any, products: Any) -> Any:
        square = inputs.T @ inputs
        square = jax.lax.fori_loop(
            0, products[0], lambda _, product: jnp.tanh(product @ product), square
        )
        return jax.lax.pmean(jnp.mean(square), "data")

    products = np.array([SLOW_PRODUCTS if slow_here() else 1], np.int32)
    with StepLogger(folder / "logs") as log:
        for batch in log.watch(batches(MANY)):
            inputs, own_products = (
                jax.make_array_from_process_local_data(split, array) for array in (batch, products)
            )
            loss = step(inputs, own_products)
            log.results(loss)
            loss.block_until_ready()
    return {"ours": []}


@FOUR.add
def slow_host_in_mesh(folder: Path) -> Any:
    """Share batches and weights on two axes of a mesh; all processes of ``replica`` 1 are slow."""
    mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("replica", "shard"))
    split, whole, columns = (
        NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("replica",), (), (None, "shard"))
    )
    weights = jax.device_put(np.eye(WIDTH, dtype=np.float32), columns)

    @functools.partial(jax.jit, out_shardings=(columns, whole))
    def step(weights: Any, inputs: Any) -> Any:
        loss, gradients = update(weights, inputs)
        return weights - 0.1 * gradients, loss

    with StepLogger(folder / "logs") as log:
        for batch in log.watch(batches(MANY)):
            if jax.process_index() >= 2:
                time.sleep(SLOW_SECONDS)
            inputs = jax.make_array_from_process_local_data(split, batch)
            weights, loss = step(weights, inputs)
            log.results(loss)
            loss.block_until_ready()
    return {"ours": []}


if __name__ == "__main__":
    main(FOUR if sys.argv[1] == "four" else RANKS)
