"""Train with one slow rank under each recorder, and score what the analysis finds.

    python benchmarks/scorecard/frameworks.py [OPTIONS]     train missing cells, and score all
    python benchmarks/scorecard/frameworks.py score OUT     score trained cells again

One launch trains many cells one after the other: clean ones, slow input on one rank, and slow backward
passes on one rank. Each leaves a folder with its logs and every rank's measurements of the injected
fault. Scores are lines of OUT/scores.jsonl.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from cells import Cell, grid, is_trained, trained_cells
from frameworks_plan import FRAMEWORKS, STAGES, environment, make_target, program
from frameworks_scoring import Score, score_cell
from launching import HERE, ROOT, torchrun
from missing_cells import train_cells, train_missing
from options import at_least, numbers, words
from score_lines import append_score

from stallscope.errors import StallscopeError

SCORES = "scores.jsonl"

# For the estimate: the time of a launch, and of a step on two idle cores.
_LAUNCH_SECONDS, _STEP_SECONDS = 20.0, 0.025


def launches(options: argparse.Namespace) -> list[list[Cell]]:
    """Return the cells of every launch."""
    return [
        grid(
            framework,
            ranks,
            stages=STAGES,
            who=("one",),
            percents=options.sizes,
            ways=("sleep",),
            repeats=options.repeats,
        )
        for framework in options.framework
        for ranks in options.ranks
    ]


def estimated_seconds(cells: list[Cell], steps: int) -> float:
    """Estimate how long one launch takes."""
    clean = sum(1 + cell.percent / 100 for cell in cells)
    return _LAUNCH_SECONDS + clean * steps * _STEP_SECONDS


def train(out: Path, cells: list[Cell], steps: int) -> None:
    """Train the cells of one launch.

    Raises:
        SystemExit: if the environment is missing, or the training fails.
    """
    first = cells[0]
    folder = ROOT / environment(first.framework)
    if not (folder / ".ready").exists():
        sys.exit(f"there is no {folder.name} to train in: {make_target(first.framework)}")
    starts_ranks = first.framework in ("ray", "jax")
    starter = ["python", "-u"] if starts_ranks else torchrun(first.ranks)
    train_cells(out, cells, steps, [*starter, str(HERE / program(first.framework))], folder)


def score_all(out: Path) -> list[Score]:
    """Score every trained cell again; return the scores."""
    (out / SCORES).unlink(missing_ok=True)
    scores = []
    for cell in trained_cells(out):
        if cell.synthetic or not is_trained(out, _baseline_of(cell)):
            continue
        try:
            scores.append(score_cell(out, cell))
        except StallscopeError as error:
            print(f"{cell.name}: not scored: {error}")
            continue
        append_score(out / SCORES, scores[-1])
    return scores


def _baseline_of(cell: Cell) -> Cell:
    return Cell(cell.framework, cell.ranks, cell.repeat, cell.group, synthetic=True)


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=numbers(int), default=(2, 4))
    parser.add_argument("--framework", type=words(tuple(FRAMEWORKS)), default=tuple(FRAMEWORKS))
    parser.add_argument(
        "--sizes", type=numbers(float), default=(30, 100), help="%% of the clean step"
    )
    parser.add_argument("--repeats", type=at_least(1), default=2)
    parser.add_argument("--steps", type=at_least(200), default=240)
    parser.add_argument("--out", type=Path, default=ROOT / ".stallscope" / "frameworks")
    parser.add_argument("--estimate", action="store_true", help="only print how long it would take")
    return parser


def main() -> None:
    if sys.argv[1:2] == ["score"]:
        out: Path | None = Path(sys.argv[2]).absolute()
    else:
        options = parser().parse_args()
        out = train_missing(options, launches(options), estimated_seconds, train)
    if out is None:
        return
    for score in score_all(out):
        print(score["name"], "right" if score["right"] else f"WRONG: {score['evidence']}", sep=": ")


if __name__ == "__main__":
    main()
