"""Simulate runs with known faults, and score the analysis's results.

    python benchmarks/scorecard/simulated.py [OPTIONS]

Simulates missing runs and writes all results to docs/scorecard/simulated.json. It continues after an
interruption, and repeats runs whose results are from other code.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import re
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from simulated_cells import Cell
from simulated_coverage import record as coverage_record
from simulated_figures import cell_figures, coverage_figures
from simulated_grid import configurations, full_grid, quick_grid
from simulated_runs import record as cell_record
from simulated_store import ROOT, Planned, Store, fingerprint

RESULTS = ROOT / ".stallscope" / "scorecard" / "simulated"
DOCS = ROOT / "docs" / "scorecard"

# Seconds of work per task.
_CHUNK = 5.0
_PROGRESS_SECONDS = 30


def run_one(planned: Planned, seed: int) -> dict[str, Any]:
    """Return the result of one run."""
    if isinstance(planned, Cell):
        return cell_record(planned, seed)
    return coverage_record(planned, seed)


def run_some(planned: Planned, seeds: Sequence[int]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the results of some runs, and a description of each failure."""
    records, failed = [], []
    for seed in seeds:
        try:
            records.append(run_one(planned, seed))
        except Exception as error:
            failed.append(f"{planned.name}, seed {seed}: {error!r}")
    return records, failed


def plan(options: argparse.Namespace) -> list[Planned]:
    """Plan all runs."""
    planned: list[Planned]
    if options.quick:
        planned = [*quick_grid(), *configurations(runs=40)[3:6]]
    else:
        planned = [*full_grid(), *configurations(runs=400)]
    chosen = [cell for cell in planned if re.search(options.only, cell.name)]
    if options.runs:
        chosen = [replace(cell, runs=options.runs) for cell in chosen]
    twice = [name for name, count in Counter(cell.name for cell in chosen).items() if count > 1]
    assert not twice, twice
    return chosen


def seeds_of(cell: Planned) -> range:
    """Return a cell's seeds; every cell has others, so that chance does not affect many at once."""
    first = zlib.crc32(cell.name.encode())
    return range(first, first + cell.runs)


def missing(store: Store, planned: Sequence[Planned]) -> list[tuple[Planned, list[int]]]:
    """Return the seeds without results."""
    lacking = []
    for cell in planned:
        done = {record["seed"] for record in store.read(cell)}
        seeds = [seed for seed in seeds_of(cell) if seed not in done]
        if seeds:
            lacking.append((cell, seeds))
    return lacking


def seconds_per_run(planned: Sequence[Planned]) -> dict[tuple[type, int, int], float]:
    """Measure how long a run of each size takes on one core, with one run of each."""
    seconds: dict[tuple[type, int, int], float] = {}
    for cell in planned:
        key = _size(cell)
        if key not in seconds:
            if not seconds:
                run_one(cell, 1)  # the first one imports and compiles
            began = time.process_time()
            run_one(cell, 2)
            seconds[key] = time.process_time() - began
    return seconds


def total_seconds(
    lacking: Sequence[tuple[Planned, list[int]]], seconds: dict[tuple[type, int, int], float]
) -> float:
    """Return how long all missing runs take on one core."""
    return sum(len(seeds) * seconds[_size(cell)] for cell, seeds in lacking)


def _size(cell: Planned) -> tuple[type, int, int]:
    return type(cell), cell.job.ranks, cell.job.steps


def chunks(
    lacking: Sequence[tuple[Planned, list[int]]], seconds: dict[tuple[type, int, int], float]
) -> Iterator[tuple[Planned, list[int]]]:
    for cell, seeds in lacking:
        size = max(1, int(_CHUNK / max(seconds[_size(cell)], 1e-3)))
        for first in range(0, len(seeds), size):
            yield cell, seeds[first : first + size]


