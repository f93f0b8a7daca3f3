"""Train models that 8 and 16 ranks share, with a slow rank, replica or stage; score what reports name.

One launch trains many cells one after the other. Each leaves a folder with its logs and every rank's
measurements of the injected fault. docs/scorecard/sharded.md is written from the scores;
docs/scorecard/sharded.json has a line per run.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cells import DIMENSIONS, Cell, is_trained, mesh_shape, trained_cells
from chapter import Score, Section, at_least, numbers, rounded, words
from launching import HERE, ROOT, torchrun
from page_tables import RIGHT, Bar, alarm_bar, bar_table, of_all, page_of, ratio, share_bar, table
from real import CellChapter, train_cells
from real_scores import injected_ms
from sharded_plan import PERCENTS, RANKS, TRAININGS, WARM_UP, cells_of, device_seconds, kind_of

from stallscope.analysis import Analysis, analyse
from stallscope.errors import StallscopeError
from stallscope.parsers import read

# For the estimate, in seconds of a core: a rank's start, and a step of a rank beside its device.
_START_SECONDS = 4.0
_STEP_SECONDS = {
    **dict.fromkeys(TRAININGS, 0.011),
    "ddp": 0.005,
    "pipeline": 0.008,
    "zero_3": 0.045,
}
# Steps of a pipeline take so much longer than the device: stages wait for each other.
_PIPELINE = 1.75

# -- scores --------------------------------------------------------------------------------------

#: What the page calls the faults.
KINDS = {
    "rank": "slow rank",
    "input": "slow input",
    "replica": "slow replica",
    "stage": "slow stage",
}


def score_cell(out: Path, cell: Cell) -> Score:
    """Score a trained cell.

    Raises:
        StallscopeError: if its logs cannot be read.
    """
    (run,) = read(str(out / cell.name / "logs"))
    analysis = analyse(run)
    kind, stragglers = kind_of(cell), analysis.stragglers
    named = sorted({rank for straggler in stragglers for rank in straggler.ranks})
    stage = _longer_stage(analysis)
    if kind == "stage":
        right = stage == cell.place and not named
    else:
        of_fault = all(straggler.stage == cell.stage for straggler in stragglers if straggler.ranks)
        right = named == list(cell.slow) and of_fault and stage is None
    excesses = [straggler.excess_ms.value for straggler in stragglers if straggler.ranks]
    injected = float(injected_ms(out, cell)[1:, list(cell.slow)].mean()) if cell.slow else 0.0
    return {
        "name": cell.name,
        "framework": cell.framework,
        "ranks": cell.ranks,
        "kind": kind,
        "percent": cell.percent,
        "slow": list(cell.slow),
        "place": cell.place,
        "right": right,
        "named": named,
        "longer_stage": stage,
        "injected_ms": injected,
        "size": statistics.mean(excesses) / injected if right and excesses else None,
        "evidence": analysis.bottleneck.evidence,
        "step_ms": None if analysis.step is None else analysis.step.mean,
    }


def _longer_stage(analysis: Analysis) -> int | None:
    """Return the stage that the report says to take layers from; None without one."""
    for finding in analysis.findings:
        if (finding.code, finding.severity) == ("pipeline_stages", "warning"):
            _, _, rest = finding.advice[0].action.partition(" from stage ")
            return int(rest.split()[0])
    return None


# -- the page ------------------------------------------------------------------------------------

_DIGITS = {
    **dict.fromkeys(("injected_ms", "step_ms"), 3),
    "size": 4,
}


def _kept(score: Score) -> Score:
    return rounded(score, _DIGITS)


def sharded_bars(runs: Sequence[Score]) -> list[Bar]:
    """Return the bars on faults and on false alarms."""
    if not runs:
        return []
    what = f"8 and 16 ranks, a fault of {min(PERCENTS)} % or more: rank, replica or stage right"
    return [
        share_bar(what, _of(runs, *KINDS), _is_right, RIGHT, _miss),
        alarm_bar("8 and 16 ranks, no fault: none is named", _of(runs, "clean"), _is_right, _miss),
    ]


def _of(runs: Sequence[Score], *kinds: str) -> list[Score]:
    return [run for run in runs if run["kind"] in kinds]


def _is_right(run: Score) -> bool:
    return bool(run["right"])


def page(content: dict[str, Any]) -> str:
    """Return the whole page from the results in ``DOCS``."""
    runs = content["runs"]
    if not runs:
        return _NOT_TRAINED
    bars = sharded_bars(runs)
    text = _TEXT.format(
        runs=len(runs),
        planned=_planned(),
        cores=content["made_on"]["cores"],
        sizes=" and ".join(f"{size}" for size in PERCENTS),
    )
    parts = [text, bar_table(bars), "## By training", _table(runs), _COLUMNS]
    return page_of([part.strip() for part in parts], bars, _HOW)


def _planned() -> int:
    """Return the number of runs in the usual plan."""
    launches = itertools.product(TRAININGS, RANKS)
    return sum(len(cells_of(framework, ranks, PERCENTS)) for framework, ranks in launches)


def _table(runs: Sequence[Score]) -> str:
    rows = []
    for name, title in TRAININGS.items():
        for ranks in RANKS:
            group = [run for run in runs if (run["framework"], run["ranks"]) == (name, ranks)]
            if group:
                rows.append((f"{title}, {_shape(name, ranks)}", *_cells(group)))
    for percent in PERCENTS:
        group = [run for run in runs if run["percent"] in (0, percent)]
        rows.append((f"all, {percent} %", *_cells(group)))
    return table(("", "clean: named", *KINDS.values(), "size, found/true"), rows)


def _shape(framework: str, ranks: int) -> str:
    rows, columns = mesh_shape(framework, ranks)
    return f"{rows} × {columns} ranks" if framework in DIMENSIONS else f"{ranks} ranks"


def _cells(runs: Sequence[Score]) -> Iterator[str]:
    yield of_all(_of(runs, "clean"), lambda run: not _is_right(run))
    for kind in KINDS:
        yield of_all(_of(runs, kind), _is_right)
    sizes = [run["size"] for run in runs if run["size"] is not None]
    yield ratio(statistics.median(sizes) if sizes else None)


def _case(run: Score) -> str:
    title = f"{TRAININGS[run['framework']]}, {_shape(run['framework'], run['ranks'])}"
    if run["kind"] == "clean":
        return f"{title}, no fault"
    who = f"{run['kind']} {run['place']}" if run["place"] is not None else f"rank {run['slow'][0]}"
    what = "input" if run["kind"] == "input" else "backward"
    return f"{title}, {what} of {who} +{run['percent']:g} %"


def _miss(run: Score) -> str:
    named = f"ranks {run['named']}" if run["named"] else "no rank"
    stage = "" if run["longer_stage"] is None else f", stage {run['longer_stage']}"
    step = "" if run["step_ms"] is None else f" A step took {run['step_ms']:.0f} ms."
    return f"{_case(run)}. Found: {named}{stage}. {run['evidence']}{step}"


# -- sentences; they contain no results ----------------------------------------------------------

_NOT_TRAINED = """\
# Scorecard: models that ranks share

