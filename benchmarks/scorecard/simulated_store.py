"""Store results until they are summarized: a file of JSON lines per cell, a line per run.

A run's result is reused until one of these changes: the cell, the analysis, the
simulation or the scoring rules. Comments do not count.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from simulated_cells import Cell
from simulated_coverage import Configuration

ROOT = Path(__file__).parents[2]
_MAKERS = (
    "src/stallscope/arrays",
    "src/stallscope/analysis",
    "src/stallscope/run",
    "tools/simulator",
)
_SCORERS = ("scoring", "simulated_cells", "simulated_runs", "simulated_coverage")

Planned = Cell | Configuration


def fingerprint() -> str:
    """Hash the code that results depend on."""
    files = [Path(__file__).parent / f"{name}.py" for name in _SCORERS]
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
