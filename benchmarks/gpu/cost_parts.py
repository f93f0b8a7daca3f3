"""Say where the time goes that StepLogger adds to a step on a device, for gpu_check.py.

    python -m gpu.cost_parts OUT ROUNDS LAYERS DEVICE

Copies of one small network train step by step in turns, as in ``torch_overhead_training``, here with the
time of each part of the step. One copy has the least that a recorder of three timestamps does: events of
``torch.cuda`` after the batch, in a hook on the last gradient and at the end, which it never reads.

Then a network that keeps the device busy trains in blocks with and without the recorder: what the host
adds is hidden behind its kernels.

Writes OUT/result.json.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_overhead_training import Copy

from stallscope.torch import StepLogger

from .train import network

PARTS = ("fetch", "forward", "backward", "update", "next")
# In its first steps StepLogger learns which gradient comes last.
WARM_UP_STEPS = 60
# More than the device lags behind.
MOST_EVENTS = 64
CALLS, GROUP = 3000, 10
BUSY_SAMPLES, BLOCK, BLOCKS = 1024, 40, 12
INPUTS = 256
#: One step: nanoseconds of each part.
Times = tuple[int, ...]


class Events:
    """Records events of the device, and reads none of them."""

    def __init__(self, copy: Copy, device: str) -> None:
        self._free: list[Any] = []
        self._taken: deque[Any] = deque()
        self._stream = torch.cuda.current_stream() if device == "cuda" else None
        last = next(copy.model.parameters())
        self.remove = last.register_post_accumulate_grad_hook(lambda _: self.record()).remove

    def record(self) -> None:
        if self._stream is None:
            return
        event = self._free.pop() if self._free else torch.cuda.Event(enable_timing=True)
        event.record(self._stream)
        self._taken.append(event)
        if len(self._taken) > MOST_EVENTS:
            self._free.append(self._taken.popleft())


def steps(copy: Copy, batches: Any, mark: Callable[[], None] | None = None) -> Iterator[Times]:
    """Train, and yield the nanoseconds of each step's parts; ``mark`` runs at arrival and end."""
    begun = time.perf_counter_ns()
    for batch in batches:
        if mark is not None:
            mark()
        arrived = time.perf_counter_ns()
        copy.optimizer.zero_grad()
        loss = copy.model(batch).square().mean()
        forward = time.perf_counter_ns()
        loss.backward()
        backward = time.perf_counter_ns()
        copy.optimizer.step()
        updated = time.perf_counter_ns()
        if mark is not None:
            mark()
        ended = time.perf_counter_ns()
        yield (
            arrived - begun,
            forward - arrived,
            backward - forward,
            updated - backward,
            ended - updated,
        )
        begun = time.perf_counter_ns()


def by_part(out: Path, rounds: int, layers: int, device: str) -> dict[str, Any]:
    """Return the microseconds that each arm adds to each part of a step, and to all of it."""
    count = rounds + WARM_UP_STEPS
    arms = ("bare", "three events", "recorder", "recorder without stages")
    copies = {arm: Copy(layers, count, device) for arm in arms}
    times: dict[str, list[Times]] = {arm: [] for arm in arms}
    order = random.Random(7)
    with ExitStack() as stack:
        events = Events(copies["three events"], device)
        stack.callback(events.remove)
        ways = {
            "bare": steps(copies["bare"], copies["bare"].loader),
            "three events": steps(
                copies["three events"], copies["three events"].loader, events.record
            ),
        }
        for arm, stages in (("recorder", True), ("recorder without stages", False)):
            copy = copies[arm]
            logger = StepLogger(
                out / "logs", optimizer=copy.optimizer, model=copy.model, stages=stages
            )
            ways[arm] = steps(copy, stack.enter_context(logger).watch(copy.loader))
        for _ in range(count):
            for arm in order.sample(arms, len(arms)):
                times[arm].append(next(ways[arm]))
    parts = {arm: np.array(its[WARM_UP_STEPS:]) / 1e3 for arm, its in times.items()}
    added = {arm: parts[arm] - parts["bare"] for arm in arms[1:]}
    return {
        "step_us": float(np.median(parts["bare"].sum(axis=1))),
        "added": {
            arm: {
                "all": _median(rows.sum(axis=1)),
                **dict(zip(PARTS, np.median(rows, axis=0).round(1).tolist())),
            }
            for arm, rows in added.items()
        },
    }


def _median(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[float]:
    """Return the median with its 95 % interval, by a bootstrap of the steps."""
    drawn = np.random.default_rng(7).choice(values, (200, len(values)))
    low, high = np.quantile(np.median(drawn, axis=1), (0.025, 0.975))
    return [round(float(value), 1) for value in (np.median(values), low, high)]


def busy_device(out: Path, device: str) -> dict[str, Any]:
    """Return what the recorder adds to a step that the device takes longer for than the host."""
    kind = torch.device(device)
    samples = BUSY_SAMPLES if device == "cuda" else 32
    batches = [torch.randn(samples, INPUTS, device=kind)] * BLOCK
    models = [network(kind, False, 1) for _ in range(2)]
    optimizers = [torch.optim.SGD(model.parameters(), 1e-4) for model in models]

    def block(model: Any, optimizer: Any, watched: Any) -> float:
        begun = time.perf_counter()
        for batch in watched:
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - begun) / BLOCK * 1e6

    bare, added = [], []
    with StepLogger(out / "busy", optimizer=optimizers[1], model=models[1]) as log:
        for number in range(BLOCKS + 1):
            without = block(models[0], optimizers[0], batches)
            recorded = block(models[1], optimizers[1], log.watch(batches))
            if number:
                bare.append(without)
                added.append(recorded - without)
    return {"step_us": statistics.median(bare), "added": _median(np.array(added))}


def calls(device: str) -> dict[str, float]:
    """Return the microseconds of the calls that a timestamp needs, one after the other."""
    if device != "cuda":
        return {}
    first, second = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    stream = torch.cuda.current_stream()
    first.record()
    second.record()
    torch.cuda.synchronize()
    timed: dict[str, Callable[[], Any]] = {
        "record": lambda: second.record(stream),
        "query": first.query,
        "elapsed_time": lambda: first.elapsed_time(second),
        "is_current_stream_capturing": torch.cuda.is_current_stream_capturing,
    }
    took = {}
    for name, call in timed.items():
        groups = []
        for _ in range(CALLS // GROUP):
            begun = time.perf_counter_ns()
            for _ in range(GROUP):
                call()
            groups.append((time.perf_counter_ns() - begun) / GROUP / 1e3)
        torch.cuda.synchronize()
        took[name] = round(statistics.median(groups), 2)
    return took


def main() -> None:
    out, rounds, layers, device = Path(sys.argv[1]), *map(int, sys.argv[2:4]), sys.argv[4]
    torch.set_num_threads(1)
    result = {**by_part(out, rounds, layers, device), "calls_us": calls(device)}
    result["busy"] = busy_device(out, device)
    (out / "result.json").write_text(json.dumps(result))


if __name__ == "__main__":
    main()
