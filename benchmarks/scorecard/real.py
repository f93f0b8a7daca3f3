"""Train with faults of known size on real Horovod ranks; the analysis is scored by them.

One launch trains many cells one after the other. Each leaves a folder with its logs and every
rank's measurements of the injected fault.
"""

from __future__ import annotations

import argparse
import os
import shutil
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path

import real_scores
from cells import FRAMEWORKS, STAGES, WAYS, WHO, Cell, grid, is_trained, trained_cells, write_cells
from chapter import Chapter, Score, numbers, words
from launching import HERE, TRAINING, horovodrun, launch, require_training_environment

from stallscope.errors import StallscopeError

# For the estimate: the time of a launch, a cell and a clean step on two idle cores.
_LAUNCH_SECONDS = 15.0
_CELL_SECONDS = 0.7
_STEP_SECONDS = {True: 0.020, False: 0.012}


class CellChapter(Chapter[list[Cell]]):
    """A chapter of launches that train cells, which share baselines."""

    @abstractmethod
    def launches(self, options: argparse.Namespace) -> list[list[Cell]]:
        """Return the cells of every launch."""

    @abstractmethod
    def score_cell(self, out: Path, cell: Cell) -> Score:
        """Score a trained cell.

        Raises:
            StallscopeError: if its logs, or those of its baseline, cannot be read.
        """

    def missing(self, out: Path, options: argparse.Namespace) -> list[list[Cell]]:
        launches = self.launches(options)
        missing = [[cell for cell in cells if not is_trained(out, cell)] for cells in launches]
        return [cells for cells in missing if cells]

    def counted(self, missing: Sequence[list[Cell]]) -> str:
        return f"{sum(map(len, missing))} cells in {len(missing)} launches"

    def answer(self, out: Path, work: list[Cell], scores: Sequence[Score]) -> str:
        return f"{len(work)} cells of {work[0].framework}, {work[0].ranks} ranks"

    def score_trained(self, out: Path, options: argparse.Namespace) -> Iterator[Score]:
        for cell in trained_cells(out):
            if cell.synthetic or not is_trained(out, cell.baseline_cell):
                continue
            try:
                yield self.score_cell(out, cell)
            except StallscopeError as error:
                print(f"{cell.name}: not scored: {error}")


def train_cells(
    out: Path, cells: list[Cell], steps: int, command: Sequence[str], environment: Path = TRAINING
) -> list[Score]:
    """Train cells of one framework and number of ranks in one launch, and print progress.

    Args:
        out: the folder of the cells' folders.
        cells: the cells, which the command gets as a file.
        steps: of each cell.
        command: starts the training program.
        environment: the virtual environment.

    Returns:
        No scores: cells are scored after their launch.

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
    return []


class Real(CellChapter):
    name = "real"
    about = (
        "Train with faults of known size on real Horovod ranks, and score the analysis's results."
    )
    section = real_scores.SECTION
    folder = "scorecard"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--ranks", type=numbers(int), default=(2, 4))
        parser.add_argument("--framework", type=words(FRAMEWORKS), default=FRAMEWORKS)
        parser.add_argument("--stages", type=words(STAGES), default=STAGES)
        parser.add_argument("--who", type=words(WHO), default=WHO)
        parser.add_argument("--ways", type=words(WAYS), default=WAYS)
        parser.add_argument(
            "--sizes",
            type=numbers(float),
            default=(5, 10, 30, 100, 200),
            help="%% of the clean step",
        )
        parser.add_argument("--repeats", type=int, default=1)
        parser.add_argument("--steps", type=int, default=500)

    def launches(self, options: argparse.Namespace) -> list[list[Cell]]:
        return [
            grid(
                framework,
                ranks,
                stages=options.stages,
                who=options.who,
                percents=options.sizes,
                ways=options.ways,
                repeats=options.repeats,
            )
            for ranks in options.ranks
            for framework in options.framework
        ]

    def seconds(self, work: list[Cell], options: argparse.Namespace) -> float:
        """Estimate how long one launch takes on two idle cores."""
        step = _STEP_SECONDS[work[0].ranks > (os.cpu_count() or 1)]
        steps = options.steps * (len(work) + sum(cell.percent / 100 for cell in work))
        return _LAUNCH_SECONDS + len(work) * _CELL_SECONDS + steps * step

    def train(self, out: Path, work: list[Cell], options: argparse.Namespace) -> list[Score]:
        require_training_environment()
        program = str(HERE / f"train_{work[0].framework}.py")
        return train_cells(out, work, options.steps, [*horovodrun(work[0].ranks), program])

    def score_cell(self, out: Path, cell: Cell) -> Score:
        return real_scores.score_cell(out, cell)
