"""Train with one slow rank under each recorder; score what the analysis finds, and write its page.

One launch trains many cells one after the other: clean ones, slow input on one rank, and slow backward
passes on one rank. Each leaves a folder with its logs and every rank's measurements of the injected
fault. docs/scorecard/frameworks.md is written from the scores; docs/scorecard/frameworks.json has a line
per run.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from cells import Cell, grid
from chapter import Score, Section, at_least, numbers, rounded, words
from launching import HERE, ROOT, torchrun
from page_tables import (
    CLEARLY,
    NOTHING,
    RIGHT,
    Bar,
    alarm_bar,
    bar_table,
    page_of,
    percent,
    ratio,
    table,
)
from pairs_scores import predict
from real import CellChapter, train_cells
from real_scores import cpu_wait_ms, injected_ms, measured
from scoring import score

from stallscope.analysis import Analysis, analyse
from stallscope.parsers import read

#: The frameworks, with their titles on the page.
FRAMEWORKS = {
    "transformers": "Hugging Face Trainer",
    "accelerate": "Accelerate",
    "accumulate": "Accelerate, two batches per step",
    "no_sync": "PyTorch DDP, two batches per step (`no_sync`)",
    "compiled": "PyTorch DDP, `torch.compile`",
    "fsdp": "PyTorch FSDP2",
    "ray": "Ray Train",
    "jax": "JAX",
}
#: JAX dispatches a step with a Python callback, as that of the simulated device, when it is done: what
#: hosts do before is not known apart, so no rank is named.
NAMES_NO_RANK = ("jax",)
#: The stages with a fault, and what the page calls them.
_STAGES = {"input": "input", "compute": "backward"}
# Their programs start their ranks; torchrun starts those of the others.
_STARTERS = ("ray", "jax")

# For the estimate: the time of a launch, and of a step on two idle cores.
_LAUNCH_SECONDS, _STEP_SECONDS = 20.0, 0.025

# -- scores --------------------------------------------------------------------------------------

# The largest error of a rank's wait for data, as a share of the injected time.
_INPUT_WITHIN = 0.1
_PREDICTION = (
    *("fix", "faulty_ms", "predicted_ms", "predicted_ci95", "achieved_ms", "achieved_ci95"),
    "bound",
)


def score_cell(out: Path, cell: Cell) -> Score:
    """Score a trained cell.

    Raises:
        StallscopeError: if its logs, or those of its baseline, cannot be read.
    """
    analysis = analyse(_run(out, cell.name), _run(out, cell.baseline))
    line = {
        "name": cell.name,
        "framework": cell.framework,
        "ranks": cell.ranks,
        "repeat": cell.repeat,
        "stage": cell.stage,
        "rank": cell.rank,
        "percent": cell.percent,
        "verdict": analysis.bottleneck.kind,
        "named": sorted({rank for straggler in analysis.stragglers for rank in straggler.ranks}),
        "evidence": analysis.bottleneck.evidence,
        "step_ms": None if analysis.step is None else round(analysis.step.mean, 3),
        "cpu_wait_ms": round(max(cpu_wait_ms(out, cell)), 3),
    }
    if cell.framework in NAMES_NO_RANK:
        return {**line, **_without_stages(out, cell, analysis)}
    return {**line, **_with_stages(out, cell, analysis)}


def _run(out: Path, name: str) -> Any:
    (run,) = read(str(out / name / "logs"))
    return run


def _with_stages(out: Path, cell: Cell, analysis: Analysis) -> Score:
    scored = score(analysis, measured(out, cell, analysis), {})
    right = scored.rank_right and scored.cause_right is not False
    line = {
        "right": right,
        "found": scored.stage,
        "verdict_right": scored.verdict_right,
        "injected_ms": round(scored.injected.mean_ms, 3),
        "allreduce_ms": scored.allreduce_ms,
        "recovered": scored.recovered,
        "cv": round(max(scored.cv), 3),
    }
    if cell.stage is None:
        return line
    clean = Cell(cell.framework, cell.ranks, cell.repeat, cell.group)
    prediction = predict(analysis, analyse(_run(out, clean.name)), cell.stage, cell.who)
    known = asdict(prediction)
    gain = {name: known[name] for name in _PREDICTION}
    return {**line, **gain, "error": prediction.error, "held": prediction.held}


def _without_stages(out: Path, cell: Cell, analysis: Analysis) -> Score:
    """Score a run whose ranks cannot be compared: none may be named, and its input must be right."""
    line: Score = {"right": not analysis.bottleneck.ranks and not analysis.stragglers}
    if cell.rank is None:
        return line
    injected = float(injected_ms(out, cell)[1:, cell.rank].mean())
    of_clean, of_rank = (
        next(rank.input_ms for rank in each.ranks if rank.rank == cell.rank)
        for each in (analyse(_run(out, cell.baseline)), analysis)
    )
    line |= {"injected_ms": round(injected, 3)}
    if cell.stage == "input" and of_rank is not None and of_clean is not None:
        recovered = (of_rank - of_clean) / injected
        line |= {"recovered": recovered}
        line["right"] &= abs(recovered - 1) <= _INPUT_WITHIN
    return line


# -- the page ------------------------------------------------------------------------------------

_DIGITS = {
    **dict.fromkeys(("allreduce_ms", "faulty_ms", "predicted_ms", "achieved_ms", "cv"), 3),
    **dict.fromkeys(("predicted_ci95", "achieved_ci95"), 3),
    **dict.fromkeys(("recovered", "error"), 4),
}


def _kept(run: Score) -> Score:
    return rounded(run, _DIGITS)


def framework_bars(runs: Sequence[Score]) -> list[Bar]:
    """Return the bars on faults, false alarms, and on JAX, where no rank is named."""
    if not runs:
        return []
    named = [run for run in runs if run["framework"] not in NAMES_NO_RANK]
    unnamed = [run for run in runs if run["framework"] in NAMES_NO_RANK]
    slow, clean = _slow(named), [run for run in runs if run["stage"] is None]
    return [
        _right("Each recorder, one slow rank: cause and rank right", slow),
        alarm_bar(
            "Each recorder, no fault: a rank named", clean, lambda run: not run["named"], _miss
        ),
        _right("JAX, one slow rank: no rank named, and each rank's input right", _slow(unnamed)),
    ]


def _right(what: str, runs: Sequence[Score]) -> Bar:
    if not runs:
        return Bar(what, f"≥ {RIGHT * 100:g} % of runs", "not measured", None)
    right = sum(run["right"] for run in runs)
    return Bar(
        what,
        f"≥ {RIGHT * 100:g} % of runs",
        f"{right} of {len(runs)} runs",
        right >= RIGHT * len(runs),
        tuple(_miss(run) for run in runs if not run["right"]),
    )


def page(content: dict[str, Any]) -> str:
    """Return the whole page from the results in ``DOCS``."""
    runs = content["runs"]
    if not runs:
        return _NO_FRAMEWORKS
    bars = framework_bars(runs)
    wrong = [run for run in _slow(runs) if run["right"] and _verdict_right(run) is False]
    parts = [
        _FRAMEWORKS.format(
            runs=len(runs),
            ranks=" and ".join(str(ranks) for ranks in sorted({run["ranks"] for run in runs})),
            cores=content["made_on"]["cores"],
        ),
        bar_table(bars),
        "## By recorder",
        _table(runs),
        _FRAMEWORK_COLUMNS.format(drift=_drift(runs)),
        _FRAMEWORK_GAINS,
        _gains(runs),
    ]
    ends = ["## Other verdicts", _OTHER_VERDICTS.strip(), "\n".join(map(_verdict, wrong))]
    return page_of(
        [part.strip() for part in parts], bars, *(ends if wrong else []), _HOW_FRAMEWORKS
    )


def _slow(runs: Sequence[Score]) -> list[Score]:
    return [run for run in runs if run["stage"] is not None]


def _table(runs: Sequence[Score]) -> str:
    rows = []
    for name, title in FRAMEWORKS.items():
        for ranks in sorted({run["ranks"] for run in runs if run["framework"] == name}):
            group = [run for run in runs if (run["framework"], run["ranks"]) == (name, ranks)]
            rows.append((f"{title}, {ranks} ranks", *_cells(group)))
    head = ("clean: a rank named", *(f"slow {stage}: right" for stage in _STAGES.values()))
    return table(("", *head, "size, found/true", "verdict right"), rows)


def _cells(runs: Sequence[Score]) -> Iterator[str]:
    clean = [run for run in runs if run["stage"] is None]
    yield f"{sum(bool(run['named']) for run in clean)} of {len(clean)}"
    for stage in _STAGES:
        faulty = [run for run in runs if run["stage"] == stage]
        yield f"{sum(run['right'] for run in faulty)} of {len(faulty)}"
    sizes = [run["recovered"] for run in runs if run.get("recovered") is not None]
    yield ratio(statistics.median(sizes)) if sizes else NOTHING
    known = [right for run in runs if (right := _verdict_right(run)) is not None]
    yield f"{sum(known)} of {len(known)}" if known else NOTHING


def _verdict_right(run: Score) -> bool | None:
    """Tell whether a slow rank is the verdict; None if another cause costs about as much."""
    if run["stage"] is None or run.get("verdict_right") is None:
        return None
    if run["injected_ms"] < CLEARLY * (run["allreduce_ms"] or 0.0):
        return None
    return bool(run["verdict_right"])


def _gains(runs: Sequence[Score]) -> str:
    rows = []
    for name, title in FRAMEWORKS.items():
        group = [run for run in runs if run["framework"] == name and run.get("error") is not None]
        if group:
            held = [run["held"] for run in group if run["held"] is not None]
            errors = [abs(run["error"]) for run in group]
            rows.append(
                (
                    title,
                    str(len(group)),
                    percent(statistics.median(errors)),
                    percent(float(np.quantile(errors, 0.9))),
                    f"{sum(held)} of {len(held)}" if held else NOTHING,
                    percent(max(_drifts(run for run in runs if run["framework"] == name))),
                )
            )
    head = ("runs", "median error", "90th percentile", "holds", "clean runs differ, at most")
    return table(("", *head), rows)


def _drift(runs: Sequence[Score]) -> str:
    """Write by how much the two clean runs of a launch differ."""
    drifts = _drifts(runs)
    middle, most = percent(statistics.median(drifts), 0), percent(max(drifts), 0)
    return f"{middle} in the median, {most} at most"


def _drifts(runs: Iterable[Score]) -> list[float]:
    """Return by how much the two clean runs of each launch differ, as shares of the shorter step."""
    groups: dict[tuple[Any, ...], list[float]] = {}
    for run in runs:
        if run["stage"] is None and run["step_ms"] is not None:
            key = (run["framework"], run["ranks"], run["repeat"])
            groups.setdefault(key, []).append(run["step_ms"])
    return [max(times) / min(times) - 1 for times in groups.values() if len(times) > 1] or [0.0]


def _case(run: Score) -> str:
    title = f"{FRAMEWORKS[run['framework']]}, {run['ranks']} ranks"
    if run["stage"] is None:
        return f"{title}, no fault"
    return f"{title}, {_STAGES[run['stage']]} of rank {run['rank']} +{run['percent']:g} %"


def _miss(run: Score) -> str:
    named = f"ranks {run['named']}" if run["named"] else "no rank"
    stage = f", {run['found']}" if run.get("found") else ""
    size = "" if run.get("recovered") is None else f", {run['recovered']:.2f} times its size"
    cores = f"A rank waited {run['cpu_wait_ms']:.0f} ms of each {run['step_ms']:.0f} ms step for a core."
    return f"{_case(run)}. Found: {named}{stage}{size}. {run['evidence']} {cores}"


def _verdict(run: Score) -> str:
    return f"- {_case(run)}: {run['evidence']}"


# -- sentences; they contain no results ----------------------------------------------------------

_NO_FRAMEWORKS = """\
# Scorecard: frameworks

