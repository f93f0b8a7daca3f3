"""Measure the recorder's own work around a step, and the bytes it writes per step, in every framework.

The trainings are small, run in one process each (with FSDP2 in two), are written as users write them,
and have few or many gradients. The logs count the recorder's own work; hooks on gradients, timing of
collectives and timestamps in a graph are not included. Where a graph cannot take timestamps, they are
the host's work as well: MXNet's engine is queried for them, and on JAX a thread wakes up. These two
train with stages and without.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

from figures import Figure, at_most
from logs import host_part_us, step_rows
from peers import ROOT, TRAINING, ran

PROGRAMS = ROOT / "benchmarks" / "small"
STEPS = 600
#: Chance effects of a process affect all of its steps: take the median of so many processes.
PROCESSES = 3
#: Dense layers before the last; each has two gradients.
LAYERS = (10, 80)


class Training(NamedTuple):
    """A way to train, and the target for its recording."""

    name: str
    environment: Path
    program: str
    words: tuple[str, ...] = ()
    backend: str = ""
    limit_us: float = 5


KERAS3, MXNET = ROOT / ".venv-keras3", ROOT / ".venv-mxnet"
TRAININGS = (
    Training("Keras", TRAINING, "with_keras.py"),
    Training("Keras, own loop", TRAINING, "with_own_loop.py"),
    Training("Keras 3, TensorFlow", KERAS3, "with_keras.py", backend="tensorflow"),
    Training("Keras 3, torch", KERAS3, "with_keras.py", backend="torch"),
    Training("Keras 3, JAX, host only", KERAS3, "with_keras.py", ("no-stages",), "jax"),
    Training("Keras 3, JAX", KERAS3, "with_keras.py", backend="jax", limit_us=50),
    Training("JAX, own loop, host only", KERAS3, "with_jax.py", ("no-stages",)),
    Training("JAX, own loop", KERAS3, "with_jax.py", limit_us=50),
    Training("PyTorch", TRAINING, "with_torch.py"),
    Training("Lightning", KERAS3, "with_lightning.py"),
    Training("FSDP2, 2 ranks", KERAS3, "with_fsdp.py"),
    Training("Hugging Face Trainer", KERAS3, "with_transformers.py"),
    Training("Accelerate", KERAS3, "with_accelerate.py"),
    Training("MXNet, host only", MXNET, "with_mxnet.py", ("no-stages",)),
    Training("MXNet", MXNET, "with_mxnet.py", limit_us=50),
)


def figures(quick: bool) -> list[Figure]:
    steps, processes = (STEPS // 4, 1) if quick else (STEPS, PROCESSES)
    found = []
    for training in TRAININGS:
        for layers in LAYERS:
            found += of_network(training, layers, steps, processes)
    return found


def of_network(training: Training, layers: int, steps: int, processes: int) -> list[Figure]:
    runs = [trained(training, layers, steps) for _ in range(processes)]
    what = f"{training.name}, {2 * (layers + 1)} gradients"
    counted = "host part and stamps" if training.limit_us > 5 else "host part"
    host_us, rows = median(us for us, _ in runs), [row for _, own in runs for row in own]
    return [
        at_most(f"{what}: {counted} per step", host_us, "µs", training.limit_us),
        at_most(f"{what}: bytes per step and rank", sum(map(len, rows)) / len(rows), "B", 64),
    ]


def trained(training: Training, layers: int, steps: int) -> tuple[float, list[bytes]]:
    """Return the recorder's own work per step in microseconds, and the rows of the steps."""
    with TemporaryDirectory() as folder:
        words = ["python", str(PROGRAMS / training.program), folder, str(layers), str(steps)]
        variables = {"KERAS_BACKEND": training.backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
        ran([*words, *training.words], training.environment, variables)
        return host_part_us(Path(folder)), step_rows(Path(folder))