No run has been trained yet: run `make sharded`.
"""

_TEXT = """\
# Scorecard: models that ranks share

This page shows who is named where [ranks share a model](../recorders/parallelism.md), in {runs} of
{planned} planned trainings on 8 and 16 ranks that share {cores} cores, with gloo. One rank has a slow
backward pass or a slow loader, or all ranks of a replica or of a pipeline's stage have a slow backward
pass, by {sizes} % of the clean step. Which one is random; it measures the fault itself. A step computes
little and waits for a simulated device. There is no baseline. The [summary](../scorecard.md) has the
other targets.
"""

_COLUMNS = """\
*Right*: these ranks alone are named, with this stage of the step; a slow pipeline stage is right if the
report proposes to move layers from it and names no rank. *Size*: the median of found / injected where a
rank or replica is right.
"""

_HOW = """\
## How it is scored

`make sharded` trains all of this, in about 40 minutes on an idle machine, in the environment of `make
deepspeed-env`. It continues where it was interrupted. [sharded.json](sharded.json) has every run. Slow
links are in [slow hosts](hosts.md), which has no shared models.
"""


# -- the chapter ---------------------------------------------------------------------------------


class Sharded(CellChapter):
    name = "sharded"
    about = (
        "Train models that many ranks share, and score which ranks, replicas and stages are named."
    )
    section = Section(
        "sharded",
        "Models that ranks share",
        lambda content: sharded_bars(content["runs"]),
        page,
        _kept,
    )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--ranks", type=numbers(int), default=RANKS)
        parser.add_argument("--framework", type=words(TRAININGS), default=tuple(TRAININGS))
        parser.add_argument(
            "--sizes", type=numbers(float), default=PERCENTS, help="%% of the clean step"
        )
        parser.add_argument("--steps", type=at_least(100), default=100)

    def launches(self, options: argparse.Namespace) -> list[list[Cell]]:
        return [
            cells_of(framework, ranks, options.sizes)
            for framework in options.framework
            for ranks in options.ranks
        ]

    def seconds(self, work: list[Cell], options: argparse.Namespace) -> float:
        framework, ranks = work[0].framework, work[0].ranks
        device = device_seconds(framework, ranks) * (_PIPELINE if framework == "pipeline" else 1.0)
        shared = ranks / (os.cpu_count() or 1)
        steps = 2 * WARM_UP + options.steps * sum(1 + cell.percent / 100 for cell in work)
        return _START_SECONDS * shared + steps * (device + _STEP_SECONDS[framework] * shared)

    def train(self, out: Path, work: list[Cell], options: argparse.Namespace) -> list[Score]:
        folder = ROOT / ".venv-deepspeed"
        if not (folder / ".ready").exists():
            sys.exit(f"there is no {folder.name} to train in: make deepspeed-env")
        command = [*torchrun(work[0].ranks), str(HERE / "train_sharded_torch.py")]
        return train_cells(out, work, options.steps, command, folder)

    def score_cell(self, out: Path, cell: Cell) -> Score:
        return score_cell(out, cell)

    def score_trained(self, out: Path, options: argparse.Namespace) -> Iterator[Score]:
        """Score all cells, also those that determine the size of faults: they are without one."""
        for cell in trained_cells(out):
            if is_trained(out, cell):
                try:
                    yield self.score_cell(out, cell)
                except StallscopeError as error:
                    print(f"{cell.name}: not scored: {error}")
