"""Read and write scores as JSON: a line per run while training, and one file for a page."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def append_score(path: Path, score: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(score) + "\n")


def read_scores(path: Path) -> list[dict[str, Any]]:
    """Return all scores; none if there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def write_together(out: Path, name: str, scores: Iterable[dict[str, Any]]) -> None:
    """Write all scores under ``name`` in one file, with the machine that made them."""
    lines = ",\n".join(json.dumps(score) for score in scores)
    machine = {"machine": platform.machine(), "cores": os.cpu_count()}
    out.write_text(f'{{"made_on": {json.dumps(machine)},\n"{name}": [\n{lines}\n]}}\n')
