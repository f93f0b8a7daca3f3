"""Compare two processes of JAX, of which the last one has a slow host or device, over many steps.

    python jax_hosts_cases.py ranks OUT [CASE …]      starts both

``OUT/CASE/logs`` holds the logs; for results and errors see ``run_cases``.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from case_runner import Cases
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax_cases import batches, main, recorded, slow_here, slow_on_host, wait_for_loss

from stallscope.jax import StepLogger

#: The steps of an epoch.
MANY = 40
#: Products of matrices in a compiled step, which take tens of milliseconds.
SLOW_PRODUCTS = 20_000

RANKS = Cases()
ranked = RANKS.add


@ranked
def equal_ranks(folder: Path) -> Any:
    return recorded(folder, wait_for_loss, lambda: batches(MANY))


@ranked
def slow_host(folder: Path) -> Any:
    return recorded(folder, slow_on_host, lambda: batches(MANY))


@ranked
def slow_loader(folder: Path) -> Any:
    return recorded(folder, wait_for_loss, lambda: batches(MANY, slow=slow_here()))


@ranked
def slow_loader_ahead(folder: Path) -> Any:
    """Let the hosts run ahead: only the slow loader's host is behind its device."""
    return recorded(folder, make=lambda: batches(MANY, slow=slow_here()))


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


if __name__ == "__main__":
    main(RANKS)
