"""Train a small model in plain JAX, each case with its own log folder.

    python jax_cases.py alone OUT [CASE …]      cases of one process
    python jax_cases.py ranks OUT [CASE …]      cases of two processes, which this one starts

``OUT/CASE/logs`` holds the logs; for results and errors see ``run_cases``.
"""

from __future__ import annotations

import functools
import itertools
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import jax
import jax.numpy as jnp
import numpy as np
from case_runner import REPEATED, Cases, Stopwatch, digest, raised_by, run_cases
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from stallscope.jax import StepLogger, measure_input, synthetic_like

BATCH = 16
STEPS = 12
WIDTH = 8
#: The delay of the slow rank, longer than other delays on a busy machine.
SLOW_SECONDS = 0.12
PROCESSES = {"ranks": 2, "four": 4}
#: Steps that the host dispatches before the device has finished them.
AHEAD_STEPS = 20
INNER = np.eye(512, dtype=np.float32)

RANKS, ALONE = Cases(), Cases()
ranked, alone = RANKS.add, ALONE.add


def slow_here() -> bool:
    """Return whether this is the last process, which is slow."""
    return jax.process_index() == jax.process_count() - 1


def batches(steps: int = STEPS, slow: bool = False) -> Iterator[Any]:
    random = np.random.default_rng(7 + jax.process_index())
    for _ in range(steps):
        if slow:
            time.sleep(SLOW_SECONDS)
        yield random.random((BATCH, WIDTH), np.float32)


def update(weights: Any, inputs: Any) -> Any:
    def loss_of(weights: Any) -> Any:
        return jnp.mean((jnp.tanh(inputs @ weights) - 1.0) ** 2)

    loss, gradients = jax.value_and_grad(loss_of)(weights)
    return loss, gradients


class Training:
    """A model on a mesh of all processes' devices; its compiled step reduces the gradients."""

    def __init__(self) -> None:
        mesh = Mesh(np.array(jax.devices()), ("data",))
        self.split = NamedSharding(mesh, PartitionSpec("data"))
        self.weights = jax.device_put(
            np.eye(WIDTH, dtype=np.float32), NamedSharding(mesh, PartitionSpec())
        )

    def step(self, batch: Any) -> Any:
        """Train on a batch; return the loss."""
        inputs = jax.make_array_from_process_local_data(self.split, batch)
        self.weights, loss = compiled(self.weights, inputs)
        return loss

    def run(self, loader: Any) -> Any:
        for batch in loader:
            self.step(batch)
        return self.seen()

    def seen(self) -> dict[str, Any]:
        return seen(self.weights)


def seen(weights: Any) -> dict[str, Any]:
    return {"weights": digest([np.asarray(weights.addressable_data(0))]), "ours": []}


@functools.partial(jax.jit, donate_argnums=0)
def compiled(weights: Any, inputs: Any) -> Any:
    loss, gradients = update(weights, inputs)
    return weights - 0.1 * gradients, loss


def recorded(
    folder: Path,
    step: Callable[[Any, Any, Any], None] | None = None,
    make: Callable[[], Any] = batches,
    training: Training | None = None,
    epochs: int = 2,
    **options: Any,
) -> dict[str, Any]:
    """Record some epochs, with pauses after each."""
    training, stopwatch = training or Training(), Stopwatch()
    first_step = options.pop("first_step", None)
    with StepLogger(folder / "logs", **options) as log:
        for epoch in range(epochs):
            batches_of_epoch = log.watch(make(), first_step=None if epoch else first_step)
            for batch in stopwatch.watch(batches_of_epoch):
                if step is None:
                    log.results(training.step(batch))
                else:
                    step(log, training, batch)
            with log.validation():
                # A validation without any time would not be in the log.
                time.sleep(0.001)
            with log.checkpoint():
                np.save(folder / f"saved-{jax.process_index()}", training.seen()["weights"])
    return {**training.seen(), "stopwatch": stopwatch.times}


def wait_for_loss(log: StepLogger, training: Training, batch: Any) -> None:
    """Train as with a printed loss: the device is idle while the host fetches data."""
    loss = training.step(batch)
    log.results(loss)
    loss.block_until_ready()


class Batches:
    """Batches of which a loop has so many, and another loop the same."""

    def __len__(self) -> int:
        return STEPS

    def __iter__(self) -> Iterator[Any]:
        return batches()


@ranked
@alone
def probed(folder: Path) -> Any:
    silent = Training()
    for _ in range(2):
        silent.run(batches())
    training = Training()
    with StepLogger(folder / "logs", probe_every=12) as log:
        for _ in range(2):
            for batch in log.watch(Batches(), probe_input=6):
                log.results(training.step(batch))
    return {**training.seen(), "silent": silent.seen()["weights"]}


