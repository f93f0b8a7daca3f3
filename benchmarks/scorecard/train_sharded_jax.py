"""Train cells of the chapter on shared models with JAX, a process per rank; sharded.py starts it.

python benchmarks/scorecard/train_sharded_jax.py CELLS OUT      starts the ranks
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from cells import DIMENSIONS, mesh_shape
from injection import Injection
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from sharded_plan import WARM_UP, device_seconds
from train_frameworks_jax import BATCH, train_launch

from stallscope.jax import StepLogger

# XLA runs smaller computations on the host's thread, and JAX would return when they are done.
WIDTH = 128

_Target = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
#: XLA calls them as long as the process runs.
_TARGETS: list[Any] = []


def device_of(injection: Injection) -> Any:
    """Return a function for the compiled step that waits as for a device, and returns zero.

    A Python callback (``jax.pure_callback``) would make the host wait as well.
    """
    cell = injection.cell

    @_Target
    def wait(result: int, _: Any) -> None:
        time.sleep(device_seconds(cell.framework, cell.ranks))
        injection.here("device")
        ctypes.memset(result, 0, np.dtype(np.float32).itemsize)

    name = f"wait-{len(_TARGETS)}"
    _TARGETS.append(wait)
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = (
        ctypes.py_object,
        (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p),
    )
    capsule = make(ctypes.cast(wait, ctypes.c_void_p), b"xla._CUSTOM_CALL_TARGET", None)
    jax.ffi.register_ffi_target(name, capsule, platform="cpu", api_version=0)
    return jax.ffi.ffi_call(
        name, jax.ShapeDtypeStruct((), jnp.float32), custom_call_api_version=1, has_side_effect=True
    )


def batches(injection: Injection, steps: int, seed: int) -> Iterator[Any]:
    random = np.random.default_rng(seed)
    for _ in range(steps):
        injection.here("input")
        yield random.random((BATCH, WIDTH), np.float32)


def mesh_of(injection: Injection) -> Mesh:
    """Return the processes in a row, or in replicas that share the weights."""
    cell = injection.cell
    devices = np.array(jax.devices())
    if cell.framework not in DIMENSIONS:
        return Mesh(devices, ("data",))
    shape = mesh_shape(cell.framework, cell.ranks)
    return Mesh(devices.reshape(shape), DIMENSIONS[cell.framework])


def train(injection: Injection, log_dir: Path, steps: int) -> None:
    cell, mesh, wait = injection.cell, mesh_of(injection), device_of(injection)
    replicas, *shards = mesh.axis_names
    split, columns = PartitionSpec(replicas), PartitionSpec(None, *shards)

    def update(weights: Any, inputs: Any) -> Any:
        def loss_of(matrix: Any) -> Any:
            hidden = jnp.tanh(inputs @ matrix)
            waited = wait(jax.lax.stop_gradient(hidden.sum()))
            return jnp.mean((hidden + waited - 1.0) ** 2)

        loss, gradients = jax.value_and_grad(loss_of)(weights)
        mean = jax.lax.pmean(loss, mesh.axis_names)
        return weights - 0.01 * jax.lax.pmean(gradients, replicas), mean

    step = jax.jit(
        jax.shard_map(
            update,
            mesh=mesh,
            in_specs=(columns, split),
            out_specs=(columns, PartitionSpec()),
            check_vma=False,
        )
    )
    weights = jax.device_put(np.eye(WIDTH, dtype=np.float32), NamedSharding(mesh, columns))
    replica = jax.process_index() // (mesh.devices.size // len(mesh.devices))
    data = batches(injection, steps, replica)
    with StepLogger(log_dir, run_name=cell.name, synthetic=cell.synthetic) as log:
        for batch in log.watch(data):
            # Host code of a training, such as its logging.
            injection.here("compute")
            inputs = jax.make_array_from_process_local_data(NamedSharding(mesh, split), batch)
            weights, loss = step(weights, inputs)
            log.results(loss)
            # Like a training that prints its loss: the device is idle while the host loads.
            loss.block_until_ready()


if __name__ == "__main__":
    train_launch(train, WARM_UP)
