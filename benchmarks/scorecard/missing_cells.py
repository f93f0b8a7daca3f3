"""Train the cells of a plan that are not trained yet."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from cells import Cell, is_trained


def train_missing(
    options: argparse.Namespace,
    planned: Iterable[list[Cell]],
    estimated_seconds: Callable[[list[Cell], int], float],
    train: Callable[[Path, list[Cell], int], None],
) -> Path | None:
    """Say how long it will take, and train launch by launch.

    Args:
        options: with ``out``, ``steps`` and ``estimate``.
        planned: the cells of every launch.
        estimated_seconds: the time for the cells of one launch and their number of steps.
        train: trains them in a folder.

    Returns:
        The folder; None if only the estimate was asked for.
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
