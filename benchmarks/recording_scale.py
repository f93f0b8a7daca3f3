"""Measure the disk space and the collector's memory that recording 4,096 ranks needs.

    python benchmarks/recording_scale.py [--ranks 4096] [--steps 400]

Simulated ranks write their logs into one folder as recorders do, a few lines at a time, while
another process collects the folder repeatedly until the job has ended. Measured are the bytes on
disk, and the collector's largest number of open files and memory.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from figures import Figure, at_most
from simulator import Job, Ring, simulate, write_logs

from stallscope.catalogue.collecting import collect
from stallscope.collector.source_kinds import open_source

# Each recorder writes its log in so many parts.
_FLUSHES = 8
_FILES_PER_RANK = 1
_BYTES_PER_STEP = 64
_OPEN_FILES = 64
# The collector's figures in docs/scale.md, plus a quarter.
_BASE_MB, _MB_PER_LOG, _BYTES_PER_ROW = 290, 0.04, 230

_COLLECTOR = "--collect"


def figures(quick: bool) -> list[Figure]:
    ranks, steps = (64, 100) if quick else (4_096, 400)
    measurement = measured(ranks, steps)
    rows = ranks * steps
    name = f"{ranks:,} ranks"
    return [
        at_most(f"{name}: files per rank", measurement["files"] / ranks, "files", _FILES_PER_RANK),
        at_most(
            f"{name}: bytes per step and rank", measurement["bytes"] / rows, "B", _BYTES_PER_STEP
        ),
        at_most(f"{name}: open files of the collector", measurement["open"], "files", _OPEN_FILES),
        at_most(
            f"{name}: memory of the collector",
            measurement["peak_mb"],
            "MB",
            _BASE_MB + ranks * _MB_PER_LOG + rows * _BYTES_PER_ROW / 1e6,
        ),
        Figure(f"{name}: last collection, {rows:,} rows", measurement["seconds"], "s"),
    ]


def measured(ranks: int, steps: int) -> dict[str, Any]:
    """Measure the logs of a job of so many ranks, and the cost of collecting them meanwhile."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        whole = _simulated(place / "whole", ranks, steps)
        logs = place / "logs"
        logs.mkdir()
        _flush(whole, logs, 0)
        words = [sys.executable, __file__, _COLLECTOR, str(logs), str(place / "store")]
        collector = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        try:
            for number in range(1, _FLUSHES):
                _flush(whole, logs, number)
        finally:
            printed, _ = collector.communicate()
        collected: dict[str, Any] = json.loads(printed)
        if (collected["ranks"], collected["rows"]) != (ranks, ranks * steps):
            raise RuntimeError(
                f"{collected['rows']} rows of {collected['ranks']} ranks were collected"
            )
        files = list(logs.iterdir())
        return {
            **collected,
            "files": len(files),
            "bytes": sum(file.stat().st_size for file in files),
        }


def _simulated(folder: Path, ranks: int, steps: int) -> list[Path]:
    ring = Ring(bytes=100_000_000, bandwidth_gb_s=10.0)
    job = Job(ranks=ranks, steps=steps, epochs=2, communication=ring)
    return write_logs(simulate(job), folder)


def _flush(whole: list[Path], logs: Path, number: int) -> None:
    """Append every rank's next lines."""
    for path in whole:
        data = path.read_bytes()
        first, end = (_line_end(data, part) for part in (number, number + 1))
        with (logs / path.name).open("ab") as log:
            log.write(data[first:end])


def _line_end(data: bytes, flushes: int) -> int:
    """Return where the last line ends after so many flushes."""
    if flushes in (0, _FLUSHES):
        return len(data) if flushes else 0
    return data.rfind(b"\n", 0, len(data) * flushes // _FLUSHES) + 1


def collected(logs: Path, store: Path) -> dict[str, Any]:
    """Collect until the job has ended."""
    most, over = [0], threading.Event()
    watching = threading.Thread(target=_watch, args=(most, over))
    watching.start()
    try:
        while True:
            begun = time.monotonic()
            ((run, _),) = collect([open_source(str(logs))], store).runs
            seconds = time.monotonic() - begun
            if run.status == "completed" and not run.missing_ranks:
                break
    finally:
        over.set()
        watching.join()
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    return {
        "ranks": len(run.ranks),
        "rows": run.steps.num_rows,
        "seconds": seconds,
        "open": most[0],
        "peak_mb": peak_mb,
    }


def _watch(most: list[int], over: threading.Event) -> None:
    """Keep in ``most`` the largest number of files that this process has open at a time."""
    while not over.wait(0.01):
        most[0] = max(most[0], len(list(Path("/proc/self/fd").iterdir())))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=4_096)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument(_COLLECTOR, nargs=2, type=Path, metavar=("LOGS", "STORE"), help="")
    options = parser.parse_args()
    if options.collect:
        print(json.dumps(collected(*options.collect)))
        return
    for name, value in measured(options.ranks, options.steps).items():
        print(f"{name}: {value:,}")


if __name__ == "__main__":
    main()