@alone
def probe_refused(folder: Path) -> Any:
    """Ask for a probe of data that cannot have one, and of data that the user must name."""
    for name, data in (("iterator", batches()), ("unnamed", Batches())):
        training = Training()
        with StepLogger(folder / name, probe_input=6, probe_every=12) as log:
            for batch in log.watch(data):
                log.results(training.step(batch))
    return {}


@ranked
@alone
def plain(folder: Path) -> Any:
    silent = Training()
    for _ in range(2):
        silent.run(batches())
    results = recorded(folder, wait_for_loss, run_name="plain run")
    return {**results, "silent": silent.seen()["weights"]}


@ranked
@alone
def slow_input(folder: Path) -> Any:
    return recorded(folder, wait_for_loss, lambda: batches(slow=slow_here()), epochs=1)


@ranked
@alone
def padded(folder: Path) -> Any:
    """Train on texts of different lengths, as NumPy's arrays by name."""
    random = np.random.default_rng(7 + jax.process_index())
    training, counted = Training(), []
    with StepLogger(folder / "logs") as log:
        for _ in range(2):
            texts = []
            for _ in range(STEPS):
                mask = (np.arange(WIDTH) < random.integers(1, WIDTH + 1, (BATCH, 1))).astype(int)
                ids = mask * random.random((BATCH, WIDTH))
                texts.append({"inputs": ids.astype(np.float32), "attention_mask": mask})
                counted.append([int(mask.sum()), int((1 - mask).sum())])
            for batch in log.watch(texts):
                log.results(training.step(batch["inputs"]))
    return {**training.seen(), "counted": counted}


@ranked
@alone
def flax_and_optax(folder: Path) -> Any:
    """Train a model of Flax with Optax, as in their guides, with a slow loader on the last rank."""
    import optax
    from flax import nnx

    mesh = Mesh(np.array(jax.devices()), ("data",))
    split, whole = (NamedSharding(mesh, PartitionSpec(*axis)) for axis in (("data",), ()))
    model = nnx.Sequential(
        nnx.Linear(WIDTH, 16, rngs=nnx.Rngs(0)), nnx.relu, nnx.Linear(16, 1, rngs=nnx.Rngs(1))
    )
    optimizer = nnx.Optimizer(model, optax.adam(0.01), wrt=nnx.Param)
    graph, state = nnx.split((model, optimizer))
    state = jax.device_put(state, whole)

    @jax.jit
    def step(state: Any, inputs: Any) -> Any:
        model, optimizer = nnx.merge(graph, state)
        loss, gradients = nnx.value_and_grad(
            lambda network: jnp.mean((network(inputs) - 1.0) ** 2)
        )(model)
        optimizer.update(model, gradients)
        return nnx.split((model, optimizer))[1], loss

    losses: list[float] = []
    with StepLogger(folder / "logs") as log:
        for batch in log.watch(batches(slow=slow_here())):
            inputs = jax.make_array_from_process_local_data(split, batch)
            state, loss = step(state, inputs)
            log.results(loss)
            losses.append(float(loss))
    return {"first": losses[0], "last": losses[-1], "ours": []}


@ranked
@alone
def synthetic(folder: Path) -> Any:
    """Measure a loader alone, and train on synthetic batches like its own."""
    loader = list(batches())
    measured = measure_input(loader, steps=6, log_dir=folder / "logs")
    results = recorded(folder, make=lambda: synthetic_like(loader))
    return {**results, "kind": measured.kind, "samples_per_second": measured.samples_per_second}


def slow_on_host(log: Any, training: Training, batch: Any) -> None:
    if slow_here():
        time.sleep(SLOW_SECONDS)
    wait_for_loss(log, training, batch)


@alone
def slow_compute(folder: Path) -> Any:
    return recorded(folder, slow_on_host, epochs=1)


@ranked
def read_before(folder: Path) -> Any:
    """Wait for the loss before the recorder gets it."""

    def step(log: Any, training: Training, batch: Any) -> None:
        log.results(training.step(batch).block_until_ready())

    return recorded(folder, step)


@ranked
@alone
def raises(folder: Path) -> Any:
    training, steps = Training(), itertools.count()

    def step(log: Any, training: Training, batch: Any) -> None:
        if next(steps) == 5:
            raise OSError("the disk is gone")
        wait_for_loss(log, training, batch)

    raised = raised_by(lambda: recorded(folder, step, training=training))
    return {**training.seen(), "raised": raised}


@ranked
@alone
def resumed(folder: Path) -> Any:
    return recorded(folder, wait_for_loss, first_step=100)


