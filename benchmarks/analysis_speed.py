"""Time a report on a large run stage by stage, against one bare numpy pass over its rows; and from
its raw logs, against one bare ``pyarrow.csv`` read of the same bytes.

    python benchmarks/analysis_speed.py [--ranks 1000] [--steps 10000]

The run is simulated, on hosts of 8 ranks that each have their own clock, and collected. The bare
pass computes what any ledger needs (last ready, first reduced, mean stages) on one clock, without
tests, intervals or a replay. On a busy machine, CPU seconds say more than seconds on the clock.
"""

from __future__ import annotations

import argparse
import io
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow.csv
from figures import Figure, at_most, share_of
from large_run import collected, raw_logs
from rich.console import Console

from stallscope.analysis import Analysis
from stallscope.analysis.analyse import analyse
from stallscope.analysis.findings import find
from stallscope.analysis.gains.attribution import attribute
from stallscope.analysis.ledger.build import build_ledger
from stallscope.analysis.ledger.by_generation import warm_up_steps
from stallscope.analysis.ledger.change_points import change_points
from stallscope.analysis.steps.alignment import align
from stallscope.collector.store.loading import load_run
from stallscope.reports.formats.terminal import terminal_summary
from stallscope.reports.run import parts
from stallscope.run import Run

T = TypeVar("T")

BARE, READ, ANALYSIS, RENDER = "bare numpy pass", "read", "analysis", "render"
#: The analysis without importing its libraries; the bare pass is timed without that, too.
AGAIN = "analysis, after the first"
#: The parts of the time that a user waits.
WHOLE = (READ, ANALYSIS, RENDER)
#: The whole command on recorded logs.
RAW, BARE_READ = "report on raw logs", "bare read of raw logs"
TARGET_ROWS, TARGET_S, TARGET_RAW_S, TARGET_RAW_GB = 10_000_000, 2.5, 7.0, 1.5
#: The analysis may take so many times the CPU time of the bare pass.
TARGET_RATIO = 30


@dataclass(frozen=True)
class Taken:
    """Seconds on the clock, and CPU seconds of this process and its children on all cores."""

    clock: float
    cpu: float


def figures(quick: bool) -> list[Figure]:
    ranks, steps = (100, 200) if quick else (1000, 10_000)
    times = timed(ranks, steps)
    rows, seconds = ranks * steps, sum(times[name].clock for name in WHOLE)
    name = f"analysis of {rows:,} rows"
    most = TARGET_RATIO if rows == TARGET_ROWS else None
    cpu, least = times[AGAIN].cpu, times[BARE].cpu
    shares = [share_of(name, cpu, "s of CPU", "one bare numpy pass", least, most=most)]
    raw = f"report on {rows:,} rows of raw logs"
    bare_read = times[BARE_READ].clock
    shares.append(share_of(f"{raw}: time", times[RAW].clock, "s", "pyarrow.csv", bare_read))
    if rows == TARGET_ROWS:
        shares.append(at_most(f"report on {rows:,} collected rows", seconds, "s", TARGET_S))
        shares.append(at_most(raw, times[RAW].clock, "s", TARGET_RAW_S))
        # The report is the only child process.
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e9
        shares.append(at_most(f"{raw}: memory", peak, "GB", TARGET_RAW_GB))
    return shares


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=10_000)
    options = parser.parse_args()
    times = timed(options.ranks, options.steps)
    rows = options.ranks * options.steps
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    print(f"{options.ranks:,} ranks × {options.steps:,} steps = {rows:,} rows\n")
    print("| stage | seconds | of CPU | share | × the bare pass |")
    print("| --- | ---: | ---: | ---: | ---: |")
    whole = sum(times[name].cpu for name in WHOLE)
    for name, taken in times.items():
        share = "" if name in (BARE, BARE_READ, RAW) else f"{taken.cpu / whole:.0%}"
        ratio = taken.cpu / times[BARE].cpu
        print(f"| {name} | {taken.clock:.2f} | {taken.cpu:.2f} | {share} | {ratio:.1f} |")
    print(f"\npeak memory {peak:.1f} GiB, the simulation's included")


