"""Train with faults of known size on real Horovod ranks, and score the analysis's results.

    python benchmarks/scorecard/real.py [OPTIONS]     train missing cells, and score all
    python benchmarks/scorecard/real.py score OUT     score trained cells again

One launch trains many cells one after the other. Each leaves a folder with its logs and every
rank's measurements of the injected fault. Scores are lines of OUT/scores.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from cells import (
    FRAMEWORKS,
    STAGES,
    WAYS,
    WHO,
    Cell,
    grid,
    trained_cells,
    truth_path,
)
from launching import HERE, ROOT, horovodrun, require_training_environment
from missing_cells import train_cells, train_missing
from options import numbers, words
from rich.console import Console
from rich.table import Table
from score_lines import append_score
from scoring import Injected, Row, score, scores_in, table

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.steps.alignment import align
from stallscope.errors import StallscopeError
from stallscope.parsers import read
from stallscope.run import Run

# For the estimate: the time of a launch, a cell and a clean step on two idle cores.
_LAUNCH_SECONDS = 15.0
_CELL_SECONDS = 0.7
_STEP_SECONDS = {True: 0.020, False: 0.012}

# The largest error of two clocks that are read one after the other.
_RESOLUTION_MS = 0.1

SCORES = "scores.jsonl"


# -- training ------------------------------------------------------------------------------------


def launches(options: argparse.Namespace) -> list[list[Cell]]:
    """Return the cells of every launch."""
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


def estimated_seconds(cells: list[Cell], steps: int) -> float:
    """Estimate how long one launch takes on two idle cores."""
    shared = bool(cells) and cells[0].ranks > (os.cpu_count() or 1)
    step = _STEP_SECONDS[shared]
    injected = sum(cell.percent / 100 for cell in cells)
    return _LAUNCH_SECONDS + len(cells) * (_CELL_SECONDS + steps * step) + injected * steps * step


def train(out: Path, cells: list[Cell], steps: int) -> None:
    """Train the cells of one launch.

    Raises:
        SystemExit: if the environment is missing, or the training fails.
    """
    require_training_environment()
    program = str(HERE / f"train_{cells[0].framework}.py")
    train_cells(out, cells, steps, [*horovodrun(cells[0].ranks), program])


# -- scoring -------------------------------------------------------------------------------------


def score_all(out: Path) -> None:
    """Score every trained cell again."""
    scores = out / SCORES
    scores.unlink(missing_ok=True)
    for cell in trained_cells(out):
        if not cell.synthetic and (out / cell.baseline).exists():
            _score_one(out, cell, scores)


def _score_one(out: Path, cell: Cell, scores: Path) -> None:
    try:
        run, baseline = (read(str(out / name / "logs"))[0] for name in (cell.name, cell.baseline))
    except StallscopeError as error:
        print(f"{cell.name}: not scored: {error}")
        return
    analysis = analyse(run, baseline)
    where = {
        "source": "real",
        "name": cell.name,
        "framework": cell.framework,
        "ranks": cell.ranks,
        "percent": cell.percent,
        "way": cell.way,
        "repeat": cell.repeat,
        "misplaced": misplaced(out, cell, run),
        "cpu_wait_ms": cpu_wait_ms(out, cell),
    }
    append_score(scores, asdict(score(analysis, measured(out, cell, analysis), where)))


def measured(out: Path, cell: Cell, analysis: Analysis) -> Injected:
    """Return what was injected into the analysed steps."""
    assert analysis.steady is not None
    assert analysis.baseline is not None
    assert analysis.baseline.step is not None
    injected = injected_ms(out, cell)[analysis.steady.steps]
    per_step = {
        "none": np.zeros(1),
        "one": injected[:, cell.rank or 0],
        "all": injected.mean(axis=1),
        "rotating": injected.max(axis=1),
    }
    return Injected(
        stage=cell.stage,
        who=cell.who,
        rank=cell.rank,
        mean_ms=float(per_step[cell.who].mean()),
        step_ms=analysis.baseline.step.mean,
    )


def _truth(out: Path, cell: Cell) -> list[dict[str, Any]]:
    """Read every rank's truth about itself."""
    paths = [truth_path(out / cell.name, rank) for rank in range(cell.ranks)]
    return [json.loads(path.read_text()) for path in paths]


def injected_ms(out: Path, cell: Cell) -> npt.NDArray[np.float64]:
    """Return each rank's measured injection (steps × ranks)."""
    return np.array([rank_truth["injected_ns"] for rank_truth in _truth(out, cell)]).T / 1e6


def cpu_wait_ms(out: Path, cell: Cell) -> list[float]:
    """Return, per rank, how long per step its threads waited for a core.

    If it differs between ranks, something else than the fault slowed one of them down.
    """
    truth = _truth(out, cell)
    return [
        rank_truth["cpu_wait_ns"] / len(rank_truth["injected_ns"]) / 1e6 for rank_truth in truth
    ]


def misplaced(out: Path, cell: Cell, run: Run) -> int:
    """Count steps of ranks whose injected stage is recorded as shorter than the injection.

    If the recorder assigns time correctly there are none, however noisy the machine is.
    """
    if cell.stage is None:
        return 0
    aligned = align(run, 0)
    stage = {
        "input": (aligned.data - aligned.begin)[1:],
        "compute": (aligned.ready - aligned.data)[1:],
        "other": aligned.begin[1:] - aligned.reduced[:-1],
    }[cell.stage]
    injected = injected_ms(out, cell)[aligned.steps[1:]]
    return int((stage / 1e6 < injected - _RESOLUTION_MS).sum())


def show(rows: list[Row], by: tuple[str, ...]) -> None:
    """Print a table for the terminal."""
    shown = Table(
        title="Right, as shares of runs",
        caption="size: found / injected, median; own log: right on the ranks' own logs, one by one; "
        "latest: the rule of the latest arrival; cv: of the clean run's own step times",
    )
    figures = (
        "runs",
        "cause",
        "rank",
        "verdict",
        "size",
        "own log",
        "latest:\ncause",
        "\nrank",
        "cv",
    )
    for name in (*by, *figures):
        shown.add_column(name, justify="left" if name in by else "right", no_wrap=name in by)
    for row in rows:
        shares = (row.cause_right, row.rank_right, row.verdict_right)
        naive = (row.own_log_right, row.latest_cause_right, row.latest_rank_right, row.cv)
        shown.add_row(
            *[f"{part:g}" if isinstance(part, float) else str(part) for part in row.cell],
            str(row.n),
            *map(_percent, shares),
            "–" if row.recovered is None else f"{row.recovered:.2f}",
            *map(_percent, naive),
        )
    Console(width=110).print(shown)


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.0%}"


# -- the command ---------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=numbers(int), default=(2, 4))
    parser.add_argument("--framework", type=words(FRAMEWORKS), default=FRAMEWORKS)
    parser.add_argument("--stages", type=words(STAGES), default=STAGES)
    parser.add_argument("--who", type=words(WHO), default=WHO)
    parser.add_argument("--ways", type=words(WAYS), default=WAYS)
    parser.add_argument(
        "--sizes", type=numbers(float), default=(5, 10, 30, 100, 200), help="%% of the clean step"
    )
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--out", type=Path, default=ROOT / ".stallscope" / "scorecard")
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
    score_all(out)
    by = ("framework", "ranks", "who", "percent")
    scores = scores_in(out / SCORES)
    rows = table(scores, by)
    show(sorted(rows, key=lambda row: row.cell), by)
    short = sum(score.cell["misplaced"] for score in scores)
    print(f"steps recorded with less time in the stage than was injected into it: {short}")


if __name__ == "__main__":
    main()
