"""Run recorder, follower and live dashboard on one run for half an hour, and look for leaks.

    python benchmarks/soak.py [--minutes 30]

A PyTorch training of some 45 steps a second is recorded; ``stallscope collect --follow`` copies its
log into a store, and ``stallscope dashboard`` shows it while requests come in. Prints a table of
checks; the exit status is 1 if one fails.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import IO
from urllib.error import URLError
from urllib.request import Request, urlopen

from dashboard_views import page_request
from figures import number
from peers import TRAINING
from rich.console import Console
from rich.table import Table

from stallscope.opening import open_run, open_runs

EVERY_SECONDS = 2.0
STEP_SECONDS = 0.02
BYTES_PER_STEP = 64
# The last facts, which contain the count, and the end row are not counted.
LAST_LINES_BYTES = 1024
# The follower and the dashboard hold the run's table, and copies for a moment.
BYTES_PER_ROW = {"training": 0, "follower": 2_000, "dashboard": 1_000}
# Fluctuation of Python and of the allocator.
SLACK_MB = {"training": 5.0, "follower": 20.0, "dashboard": 20.0}
# Requests or files that are open at the moment.
SLACK_DESCRIPTORS = 4
_ADDRESS = re.compile(r"http://\S+")
_MEGA = 1e6

TRAIN = """
import sys, time
import torch
from stallscope.torch import StepLogger

torch.set_num_threads(1)
parameter = torch.nn.Parameter(torch.ones(8))
optimizer = torch.optim.SGD([parameter], lr=1e-6)
ends = time.monotonic() + float(sys.argv[2])
steps = 0

def batches():
    while time.monotonic() < ends:
        yield torch.ones(8)

with StepLogger(sys.argv[1], optimizer=optimizer, run_name="soak") as log:
    for batch in log.watch(batches()):
        time.sleep(float(sys.argv[3]))
        optimizer.zero_grad()
        (parameter * batch).sum().backward()
        optimizer.step()
        steps += 1
