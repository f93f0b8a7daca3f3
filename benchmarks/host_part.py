"""Measure the recorder's own work around a step, and the bytes it writes per step, in every framework.

The trainings are small and written as users write them. Each runs in one process (FSDP2 in two), with
few and with many gradients. The logs count the recorder's own work, without hooks on gradients, timing
of collectives and timestamps in a graph. On MXNet and JAX the host takes the timestamps, too: MXNet's
engine is queried for them, and on JAX a thread wakes up. These two train with stages and without.

A process trains in turns with the recorder and with a bare tool, which is called as often in a step and
only reads the clock. Both are timed from outside, around their functions (small/turns.py); only around
Keras' train function the recorder's own count is used. If the machine slows down, both become slower,
and their ratio stays. In custom loops of Keras 2 a third tool has the recorder's calls, keeps the
readings of the clock and the batch's shape, and does nothing else: any recorder must do that. What each
part of these tools takes is the table of docs/benchmarks.md, which this program writes:

    python benchmarks/host_part.py

On the smaller network the recorder also trains without what it has for causes inside steps: hooks into
the garbage collector, compilers and functions that save, looks at the training thread, and the tokens of
one in eight batches. The difference is what they add to a step in which nothing of that happens.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from figures import Figure, at_most, times_as_much
from logs import host_part_us, step_rows
from pages import DOCS, with_table
from paired import difference, over_rounds
from peers import ROOT, TRAINING, output_of

PROGRAMS = ROOT / "benchmarks" / "small"
#: Steps of each turn.
STEPS = 150
#: The target, unless the host takes the gradients' timestamps, too.
LIMIT_US = 5
#: The recorder may take so many times the bare tool's time.
MOST_TIMES = 2
#: Causes inside steps may add so much to a step.
CAUSES_LIMIT_US = 0.3


class Training(NamedTuple):
    """A way to train, and the target for its recording."""

    name: str
    environment: Path
    program: str
    words: tuple[str, ...] = ()
    backend: str = ""
    limit_us: float = LIMIT_US


class Turn(NamedTuple):
    """One turn of a training: microseconds per step, and the rows of the steps."""

    #: As the recorder counts them itself.
    own_us: float
    #: In the recorder and in the bare tool, seen from outside.
    recorder_us: float
    bare_us: float
    #: In a tool with the recorder's own calls; 0 where none trains.
    same_calls_us: float
    rows: list[bytes]


class Network(NamedTuple):
    """The turns on a network."""

    turns: list[Turn]
    #: Of each tool and turn, the microseconds of each call in a step; see small/turns.py.
    calls: dict[str, list[list[float]]]
    #: Of further turns, microseconds per step in the recorder, and in it without causes inside steps;
    #: empty if nothing is timed from outside.
    causes_us: list[float]
    no_causes_us: list[float]


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


def figures(quick: bool) -> Iterator[Figure]:
    for training in TRAININGS:
        for layers, network in sorted(trained(training, STEPS // 4 if quick else STEPS).items()):
            yield from network_figures(training, layers, network)


def network_figures(training: Training, layers: int, network: Network) -> Iterator[Figure]:
    turns = network.turns
    what = f"{training.name}, {2 * (layers + 1)} gradients"
    own_us = median(turn.own_us for turn in turns)
    if training.limit_us > LIMIT_US:
        name = f"{what}: host part and timestamps per step"
        yield at_most(name, own_us, "µs", training.limit_us)
    else:
        name = f"{what}: host part per step"
        yield at_most(name, own_us, "µs", LIMIT_US)
        yield against(what, turns, "a bare tool", "bare_us")
        if turns[0].same_calls_us:
            yield against(what, turns, "the same calls", "same_calls_us")
    if network.causes_us:
        yield of_causes(what, network)
    rows = [row for turn in turns for row in turn.rows]
    yield at_most(f"{what}: bytes per step and rank", sum(map(len, rows)) / len(rows), "B", 64)


def of_causes(what: str, network: Network) -> Figure:
    """Return what causes inside steps add to a step, also as a share of the recorder's other time."""
    added = difference(network.causes_us, network.no_causes_us)
    rest_us = median(network.no_causes_us)
    figure = at_most(
        f"{what}: causes inside steps add per step",
        added.value,
        "µs",
        CAUSES_LIMIT_US,
        interval=added.interval,
    )
    rest = "the rest of the recorder"
    ratio = added.value / rest_us
    return replace(figure, alternative=rest, alternative_value=rest_us, ratio=ratio)


