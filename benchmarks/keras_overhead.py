"""What recording costs per step of Keras on Horovod: no callback, the callback and the Timeline, in
turns; and whether backward and allreduce overlap with the callback as they do without.

On one rank the host part, which the recorder tells itself; on two, where gradients are reduced, the
rest. The overlap is the Timeline's own word: its intervals with the callback against those without it.
What is added by microseconds keras_step_cost.py tells: two models of one kind differ by more.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

from figures import Figure, at_most, share_of
from paired import difference
from peers import ROOT, TRAINING, ran
from torch_overhead import host_part_us

PROGRAM = ROOT / "benchmarks" / "keras_overhead_training.py"
STEPS = 12


class Intervals(NamedTuple):
    """Medians of one block of steps, in milliseconds."""

    negotiate: float
    allreduce: float
    #: From the first gradient's negotiation to the end of the last reduction.
    span: float


def figures(quick: bool) -> list[Figure]:
    return of_ranks(1, 4 if quick else 14) + of_ranks(2, 4 if quick else 14)


def of_ranks(ranks: int, rounds: int) -> list[Figure]:
    with TemporaryDirectory() as folder:
        out = Path(folder)
        words = ["horovodrun", "--disable-cache", "-np", str(ranks), "python", str(PROGRAM)]
        variables = {"HOROVOD_TIMELINE": "DYNAMIC", "TF_CPP_MIN_LOG_LEVEL": "2"}
        ran([*words, folder, str(rounds), str(STEPS)], TRAINING, variables)
        result = json.loads((out / "result.json").read_text())
        what = f"Keras, {ranks} rank{'s' * (ranks > 1)}, {result['gradients']} gradients"
        if ranks == 1:
            return [at_most(f"{what}: host part per step", host_us(out), "µs", 5)]
        found = added(what, result["step_ms"]) + worked(what, result["processors_ms"])
        return found + written(what, out, result) + overlap(what, result["timelines"])


def added(what: str, step_ms: dict[str, list[float]]) -> list[Figure]:
    """What callback and Timeline add to a step, from paired blocks."""
    name = f"{what}: added per step"
    against = against_timeline(f"{name}, against the Timeline", step_ms)
    return [at_most(name, against.value, "µs", 50, interval=against.interval), against]


def worked(what: str, processors_ms: dict[str, list[float]]) -> list[Figure]:
    """What all threads of the process work more per step, with the callback and with the Timeline.

    Where one of two processors is free, what the Timeline's own thread does lengthens no step.
    """
    return [against_timeline(f"{what}: processors' time added per step", processors_ms)]


def against_timeline(name: str, own_ms: dict[str, list[float]]) -> Figure:
    """What the callback adds, as a share of what the Timeline does; one figure per arm and round."""
    own_us = {arm: [1e3 * one for one in rounds] for arm, rounds in own_ms.items()}
    own, other = (difference(own_us[arm], own_us["none"]) for arm in ("callback", "timeline"))
    return share_of(
        name,
        own.value,
        "µs",
        "Horovod Timeline",
        other.value,
        most=0.02,
        interval=own.interval,
        other_interval=other.interval,
    )


def written(what: str, out: Path, result: dict) -> list[Figure]:
    """Bytes per step and rank: rows of the step log, and the Timeline's events."""
    rows = [len(line) for line in step_rows(out / "logs")]
    sizes = [Path(path).stat().st_size for path in result["timelines"]["timeline"]]
    ours, theirs = sum(rows) / len(rows), median(sizes) / STEPS
    return [
        at_most(f"{what}: bytes per step and rank", ours, "B", 64),
        share_of(f"{what}: bytes per step", ours, "B", "Horovod Timeline", theirs, most=0.02),
    ]


def overlap(what: str, timelines: dict[str, list[str]]) -> list[Figure]:
    """The Timeline's intervals with the callback minus those without, block by block."""
    with_it, without = (
        [intervals(Path(path)) for path in timelines[arm]] for arm in ("both", "timeline")
    )
    found = []
    for at, name in enumerate(
        ("a gradient's negotiation", "a gradient's allreduce", "communication of a step")
    ):
        own, other = ([block[at] for block in blocks] for blocks in (with_it, without))
        by = difference(own, other)
        found.append(
            Figure(
                f"{what}: {name}, with the callback − without",
                by.value,
                "ms",
                "without the callback",
                median(other),
                target="0 within its interval",
                met=by.low <= 0 <= by.high,
                interval=by.interval,
            )
        )
    return found


def intervals(path: Path) -> Intervals:
    """What a timeline of one block says; events nest, and each gradient is a process of its own."""
    begun: dict[int, list[tuple[str, int]]] = defaultdict(list)
    negotiate, allreduce = [], []
    steps: dict[int, list[tuple[int, int]]] = defaultdict(list)
    first: dict[int, int] = {}
    reduced: dict[int, int] = defaultdict(int)
    for event in json.loads(path.read_text()):
        tensor, at = event["pid"], event.get("ts", 0)
        if event["ph"] == "B":
            begun[tensor].append((event["name"], at))
        elif event["ph"] == "E" and begun[tensor]:
            name, began = begun[tensor].pop()
            if name == "NEGOTIATE_ALLREDUCE":
                negotiate.append(at - began)
                first[tensor] = began
            elif name == "ALLREDUCE":
                allreduce.append(at - began)
                steps[reduced[tensor]].append((first.get(tensor, began), at))
                reduced[tensor] += 1
    spans = [max(e for _, e in own) - min(b for b, _ in own) for own in steps.values()]
    return Intervals(median(negotiate) / 1e3, median(allreduce) / 1e3, median(spans) / 1e3)


def host_us(out: Path) -> float:
    return median(host_part_us(out / "logs"))


def step_rows(logs: Path) -> list[bytes]:
    """The rows of steps, as they are in the logs."""
    return [
        line
        for path in logs.rglob("*.steps.csv")
        for line in path.read_bytes().splitlines(keepends=True)
        if line.startswith(b"step,")
    ]
