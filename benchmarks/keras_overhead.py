"""Measure what recording costs per step of Keras on Horovod, as a share of the Horovod Timeline's cost.

Also measure whether backward and allreduce still overlap with the callback: compare the Timeline's
intervals in steps with the callback with those in steps without. Processes with and without the
Timeline alternate, because from hvd.init on its thread polls for events and keeps a core busy, even if
the Timeline starts later.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from figures import Figure, added, at_most, share_of
from logs import host_part_us, step_rows
from paired import Difference, difference, over_processes
from peers import ROOT, TRAINING, output_of

PROGRAM = ROOT / "benchmarks" / "keras_overhead_training.py"
#: In its first runs, about ninety, TensorFlow treats an op as expensive and uses another thread.
SKIPPED = 100
#: Pairs of steps whose median is one value, because disturbances last for seconds.
BLOCK = 25
#: The time of a step: on the clock, and CPU time of all threads.
UNITS = ("us", "cpu_us")


class Size(NamedTuple):
    """The size of a network and of its training."""

    ranks: int
    layers: int
    width: int
    #: How many times the timestamps are in the graph: enough that their cost exceeds noise.
    stamped: int
    processes: int
    pairs: int


class Intervals(NamedTuple):
    """Milliseconds of one step; medians over its gradients."""

    negotiate: float
    allreduce: float
    #: From the first gradient's negotiation to the end of the last reduction.
    span: float


def figures(quick: bool) -> Iterator[Figure]:
    # Processes differ by more than the blocks of one: more pairs would not narrow the intervals.
    processes = 1 if quick else 3
    small = Size(1, layers=10, width=64, stamped=10, processes=processes, pairs=400)
    # Many small layers: the Timeline's cost grows with the number of gradients, ours hardly does.
    large = Size(2, layers=80, width=32, stamped=80, processes=processes, pairs=200)
    yield from one_process_figures(small)
    yield from several_ranks_figures(large)


def one_process_figures(size: Size) -> list[Figure]:
    with TemporaryDirectory() as folder:
        outs = [Path(folder) / str(number) for number in range(size.processes)]
        runs = [trained(size, out, size.pairs, size.stamped) for out in outs]
        by = of_one(size, recorders(runs, "us"), median(host_part_us(out) for out in outs))
    name = f"Keras, one process, {runs[0]['gradients']} gradients: added per step"
    return [at_most(name, by.value, "µs", 50, interval=by.interval)]


def several_ranks_figures(size: Size) -> list[Figure]:
    with TemporaryDirectory() as folder:
        out = Path(folder)
        recorded, timed = [], []
        for number in range(size.processes):
            recorded.append(trained(size, out / f"own-{number}", size.pairs, size.stamped))
            # The Timeline contains all steps of rank 0; timestamps are once in the graph, as for users.
            timeline = out / f"timeline-{number}"
            timed.append(trained(size, timeline, 200, 1, timeline / "timeline.json"))
        what = f"Keras, {size.ranks} ranks, {recorded[0]['gradients']} gradients"
        host = median(host_part_us(out / f"own-{number}") for number in range(size.processes))
        figures = costs(what, size, recorded, timed, host)
        paths = [out / f"timeline-{number}" for number in range(size.processes)]
        return figures + written(what, paths, timed) + overlap(what, paths, timed)


def trained(
    size: Size, out: Path, pairs: int, stamped: int, timeline: Path | None = None
) -> dict[str, Any]:
    """Train in a separate process for every rank, and return what the program measured."""
    out.mkdir()
    words = ["horovodrun", "--disable-cache", "-np", str(size.ranks), "python", str(PROGRAM)]
    numbers = [size.layers, size.width, stamped, pairs, int(out.name.split("-")[-1])]
    variables = {"TF_CPP_MIN_LOG_LEVEL": "3"}
    if timeline:
        variables["HOROVOD_TIMELINE"] = str(timeline)
    output_of([*words, str(out), *map(str, numbers)], TRAINING, variables)
    result: dict[str, Any] = json.loads((out / "result.json").read_text())
    return result


def costs(
    what: str, size: Size, recorded: list[dict[str, Any]], timed: list[dict[str, Any]], host: float
) -> list[Figure]:
    """Return what callback and Timeline add to a step, on the clock and in CPU time."""
    figures = []
    for unit, name in zip(UNITS, ("added per step", "CPU time added per step")):
        by = of_one(size, recorders(recorded, unit), host)
        # Compare only processes that ran one after the other.
        with_it, without = (
            [median(step_times(run, "none", unit)) for run in runs] for runs in (timed, recorded)
        )
        timeline = difference(with_it, without)
        figures += added(
            f"{what}: {name}", by, "the Timeline", "Horovod Timeline", timeline, most=0.02
        )
    return figures


def step_times(run: dict[str, Any], arm: str, unit: str) -> list[float]:
    """Return the times of an arm's steps, without the first ones."""
    return [step[unit] for step in run["steps"] if step["arm"] == arm][1 + SKIPPED :]