@ranked
def pmapped(folder: Path) -> Any:
    """Give each device a copy of the weights and a part of each batch."""

    @functools.partial(jax.pmap, axis_name="data")
    def step(weights: Any, inputs: Any) -> Any:
        loss, gradients = update(weights, inputs)
        return weights - 0.1 * jax.lax.pmean(gradients, "data"), loss

    weights = np.eye(WIDTH, dtype=np.float32)[None]
    with StepLogger(folder / "logs") as log:
        for batch in log.watch(inputs[None] for inputs in batches()):
            weights, loss = step(weights, batch)
            log.results({"loss": loss})
    return seen(weights)


@jax.jit
def long(weights: Any) -> Any:
    for _ in range(8):
        weights = jnp.tanh(weights @ INNER)
    return weights


@alone
def host_ahead(folder: Path) -> Any:
    """Dispatch long steps without waiting for their results."""
    behind: list[bool] = []
    state = long(INNER).block_until_ready()
    with StepLogger(folder / "logs", batch_size=1) as log:
        for _ in log.watch(range(AHEAD_STEPS)):
            state = long(state)
            log.results(state)
            behind.append(not state.is_ready())
        # As a training that saves its weights.
        state.block_until_ready()
    return {"behind": sum(behind), "ours": []}


@ranked
@alone
def accumulation(folder: Path) -> Any:
    iterations = itertools.count(1)

    def step(log: Any, training: Training, batch: Any) -> None:
        loss = training.step(batch)
        if next(iterations) % 3 == 0:
            log.results(loss)

    return recorded(folder, step)


@ranked
@alone
def repeats(folder: Path) -> Any:
    def repeated() -> Iterator[Any]:
        for times, inputs in zip(REPEATED, batches()):
            yield np.repeat(inputs[:, None], times, axis=1)

    return recorded(folder, make=repeated)


@alone
def without_results(folder: Path) -> Any:
    return recorded(folder, lambda _, training, batch: training.step(batch))


@alone
def without_stages(folder: Path) -> Any:
    return recorded(folder, stages=False)


@alone
def left_early(folder: Path) -> Any:
    """Leave the loop early, and train on without the recorder."""
    training = Training()
    with StepLogger(folder / "logs") as log:
        for number, batch in enumerate(log.watch(batches())):
            log.results(training.step(batch))
            if number == 4:
                break
    log.results(training.step(batch))
    return training.seen()


@alone
def donated(folder: Path) -> Any:
    """Pass the weights as results, although the next step overwrites them."""

    def step(log: Any, training: Training, batch: Any) -> None:
        training.step(batch)
        log.results(training.weights)

    return recorded(folder, step)


@ranked
@alone
def recorder_breaks(folder: Path) -> Any:
    from stallscope.collector.recorder.jax import jax_results

    def broken(*_: Any) -> None:
        raise ZeroDivisionError("broken on purpose")

    silent = Training()
    for _ in range(2):
        silent.run(batches())
    original = jax_results.ResultTimes.add
    jax_results.ResultTimes.add = broken  # type: ignore[method-assign]
    try:
        return {**recorded(folder), "silent": silent.seen()["weights"]}
    finally:
        jax_results.ResultTimes.add = original  # type: ignore[method-assign]


@alone
def device_behind_at_the_end(folder: Path) -> Any:
    """End Python, after this last case, while the device still computes and nothing waits for it."""
    from stallscope.collector.recorder.jax import jax_results

    jax_results._PATIENCE_NS = 0
    state = long(INNER).block_until_ready()
    with StepLogger(folder / "logs") as log:
        for _ in log.watch(range(AHEAD_STEPS)):
            state = long(state)
            log.results(state)
    return {"behind": not state.is_ready(), "ours": []}


def start_ranks(number: int) -> int:
    """Start this program as so many ranks; return the greatest exit status."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    started = [
        subprocess.Popen(
            [sys.executable, *sys.argv], env={**os.environ, "RANK_OF_CASES": f"{rank} {address}"}
        )
        for rank in range(number)
    ]
    return max(abs(process.wait()) for process in started)


def main(ranks: Cases = RANKS) -> None:
    """Run the cases of one process, or these of several."""
    kind, out, *names = sys.argv[1:]
    place = os.environ.pop("RANK_OF_CASES", None)
    if kind == "alone":
        run_cases(ALONE, Path(out), names, 0)
    elif place is None:
        sys.exit(start_ranks(PROCESSES[kind]))
    else:
        rank, address = place.split()
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(address, PROCESSES[kind], int(rank))
        run_cases(ranks, Path(out), names, int(rank))
        jax.distributed.shutdown()


if __name__ == "__main__":
    main()