def run(store: Store, planned: Sequence[Planned], jobs: int, console: Console) -> list[str]:
    """Run what is missing; return the failures."""
    lacking = missing(store, planned)
    if not lacking:
        return []
    seconds = seconds_per_run([cell for cell, _ in lacking])
    total = total_seconds(lacking, seconds)
    runs = sum(len(seeds) for _, seeds in lacking)
    console.print(
        f"{runs:,} runs in {len(lacking)} cells: about {total / 60:.0f} minutes of one core, "
        f"{total / 60 / jobs:.0f} with {jobs} processes"
    )
    done, began, printed = 0.0, time.monotonic(), 0.0
    failed: list[str] = []
    # Not forked: threads of numpy and pyarrow do not survive that.
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        handed = {pool.submit(run_some, *chunk): chunk for chunk in chunks(lacking, seconds)}
        for future in as_completed(handed):
            cell, seeds = handed.pop(future)
            records, without = future.result()
            store.add(cell, records)
            failed += without
            done += len(seeds) * seconds[_size(cell)]
            past = time.monotonic() - began
            if past - printed > _PROGRESS_SECONDS:
                printed = past
                left = past / done * (total - done) / 60
                console.print(f"{done / total:.0%}, about {left:.0f} minutes left", highlight=False)
    return failed


def all_figures(store: Store, planned: Sequence[Planned]) -> dict[str, Any]:
    """Return all figures, by kind of cell."""
    content: dict[str, Any] = {
        "made_with": {
            "stallscope": version("stallscope"),
            "python": platform.python_version(),
            **{name: version(name) for name in ("numpy", "scipy", "pyarrow")},
        },
        "runs": 0,
    }
    for cell in planned:
        records = store.read(cell)[: cell.runs]
        if not records:
            continue
        content["runs"] += len(records)
        if isinstance(cell, Cell):
            content.setdefault(cell.kind, []).append(cell_figures(cell, records))
        else:
            content.setdefault("coverage", []).append(coverage_figures(cell, records))
    return content


def write(path: Path, content: dict[str, Any]) -> None:
    """Write one line per cell, so that diffs show the changed cells."""
    parts = []
    for name, value in content.items():
        if isinstance(value, list):
            lines = ",\n".join(json.dumps(cell) for cell in value)
            parts.append(f'"{name}": [\n{lines}\n]')
        else:
            parts.append(f'"{name}": {json.dumps(value)}')
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n")


def show(content: dict[str, Any], console: Console) -> None:
    """Print the figures as tables for the terminal."""
    for kind in ("power", "clean", "pattern", "robustness"):
        cells = content.get(kind, [])
        if not cells:
            continue
        table = Table(title=kind, caption="right: cause, rank and pattern; size: found / injected")
        for name in ("cell", "runs", "right", "rank", "innocent", "verdict", "size", "own", "last"):
            table.add_column(name, justify="left" if name == "cell" else "right")
        for cell in cells:
            shares = ("right", "rank_right", "innocent_named", "verdict_right")
            size = cell.get("recovered")
            table.add_row(
                cell["name"],
                str(cell["runs"]),
                *[_percent(cell.get(name)) for name in shares],
                "–" if size is None else f"{size:.2f}",
                _percent(cell.get("own_log_right")),
                _percent(cell.get("latest_right")),
            )
        console.print(table)
    for configuration in content.get("coverage", []):
        table = Table(title=configuration["name"])
        names = ("runs", "truth_ms", "covered", "without", "error_median", "error_p95")
        for name in ("figure", *names):
            table.add_column(name, justify="left" if name == "figure" else "right")
        for figure, values in configuration["figures"].items():
            shown = [values.get(name) for name in names]
            table.add_row(figure, *["–" if value is None else f"{value:.4g}" for value in shown])
        console.print(table)


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a small grid; the docs stay as is")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--only", default="", metavar="REGEX", help="only cells with these names")
    parser.add_argument("--runs", type=int, help="runs of every cell")
    parser.add_argument("--estimate", action="store_true", help="only print how long it would take")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for single results")
    return parser


def main() -> None:
    # One core per process; set before any process loads numpy.
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    options = parser().parse_args()
    console = Console(width=110)
    store = Store(options.out, fingerprint())
    planned = plan(options)
    if options.estimate:
        lacking = missing(store, planned)
        total = total_seconds(lacking, seconds_per_run([cell for cell, _ in lacking]))
        console.print(f"{len(lacking)} cells, about {total / 60:.0f} minutes of one core")
        return
    failed = run(store, planned, options.jobs, console)
    content = all_figures(store, planned)
    if options.quick or options.only or options.runs:
        show(content, console)
    else:
        write(DOCS / "simulated.json", content)
        console.print(f"{content['runs']:,} runs in {DOCS / 'simulated.json'}")
    if failed:
        sys.exit("failed:\n" + "\n".join(failed))


if __name__ == "__main__":
    main()
