"""Simulate runs with known faults, and score the analysis's results.

Results are kept until they are summarized in docs/scorecard/simulated.json. Runs whose results are from
other code are repeated.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import multiprocessing
import os
import platform
import re
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from chapter import DOCS, Chapter, Section
from launching import HERE, ROOT
from rich.console import Console
from rich.table import Table
from simulated_bars import bars
from simulated_cells import Cell, Configuration, Record, cell_record, coverage_record
from simulated_grid import configurations, full_grid, quick_grid
from simulated_page import page

# Seconds of work per task.
_CHUNK_SECONDS = 5.0

_MAKERS = (
    "src/stallscope/arrays",
    "src/stallscope/analysis",
    "src/stallscope/run",
    "tools/simulator",
)
_SCORERS = ("scoring", "simulated_cells")

Planned = Cell | Configuration


_MEANS = (
    "cause_right",
    "rank_right",
    "pattern_right",
    "hidden_right",
    "innocent_named",
    "rotating_found",
    "own_log_right",
    "latest_cause_right",
    "latest_rank_right",
    "critical_right",
    "cost_share",
)

#: Some seeds of a cell.
Chunk = tuple[Planned, list[int]]


class SimulatedRuns(Chapter[Chunk]):
    name = "simulated"
    about = "Simulate runs with known faults, and score the analysis's results."
    section = Section("simulated", "Simulated runs", bars, page)
    folder = "scorecard/simulated"
    scored_last = False
    keeps_scores = False
    scored_again = False

    def __init__(self) -> None:
        # How long a run of each size takes on one core.
        self._seconds: dict[tuple[type, int, int], float] = {}
        self._failed: list[str] = []

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--quick", action="store_true", help="a small grid; the docs stay as is"
        )
        parser.add_argument("--jobs", type=int, default=2, help="processes")
        parser.add_argument(
            "--only", default="", metavar="REGEX", help="only cells with these names"
        )
        parser.add_argument("--runs", type=int, help="runs of every cell")

    def missing(self, out: Path, options: argparse.Namespace) -> list[Chunk]:
        """Return the seeds without results, in chunks of some seconds."""
        store, chunks = Store(out, self._code), []
        for cell in planned(options):
            done = {record["seed"] for record in store.read(cell)}
            seeds = [seed for seed in seeds_of(cell) if seed not in done]
            if not seeds:
                continue
            size = max(1, int(_CHUNK_SECONDS / max(self._seconds_of(cell), 1e-3)))
            chunks += [(cell, seeds[at : at + size]) for at in range(0, len(seeds), size)]
        return chunks

    def _seconds_of(self, cell: Planned) -> float:
        """Return how long a run of a cell takes; measure one of each size."""
        size = (type(cell), cell.job.ranks, cell.job.steps)
        if size not in self._seconds:
            if not self._seconds:
                # The first run imports and compiles.
                result(cell, 1)
            began = time.process_time()
            result(cell, 2)
            self._seconds[size] = time.process_time() - began
        return self._seconds[size]

    def counted(self, missing: Sequence[Chunk]) -> str:
        runs = sum(len(seeds) for _, seeds in missing)
        return f"{runs:,} runs in {len({cell.name for cell, _ in missing})} cells"

    def seconds(self, work: Chunk, options: argparse.Namespace) -> float:
        return len(work[1]) * self._seconds_of(work[0])

    def at_once(self, options: argparse.Namespace) -> int:
        return int(options.jobs)

    def pool(self, options: argparse.Namespace) -> Executor:
        # One core per process; set before any process loads numpy.
        os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        # Not forked: threads of numpy and pyarrow do not survive that.
        return ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn"))

    def train(self, out: Path, work: Chunk, options: argparse.Namespace) -> list[Record]:
        """Return the results of some runs, and a description of each failure."""
        cell, seeds = work
        records: list[Record] = []
        for seed in seeds:
            try:
                records.append(result(cell, seed))
            except Exception as error:
                records.append({"failed": f"{cell.name}, seed {seed}: {error!r}"})
        return records

    def keep(self, out: Path, work: Chunk, scores: Iterable[Record]) -> None:
        records = list(scores)
        self._failed += [record["failed"] for record in records if "failed" in record]
        Store(out, self._code).add(
            work[0], [record for record in records if "failed" not in record]
        )

    @cached_property
    def _code(self) -> str:
        return fingerprint()

    def answer(self, out: Path, work: Chunk, scores: Sequence[Record]) -> str:
        return work[0].name

    def finish(self, out: Path, options: argparse.Namespace) -> None:
        content = all_figures(Store(out, self._code), planned(options))
        if options.quick or options.only or options.runs:
            show(content, Console(width=110))
        else:
            write(DOCS / "simulated.json", content)
            print(f"{content['runs']:,} runs in {DOCS / 'simulated.json'}")
        if self._failed:
            sys.exit("failed:\n" + "\n".join(self._failed))


def planned(options: argparse.Namespace) -> list[Planned]:
    """Return all cells and configurations."""
    grid: list[Planned]
    if options.quick:
        grid = [*quick_grid(), *configurations(runs=40)[3:6]]
    else:
        grid = [*full_grid(), *configurations(runs=400)]
    chosen = [cell for cell in grid if re.search(options.only, cell.name)]
    if not chosen:
        sys.exit(f"no cell is called {options.only}")
    if options.runs:
        chosen = [replace(cell, runs=options.runs) for cell in chosen]
    twice = [name for name, count in Counter(cell.name for cell in chosen).items() if count > 1]
    assert not twice, twice
    return chosen


def seeds_of(cell: Planned) -> range:
    """Return a cell's seeds; every cell has others, so that chance does not affect many at once."""
    first = zlib.crc32(cell.name.encode())
    return range(first, first + cell.runs)


