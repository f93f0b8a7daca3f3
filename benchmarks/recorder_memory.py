"""Measure the recorder's memory over a long run, and the length of its rows.

Two processes train 100,000 steps each, one of them recorded. Memory is the growth of each during its
loop, after the framework is loaded.
"""

from __future__ import annotations

from tempfile import TemporaryDirectory

from figures import Figure, at_most
from peers import TRAINING, output_of

from stallscope.collector.recorder.step_log.line_format import RowFormatter, StepRow

STEPS = 100_000
# The last step of nine hours: a third of a second each, on a batch of 1,024.
LATE, STEP_NS, SAMPLES = 99_999, 330_000_000, 1024
PROGRAM = """
import resource, sys
from contextlib import nullcontext
from itertools import repeat
from pathlib import Path
import torch
from stallscope.torch import StepLogger

def resident_mb():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6

torch.set_num_threads(1)
parameter = torch.nn.Parameter(torch.ones(8))
optimizer = torch.optim.SGD([parameter], lr=0.001)

def train(batches):
    for batch in batches:
        optimizer.zero_grad()
        (parameter * batch).sum().backward()
        optimizer.step()

steps, recorded = int(sys.argv[1]), sys.argv[2] == "recorded"
batch = torch.ones(8)
train(repeat(batch, 2000))
before = resident_mb()
with StepLogger(sys.argv[3], optimizer=optimizer) if recorded else nullcontext() as log:
    batches = repeat(batch, steps)
    train(log.watch(batches) if recorded else batches)
    print(resident_mb() - before)
"""


def figures(quick: bool) -> list[Figure]:
    steps = STEPS // 10 if quick else STEPS
    grown = {arm: grown_mb(arm, steps) for arm in ("bare", "recorded")}
    name = f"PyTorch: resident memory that recording {steps:,} steps adds"
    return [
        at_most(name, grown["recorded"] - grown["bare"], "MB", 5),
        at_most("bytes of a row after 100,000 steps of 0.33 s", row_bytes(), "B", 64),
    ]


def grown_mb(arm: str, steps: int) -> float:
    with TemporaryDirectory() as folder:
        printed = output_of(["python", "-c", PROGRAM, str(steps), arm, folder], TRAINING)
    return float(printed.split()[-1])


def row_bytes() -> int:
    """Return the bytes of a step in which everything was measured."""
    begin = LATE * STEP_NS
    stamps = (begin + STEP_NS * tenths // 10 for tenths in (1, 8, 9))
    row = StepRow(LATE, 9, begin, *stamps, begin + STEP_NS, 1, SAMPLES, 0)
    return len(RowFormatter(0, 0).step(row))