print(steps)
"""


@dataclass(frozen=True)
class Sample:
    """Memory and open files of a process at a moment."""

    megabytes: float
    descriptors: int


@dataclass(frozen=True)
class Check:
    """A condition that must hold."""

    name: str
    measured: float
    limit: float
    unit: str

    @property
    def held(self) -> bool:
        return self.measured <= self.limit


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    options = parser.parse_args()
    console = Console()
    with TemporaryDirectory() as folder:
        checks = soak(Path(folder), options.minutes * 60, console)
    rows = Table("", "found", "at most", "")
    for check in checks:
        measured, limit = (
            f"{number(value)} {check.unit}" for value in (check.measured, check.limit)
        )
        rows.add_row(check.name, measured, limit, "held" if check.held else "NOT HELD")
    console.print(rows)
    sys.exit(0 if all(check.held for check in checks) else 1)


def soak(folder: Path, seconds: float, console: Console) -> list[Check]:
    logs, store = folder / "logs", folder / "store"
    processes = start_processes(folder, logs, store, seconds)
    training = processes["training"]
    try:
        address = address_of(folder / "dashboard", processes["dashboard"])
        run_id = open_run(str(logs)).id
        samples: dict[str, list[Sample]] = {name: [] for name in processes}
        failed_requests = 0
        begun = time.monotonic()
        with console.status("soaking") as status:
            while training.poll() is None:
                time.sleep(EVERY_SECONDS)
                failed_requests += not page_loads(address, run_id)
                for name, process in processes.items():
                    with suppress(OSError):
                        samples[name].append(sample(process.pid))
                status.update(f"soaking, {(time.monotonic() - begun) / 60:.1f} minutes")
        followed = processes["follower"].wait(timeout=60)
        failed_requests += not page_loads(address, run_id)
        processes["dashboard"].send_signal(signal.SIGINT)
        ended = processes["dashboard"].wait(timeout=30)
    finally:
        for process in processes.values():
            if process.poll() is None:
                process.kill()
    if training.returncode:
        sys.exit(f"the training failed:\n{(folder / 'training').read_text()[-2000:]}")
    steps = int((folder / "training").read_text().split()[-1])
    return [
        *(check for name, taken in samples.items() for check in of_process(name, taken, steps)),
        *of_log(next(logs.glob("*.steps.csv")), steps),
        Check("steps missing in the store", abs(steps - collected(store)), 0, ""),
        Check("requests that failed", failed_requests, 0, ""),
        Check("exit status of the follower", followed, 0, ""),
        Check("exit status of the dashboard", abs(ended), 0, ""),
    ]


def of_process(name: str, samples: Sequence[Sample], rows: int) -> list[Check]:
    """Check the growth from the second quarter, when everything is imported, to the last one.

    The training must keep nothing of its steps; the other two hold the run, which grows.
    """
    quarter = len(samples) // 4
    if not quarter:
        raise ValueError(f"{len(samples)} samples of the {name} are too few: raise --minutes")
    early, late = samples[quarter : 2 * quarter], samples[-quarter:]
    grown = median(sample.megabytes for sample in late) - median(
        sample.megabytes for sample in early
    )
    opened = max(sample.descriptors for sample in late) - max(
        sample.descriptors for sample in early
    )
    held = rows * BYTES_PER_ROW[name] / _MEGA
    return [
        Check(f"{name}: memory grown", grown, SLACK_MB[name] + held, "MB"),
        Check(f"{name}: descriptors more than before", opened, SLACK_DESCRIPTORS, ""),
    ]


def of_log(path: Path, steps: int) -> list[Check]:
    """Check the log's size against its rows and the recorder's own count."""
    lines = path.read_bytes().splitlines(keepends=True)
    rows = [len(line) for line in lines if line.startswith(b"step,")]
    costs = [line for line in lines if b'"recorder_cost"' in line]
    counted = json.loads(costs[-1].partition(b" ")[2])["recorder_cost"]["bytes"] if costs else 0
    return [
        Check("steps missing in the log", abs(steps - len(rows)), 0, ""),
        Check("bytes per step", sum(rows) / max(len(rows), 1), BYTES_PER_STEP, "B"),
        Check(
            "bytes that were not counted",
            path.stat().st_size - counted,
            LAST_LINES_BYTES,
            "B",
        ),
    ]


def start_processes(
    folder: Path, logs: Path, store: Path, seconds: float
) -> dict[str, subprocess.Popen[bytes]]:
    """Start training, follower and dashboard; each prints into a file with its name."""
    logs.mkdir()
    python = str(TRAINING / "bin" / "python")
    stallscope = [sys.executable, "-u", "-m", "stallscope"]
    words = {
        "training": [python, "-c", TRAIN, str(logs), str(seconds), str(STEP_SECONDS)],
        "follower": [*stallscope, "collect", str(logs), "--to", str(store), "--follow"],
        "dashboard": [*stallscope, "dashboard", str(logs), "--port", "0"],
    }
    processes = {}
    for name, command in words.items():
        with (folder / name).open("wb") as out:
            processes[name] = popen(command, out)
        if name == "training":
            # The other processes refuse a folder without logs.
            wait_for_log(logs, processes[name])
    return processes


def popen(words: list[str], out: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT)


def wait_for_log(logs: Path, training: subprocess.Popen[bytes]) -> None:
    while training.poll() is None:
        if any(b"step," in path.read_bytes() for path in logs.glob("*.steps.csv")):
            return
        time.sleep(0.2)
    sys.exit("the training ended before there was a log")


def address_of(printed: Path, dashboard: subprocess.Popen[bytes]) -> str:
    while dashboard.poll() is None:
        match = _ADDRESS.search(printed.read_text())
        if match:
            return match.group().rstrip("/")
        time.sleep(0.2)
    sys.exit(f"the dashboard did not start:\n{printed.read_text()[-2000:]}")


def page_loads(address: str, run_id: str) -> bool:
    """Return whether Dash serves the run's page, as for a browser."""
    asked = Request(
        f"{address}/_dash-update-component",
        json.dumps(page_request(f"/run/{run_id}")).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urlopen(asked, timeout=30) as answer:
            return answer.status == 200 and b"allreduce" in answer.read()
    except (URLError, TimeoutError):
        return False


def collected(store: Path) -> int:
    """Return the rows of steps in the store."""
    return sum(run.steps.num_rows for run in open_runs(str(store)))


def sample(pid: int) -> Sample:
    """Return a process's current state.

    Raises:
        OSError: if it has ended.
    """
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    if not pages:
        raise ProcessLookupError(pid)  # it has ended, but its exit status has not been read yet
    size = pages * os.sysconf("SC_PAGE_SIZE") / _MEGA
    return Sample(size, sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()))


if __name__ == "__main__":
    main()