def recorders(runs: list[dict[str, Any]], unit: str) -> Difference:
    """Return how much longer steps of the arm with recorders take, from pairs of steps."""
    return paired_blocks(
        [(step_times(run, "recorder", unit), step_times(run, "none", unit)) for run in runs]
    )


def paired_blocks(arms: list[tuple[list[float], list[float]]], together: int = 1) -> Difference:
    """Return the difference of two arms, pair by pair, with an interval over processes.

    ``together`` is that of ``over_processes``.
    """
    processes = []
    for recorded, none in arms:
        by = [a - b for a, b in zip(recorded, none)]
        blocks = range(0, len(by) - BLOCK + 1, BLOCK)
        processes.append([median(by[at : at + BLOCK]) for at in blocks])
    return over_processes(processes, together)


def of_one(size: Size, by: Difference, host: float) -> Difference:
    """Return what one recorder adds: the graph has its timestamps many times, its host part once."""
    value, low, high = (host + (us - host) / size.stamped for us in (by.value, by.low, by.high))
    return Difference(value, low, high)


def written(what: str, outs: list[Path], timed: list[dict[str, Any]]) -> list[Figure]:
    """Return the bytes per step and rank: rows of the step log, and the Timeline's events."""
    rows = [len(line) for out in outs for line in step_rows(out / "logs")]
    sizes = [
        (out / "timeline.json").stat().st_size / len(run["steps"]) for out, run in zip(outs, timed)
    ]
    ours = sum(rows) / len(rows)
    name = f"{what}: bytes per step"
    return [share_of(name, ours, "B", "Horovod Timeline", median(sizes), most=0.02)]


def overlap(what: str, outs: list[Path], timed: list[dict[str, Any]]) -> list[Figure]:
    """Return the Timeline's intervals in steps with the callback, minus those in steps without."""
    arms = []
    for out, run in zip(outs, timed):
        steps = intervals(out / "timeline.json")
        by_arm: dict[str, list[Intervals]] = defaultdict(list)
        for step, step_intervals in zip(run["steps"], steps, strict=True):
            by_arm[step["arm"]].append(step_intervals)
        arms.append({arm: arm_steps[1 + SKIPPED :] for arm, arm_steps in by_arm.items()})
    figures = []
    names = ("a gradient's negotiation", "a gradient's allreduce", "communication of a step")
    for at, name in enumerate(names):
        pairs = [
            ([step[at] for step in process["recorder"]], [step[at] for step in process["none"]])
            for process in arms
        ]
        by = paired_blocks(pairs, together=len(names))
        figures.append(
            Figure(
                f"{what}: {name}, with the callback − without",
                by.value,
                "ms",
                "without the callback",
                median(step[at] for process in arms for step in process["none"]),
                target="0 within its interval",
                met=by.low <= 0 <= by.high,
                interval=by.interval,
            )
        )
    return figures


def intervals(path: Path) -> list[Intervals]:
    """Read every step's intervals from a timeline; each gradient is a process, and events nest."""
    begun: dict[int, list[tuple[str, int]]] = defaultdict(list)
    negotiated: dict[int, tuple[int, int]] = {}
    reduced: dict[int, int] = defaultdict(int)
    steps: dict[int, list[tuple[int, int, int, int]]] = defaultdict(list)
    for event in json.loads(path.read_text()):
        tensor, at = event["pid"], event.get("ts", 0)
        if event["ph"] == "B":
            begun[tensor].append((event["name"], at))
        elif event["ph"] == "E" and begun[tensor]:
            name, began = begun[tensor].pop()
            if name == "NEGOTIATE_ALLREDUCE":
                negotiated[tensor] = began, at
            elif name == "ALLREDUCE":
                steps[reduced[tensor]].append((*negotiated[tensor], began, at))
                reduced[tensor] += 1
    return [of_step(np.array(steps[number]) / 1e3) for number in sorted(steps)]


def of_step(times: np.ndarray) -> Intervals:
    """Return a step's gradients: when each was negotiated, and when its reduction started and ended."""
    asked, agreed, began, ended = times.T
    return Intervals(
        float(np.median(agreed - asked)), float(np.median(ended - began)), ended.max() - asked.min()
    )