No framework has been scored yet: run `make frameworks`.
"""

_FRAMEWORKS = """\
# Scorecard: frameworks

This page shows how each recorder finds a slow rank, in {runs} trainings on {ranks} ranks that share
{cores} cores, with gloo. In most of them one rank has a slow loader or a slow backward pass, by 30 or
100 % of the clean step. The rank is random, and measures the fault itself. A step computes little and
waits for a simulated device. The baseline is the same training without a fault. The
[summary](../scorecard.md) has the other targets.
"""

_FRAMEWORK_COLUMNS = """\
*Right*: this rank alone is named, with this stage. *Size*: the median of found / injected. *Verdict
right*: that rank and stage are the report's first answer; only runs whose fault costs clearly more
than allreduce count.

With JAX no rank is named here, by design: the simulated device is a Python callback in the compiled
step, and JAX returns from such steps when they are done, so [hosts' work](../recorders/jax.md) is not
known. There, a run is right if no rank is named, and the slow rank's input is within 10 % of the truth.

The two clean runs of a launch differ by {drift}, because of other work on the machine.
"""

_FRAMEWORK_GAINS = """\
## Step time after the fix

The step time without the fault, as predicted from the faulty run and its baseline, against the clean
run of the same launch. *Error* and *holds* are as for [fixes](fixes.md), but these trainings do not
take turns: the changes of the machine are in the errors. No prediction can be closer than the clean
runs are to each other.
"""

_OTHER_VERDICTS = """\
Runs with the rank and stage right, but another first answer:
"""

_HOW_FRAMEWORKS = """\
## How it is scored

The rules are those of [real ranks](ranks.md). `make frameworks` trains all of this, in about 40
minutes, in the environments of `make keras3-env` and `make ray-env`. It continues where it was
interrupted. [frameworks.json](frameworks.json) has every run.
"""


# -- the chapter ---------------------------------------------------------------------------------


class Frameworks(CellChapter):
    name = "frameworks"
    about = "Train with one slow rank under each recorder, and score what the analysis finds."
    section = Section(
        "frameworks", "Frameworks", lambda content: framework_bars(content["runs"]), page, _kept
    )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--ranks", type=numbers(int), default=(2, 4))
        parser.add_argument("--framework", type=words(FRAMEWORKS), default=tuple(FRAMEWORKS))
        parser.add_argument(
            "--sizes", type=numbers(float), default=(30, 100), help="%% of the clean step"
        )
        parser.add_argument("--repeats", type=at_least(1), default=2)
        parser.add_argument("--steps", type=at_least(200), default=240)

    def launches(self, options: argparse.Namespace) -> list[list[Cell]]:
        return [
            grid(
                framework,
                ranks,
                stages=tuple(_STAGES),
                who=("one",),
                percents=options.sizes,
                ways=("sleep",),
                repeats=options.repeats,
            )
            for framework in options.framework
            for ranks in options.ranks
        ]

    def seconds(self, work: list[Cell], options: argparse.Namespace) -> float:
        steps = options.steps * sum(1 + cell.percent / 100 for cell in work)
        return _LAUNCH_SECONDS + steps * _STEP_SECONDS

    def train(self, out: Path, work: list[Cell], options: argparse.Namespace) -> list[Score]:
        framework, ranks = work[0].framework, work[0].ranks
        environment = "ray" if framework == "ray" else "keras3"
        folder = ROOT / f".venv-{environment}"
        if not (folder / ".ready").exists():
            sys.exit(f"there is no {folder.name} to train in: make {environment}-env")
        starter = ["python", "-u"] if framework in _STARTERS else torchrun(ranks)
        command = [*starter, str(HERE / program(framework))]
        return train_cells(out, work, options.steps, command, folder)

    def score_cell(self, out: Path, cell: Cell) -> Score:
        return score_cell(out, cell)


def program(framework: str) -> str:
    """Return the file name of the program that trains with a framework."""
    return f"train_frameworks_{framework if framework in _STARTERS else 'torch'}.py"