def against(what: str, turns: list[Turn], alternative: str, name: str) -> Figure:
    """Return the time in the recorder as a multiple of another tool's, turn by turn."""
    return times_as_much(
        f"{what}: time in the recorder per step, against {alternative}",
        median(turn.recorder_us for turn in turns),
        "µs",
        alternative,
        median(getattr(turn, name) for turn in turns),
        over_rounds([turn.recorder_us / getattr(turn, name) for turn in turns]),
        MOST_TIMES,
    )


def trained(training: Training, steps: int) -> dict[int, Network]:
    """Train in one process, and return its networks by the number of layers."""
    with TemporaryDirectory() as folder:
        words = ["python", str(PROGRAMS / training.program), folder, str(steps)]
        variables = {"KERAS_BACKEND": training.backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
        output_of([*words, *training.words], training.environment, variables)
        return {int(path.name): network_in(path) for path in Path(folder).iterdir()}


def network_in(folder: Path) -> Network:
    """Read the turns of a training."""
    spent: dict[str, Any] = json.loads((folder / "spent.json").read_text())
    turns = []
    others = spent.get("same_calls", [0.0] * len(spent["bare"]))
    for number, times in enumerate(zip(spent["recorded"], spent["bare"], others, strict=True)):
        logs, (recorder_us, bare_us, same_calls_us) = folder / f"recorded-{number}", times
        own_us = host_part_us(logs)
        # With Keras, nothing is timed from outside.
        recorder_us = recorder_us or own_us
        turns.append(Turn(own_us, recorder_us, bare_us, same_calls_us, step_rows(logs)))
    causes = (list(filter(None, spent.get(name, []))) for name in ("causes", "no_causes"))
    return Network(turns, spent["calls"], *causes)


# -- What each part of the tools takes ------------------------------------------------------------

#: The calls in a step of a custom loop.
MOMENTS = ("step begins", "batch arrives", "step ends")
#: What each tool does that the one before it leaves out.
PARTS = {
    "bare": "a bare tool: the clock is read in one function",
    "calls": "the calls of a `with` statement and a mark",
    "same_calls": "the shape of the batch",
    "recorded": "the rest of the recorder",
}


def main() -> None:
    page, training = DOCS / "benchmarks.md", TRAININGS[1]
    networks = sorted(trained(training, STEPS).items())
    page.write_text(with_table(page.read_text(), parts_table(networks)))


def parts_table(networks: Sequence[tuple[int, Network]]) -> list[str]:
    """Return what each part of the tools takes in a step: medians over the turns."""
    gradients = [2 * (layers + 1) for layers, _ in networks]
    columns = [f"{moment}, {number}" for number in gradients for moment in (*MOMENTS, "all")]
    lines = [
        f"| µs per step, by gradients | {' | '.join(columns)} |",
        f"| --- |{' ---: |' * len(columns)}",
    ]
    before = np.zeros(len(columns))
    for tool, part in PARTS.items():
        spent = np.concatenate([_moments(network.calls[tool]) for _, network in networks])
        lines.append(_line(part, spent - before))
        before = spent
    return [*lines, _line("the recorder", before)]


def _moments(turns: list[list[float]]) -> npt.NDArray[np.float64]:
    """Return the microseconds of each call in a step, and their sum."""
    moments = np.median(turns, axis=0)
    return np.append(moments, moments.sum())


def _line(name: str, values: Iterable[float]) -> str:
    return f"| {name} | {' | '.join(f'{value:.1f}' for value in values)} |"


if __name__ == "__main__":
    main()