def result(cell: Planned, seed: int) -> Record:
    """Return the result of one run."""
    return cell_record(cell, seed) if isinstance(cell, Cell) else coverage_record(cell, seed)


# -- the store -----------------------------------------------------------------------------------


def fingerprint() -> str:
    """Hash the code that results depend on."""
    files = [HERE / f"{name}.py" for name in _SCORERS]
    for maker in _MAKERS:
        path = ROOT / maker
        files += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    digest = hashlib.sha256()
    for file in files:
        digest.update(ast.dump(ast.parse(file.read_text())).encode())
    return digest.hexdigest()[:16]


class Store:
    """Results in a folder."""

    def __init__(self, folder: Path, code: str) -> None:
        self._folder = folder
        self._code = code
        folder.mkdir(parents=True, exist_ok=True)

    def read(self, cell: Planned) -> list[dict[str, Any]]:
        """Return a cell's results by seed; none if other code made them."""
        path = self._path(cell)
        if not path.exists():
            return []
        # The last line is torn if the run that wrote it was killed.
        head, *lines, _ = path.read_text().split("\n")
        if json.loads(head) != self._made_by(cell):
            return []
        by_seed = {record["seed"]: record for record in map(json.loads, lines)}
        return [by_seed[seed] for seed in sorted(by_seed)]

    def add(self, cell: Planned, records: Iterable[dict[str, Any]]) -> None:
        """Add results of new seeds; discard those of other code."""
        path = self._path(cell)
        if not self.read(cell):
            path.write_text(json.dumps(self._made_by(cell)) + "\n")
        with path.open("a") as file:
            file.write("".join(json.dumps(record) + "\n" for record in records))

    def _made_by(self, cell: Planned) -> dict[str, str]:
        # The number of planned runs does not affect any one of them.
        return {"code": self._code, "cell": repr(replace(cell, runs=0))}

    def _path(self, cell: Planned) -> Path:
        return self._folder / f"{cell.name}.jsonl"


# -- figures -------------------------------------------------------------------------------------


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


def cell_figures(cell: Cell, records: Sequence[Record]) -> Record:
    """Return shares of runs, and medians; figures that no run has are left out."""
    figures: Record = {**cell.facts, "runs": len(records)}
    for name in _MEANS:
        figures[name] = _mean(record.get(name) for record in records)
    figures["right"] = _mean(_all_right(record) for record in records)
    figures["latest_right"] = _mean(
        _both_right(record, "latest_cause_right", "latest_rank_right") for record in records
    )
    figures["verdict_right"] = _mean(
        record["verdict_right"] for record in records if record.get("verdict_due")
    )
    recovered = [r["recovered"] for r in records if r.get("recovered") is not None]
    if recovered:
        low, middle, high = np.percentile(recovered, (5, 50, 95)).tolist()
        figures |= {"recovered": middle, "recovered_range": [low, high]}
    errors = [r["allreduce_error_ms"] for r in records if r.get("allreduce_error_ms") is not None]
    if errors:
        figures["allreduce_error_ms"] = float(np.mean(errors))
    return {name: _short(value) for name, value in figures.items() if value is not None}


def _all_right(record: Record) -> bool | None:
    """Return whether cause and rank are right, and all of a pattern."""
    if "all_right" in record:
        return bool(record["all_right"])
    return _both_right(record, "cause_right", "rank_right")


def _both_right(record: Record, cause: str, rank: str) -> bool | None:
    if record.get(rank) is None:
        return None
    # A clean run has no cause to find.
    return bool(record[rank]) and record.get(cause) is not False


def _mean(values: Iterable[Any]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return float(np.mean(known)) if known else None


def coverage_figures(configuration: Configuration, records: Sequence[Record]) -> Record:
    """Return, per figure, how often its interval contains the truth or is missing, and its error."""
    names = dict.fromkeys(name for record in records for name in record["found"])
    step = float(np.mean([record["true"]["step"] for record in records]))
    figures = {}
    for name in names:
        known = [record for record in records if name in record["found"]]
        truth = float(np.mean([record["true"][name] for record in known]))
        intervals = [record["found"][name][1] for record in known]
        given = [interval for interval in intervals if interval is not None]
        error = np.abs([record["found"][name][0] - record["true"][name] for record in known]) / step
        figures[name] = {
            "runs": len(known),
            "truth_ms": truth,
            "covered": _mean(low <= truth <= high for low, high in given),
            "without": 1 - len(given) / len(known),
            "half_width_ms": float(np.median([(h - lo) / 2 for lo, h in given])) if given else None,
            "error_median": float(np.median(error)),
            "error_p95": float(np.percentile(error, 95)),
        }
    return {
        **configuration.facts,
        "runs": len(records),
        "step_ms": _short(step),
        "figures": {name: _rounded(figure) for name, figure in figures.items()},
    }


def _rounded(figure: Record) -> Record:
    return {name: _short(value) for name, value in figure.items() if value is not None}


def _short(value: Any) -> Any:
    """Round numbers to the digits that readers use."""
    if isinstance(value, list):
        return [_short(entry) for entry in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


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