def timed(ranks: int, steps: int) -> dict[str, Taken]:
    """Time each stage: first those of a report, then those of the analysis."""
    times: dict[str, Taken] = {}
    with tempfile.TemporaryDirectory() as store:
        folder = collected(ranks, steps, Path(store))
        run = _timed(READ, times, lambda: load_run(folder))
        report(run, times)
        timed_twice(AGAIN, times, lambda: analyse(run))
        stages(run, times)
        # The first pass imports pandas.
        bare(run, ranks)
        timed_twice(BARE, times, lambda: bare(run, ranks))
        logs = raw_logs(run, Path(store) / "logs")
        _timed(BARE_READ, times, lambda: read_bare(logs))
        _timed(RAW, times, lambda: reported(logs[0].parent, Path(store) / "reports"))
    return times


def report(run: Run, times: dict[str, Taken]) -> None:
    """Make a report. Its memory is freed before the stages are timed."""
    analysis = _timed(ANALYSIS, times, lambda: analyse(run))
    _timed(RENDER, times, lambda: rendered(analysis))


def stages(run: Run, times: dict[str, Taken]) -> None:
    """Time the analysis's large stages one by one."""
    aligned = _timed("· align", times, lambda: align(run, 0))
    ledger = _timed("· ledger", times, lambda: build_ledger(aligned))
    steady = ledger.take(~warm_up_steps(ledger))
    hosts, skew = aligned.hosts, aligned.clocks.skew
    _timed("· intervals and replays", times, lambda: attribute(steady, hosts, None, skew))
    _timed("· change points", times, lambda: change_points(steady))
    _timed("· findings", times, lambda: find(run, has_baseline=False))


def reported(logs: Path, out: Path) -> None:
    """Report on raw logs, as a user does."""
    command = [sys.executable, "-m", "stallscope", "report", str(logs), "--format", "html"]
    subprocess.run([*command, "--out", str(out)], check=True, capture_output=True)


def read_bare(logs: Sequence[Path]) -> None:
    """Read all rows as columns, without the two header lines."""
    options = pyarrow.csv.ReadOptions(skip_rows=1)
    for path in logs:
        pyarrow.csv.read_csv(path, read_options=options)


def rendered(analysis: Analysis) -> str:
    """Render the report for the terminal."""
    console = Console(file=io.StringIO(), width=80)
    console.print(terminal_summary(parts(analysis).document("terminal")))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def bare(run: Run, ranks: int) -> float:
    """Compute what any ledger needs, on one clock: a lower bound of the work."""
    stamps = {
        name: run.steps[name].to_numpy().reshape(ranks, -1)
        for name in ("begin", "data", "ready", "reduced")
    }
    last = stamps["ready"].max(axis=0)
    first = stamps["reduced"].min(axis=0)
    fetch = (stamps["data"] - stamps["begin"]).mean(axis=1)
    compute = (stamps["ready"] - stamps["data"]).mean(axis=1)
    return float((first - last).mean() + np.median(fetch) + np.median(compute))


def _timed(name: str, times: dict[str, Taken], run: Callable[[], T]) -> T:
    begun, used = time.perf_counter(), _cpu_seconds()
    result = run()
    times[name] = Taken(time.perf_counter() - begun, _cpu_seconds() - used)
    return result


def timed_twice(name: str, times: dict[str, Taken], run: Callable[[], object]) -> None:
    """Keep the time with less CPU time of two."""
    _timed(name, times, run)
    first = times[name]
    _timed(name, times, run)
    times[name] = min(first, times[name], key=lambda taken: taken.cpu)


def _cpu_seconds() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


if __name__ == "__main__":
    main()
