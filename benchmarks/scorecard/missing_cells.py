"""Train the cells of a plan that are not trained yet, launch by launch."""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from cells import Cell, is_trained, write_cells
from launching import TRAINING, launch


def train_missing(
    options: argparse.Namespace,
    planned: Iterable[list[Cell]],
    estimated_seconds: Callable[[list[Cell], int], float],
    train: Callable[[Path, list[Cell], int], None],
) -> Path | None:
    """Print how long training will take, and train.

    Args:
        options: with ``out``, ``steps`` and ``estimate``.
        planned: the cells of every launch.
        estimated_seconds: the time for the cells of one launch and their number of steps.
        train: trains them in a folder.

    Returns:
        The folder; None if only the estimate was requested.
    """
    out: Path = options.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    missing = [[cell for cell in cells if not is_trained(out, cell)] for cells in planned]
    missing = [cells for cells in missing if cells]
    seconds = sum(estimated_seconds(cells, options.steps) for cells in missing)
    count = sum(map(len, missing))
    print(f"{count} cells in {len(missing)} launches, about {seconds / 60:.0f} minutes")
    if options.estimate:
        return None
    for cells in missing:
        began = time.monotonic()
        train(out, cells, options.steps)
        print(f"{len(cells)} cells in {(time.monotonic() - began) / 60:.1f} minutes")
    return out


def train_cells(
    out: Path, cells: list[Cell], steps: int, command: Sequence[str], environment: Path = TRAINING
) -> None:
    """Train cells of one framework and number of ranks in one launch, and print progress.

    Args:
        out: the folder of the cells' folders.
        cells: the cells, which the command gets as a file.
        steps: of each cell.
        command: starts the training program.
        environment: the virtual environment.

    Raises:
        SystemExit: if the training fails.
    """
    for cell in cells:
        # The partial data of an interrupted launch is not a run.
        shutil.rmtree(out / cell.name, ignore_errors=True)
    name = f"{cells[0].framework}-{cells[0].ranks}"
    plan = out / f"cells-{name}.json"
    write_cells(plan, cells, steps)
    launch([*command, str(plan), str(out)], out / f"printed-{name}.txt", environment)
