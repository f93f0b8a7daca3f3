"""Measure CPU time and memory of reading Horovod Timelines, against pandas.

    python benchmarks/timelines.py [--megabytes 200 | --gigabyte] [--keep FILE]

The timeline is like Horovod 0.28.1's for 162 gradients fused into a handful of reductions (96 KB a
step), with its times shifted from step to step. Each way runs in its own process, twice: the faster time
counts. CPU time of all threads excludes the imports; memory is the process's peak and includes them.
``pandas.DataFrame(json.load(f))`` only makes a table of starts and ends. Ours is measured up to a table
of activities with start and end, and up to the times of every step and tensor.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

_TENSORS = 162
_FUSED = (1, 8, 40, 60, 53)
_STEP_US = 40_000
# Ten digits throughout, so that all steps have the same length.
_FIRST_US = 1_000_000_000
_BLOCK_STEPS = 200
# pandas needs some sixteen times the file's size.
_MOST_FOR_PANDAS = 600

_OURS = """
from stallscope.analysis.network.tensors import tensors
from stallscope.parsers.formats.horovod_timeline import open_timeline
def work():
    with open_timeline(sys.argv[1]) as reader:
        return len(tensors(reader).steps)
"""
_TABLE = """
from stallscope.parsers.formats.horovod_timeline import Activities, open_timeline
def work():
    with open_timeline(sys.argv[1]) as reader:
        return len(Activities.joined([block.activities for block in reader.block_rows()]))
"""
_PANDAS = """
import pandas
def work():
    with open(sys.argv[1]) as file:
        return len(pandas.DataFrame(json.load(file)))
"""
BEFORE = """
import json, resource, sys
def cpu_s():
    used = [resource.getrusage(one) for one in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)
"""
#: Works twice; prints the CPU seconds of the faster time, the peak memory, and the result.
AFTER = """
times = []
for _ in range(2):
    begun = cpu_s()
    found = work()
    times.append(cpu_s() - begun)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps([min(times), peak, found]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--gigabyte", action="store_true", help="the same as --megabytes 1024")
    parser.add_argument("--keep", type=Path, help="write the timeline here, and keep it")
    options = parser.parse_args()
    megabytes = 1024 if options.gigabyte else options.megabytes
    with tempfile.TemporaryDirectory() as folder:
        path = options.keep or Path(folder) / "timeline.json"
        steps = write(path, megabytes << 20)
        size = path.stat().st_size / 1e6
        print(f"{size:,.0f} MB, {steps:,} steps of {_TENSORS} gradients\n")
        ours = measured(_OURS, path)
        print("| | CPU seconds | MB/s | largest memory |\n| --- | ---: | ---: | ---: |")
        print(row("stallscope, steps and tensors", ours, size))
        print(row("stallscope, a table", measured(_TABLE, path), size))
        if megabytes > _MOST_FOR_PANDAS:
            print("\npandas is left out, because it needs more memory than most machines have")
            return
        theirs = measured(_PANDAS, path)
        print(row("pandas.DataFrame(json.load(f))", theirs, size))
        print(f"\n{theirs[0] / ours[0]:.1f} × as fast, in {ours[1] / theirs[1]:.0%} of the memory")


def measured(program: str, path: Path) -> list[float]:
    """Return CPU seconds, MiB, and the number of steps or events."""
    done = subprocess.run(
        [sys.executable, "-c", BEFORE + program + AFTER, str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"the benchmark failed:\n{done.stderr[-2000:]}")
    return [float(value) for value in json.loads(done.stdout)]


def row(name: str, figures: list[float], size: float) -> str:
    return f"| {name} | {figures[0]:.2f} | {size / figures[0]:.0f} | {figures[1]:,.0f} MiB |"


def write(path: Path, size: int) -> int:
    """Write a timeline of about so many bytes; return its number of steps."""
    step = np.frombuffer(",".join(one_step()).encode() + b",", np.uint8)
    steps = max(size // len(step), 1)
    text = step.tobytes()
    key = b'"ts": '
    at = [i + len(key) for i in range(len(text)) if text.startswith(key, i)]
    digits = np.array(at)[:, None] + np.arange(10)
    offsets = np.array([int(text[i : i + 10]) for i in at])
    with path.open("wb") as file:
        file.write(header().encode())
        for first in range(0, steps, _BLOCK_STEPS):
            block = np.tile(step, (min(_BLOCK_STEPS, steps - first), 1))
            for row_of, number in zip(block, range(first, steps), strict=False):
                moments = offsets + number * _STEP_US
                row_of[digits] = moments[:, None] // 10 ** np.arange(9, -1, -1) % 10 + ord("0")
            whole = block.tobytes()
            last = first + _BLOCK_STEPS >= steps
            file.write(whole[:-1] + b"]" if last else whole)
    return steps


def header() -> str:
    lines = [
        '[\n{"name": "process_name", "ph": "M", "pid": 0, "args": '
        '{"start_time_since_epoch_in_micros":1795251515254024}},\n'
        '{"name": "process_sort_index", "ph": "M", "pid": 0, "args": {"sort_index": 0}},\n'
    ]
    for tensor in range(1, _TENSORS + 1):
        name = f"DistributedSGD_Allreduce/cond_{tensor}/HorovodAllreduce_grads_{tensor}_0"
        lines.append(
            f'{{"name": "process_name", "ph": "M", "pid": {tensor}, "args": {{"name": "{name}"}}}},\n'
            f'{{"name": "process_sort_index", "ph": "M", "pid": {tensor}, '
            f'"args": {{"sort_index": {tensor}}}}},\n'
        )
    return "".join(lines)


def one_step() -> list[str]:
    """Make one step: every gradient is negotiated, and the fused ones are reduced together."""
    events = []
    at, first = _FIRST_US, 1
    for fused in _FUSED:
        tensors = range(first, first + fused)
        first += fused
        at += 2_000
        events += [begins("NEGOTIATE_ALLREDUCE", at + n, t) for n, t in enumerate(tensors)]
        at += 900
        events += [ends(at + n, t) for n, t in enumerate(tensors)]
        at += 200
        events += [begins("ALLREDUCE", at + n, t) for n, t in enumerate(tensors)]
        for name, takes in (
            ("MEMCPY_IN_FUSION_BUFFER", 90),
            ("GLOO_ALLREDUCE", 2_600),
            ("MEMCPY_OUT_FUSION_BUFFER", 80),
        ):
            at += 100
            events += [begins(name, at, t) for t in tensors]
            at += takes
            events += [ends(at, t) for t in tensors]
        args = ', "args": {"dtype": "float32", "shape": "[3, 3, 64, 64]"}'
        events += [ends(at + 20 + n, t, args) for n, t in enumerate(tensors)]
    return events


def begins(name: str, at: int, tensor: int) -> str:
    return f'{{"ph": "B", "name": "{name}", "ts": {at}, "pid": {tensor}}}'


def ends(at: int, tensor: int, args: str = "") -> str:
    return f'{{"ph": "E", "ts": {at}, "pid": {tensor}{args}}}'


if __name__ == "__main__":
    main()
