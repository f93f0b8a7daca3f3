"""Compare causes inside steps, of known size, with what reports name and promise.

Causes are injected on real ranks, alone and two at once. The repaired run, which takes turns with the
faulty one, shows what a repair really gains.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import causes_scores
import numpy as np
from causes_plan import (
    DEVICE_MS,
    FRAMEWORKS,
    PERCENTS,
    RANKS,
    Plan,
    Run,
    groups,
    trained_runs,
    write_plan,
)
from chapter import Chapter, Score, at_least, numbers, words
from launching import launch_plan
from pairs_plan import is_trained, rank_path, untrained_groups

from stallscope.analysis import Analysis, analyse
from stallscope.errors import StallscopeError
from stallscope.parsers import read

# For the estimate: seconds of a launch, of a training without its steps, and of a step on a core.
_LAUNCH_SECONDS = {"keras": 20.0, "torch": 10.0, "ddp": 10.0, "trainer": 20.0, "jax": 5.0}
_RUN_SECONDS = {"keras": 3.0, "torch": 1.0, "ddp": 1.0, "trainer": 1.5, "jax": 1.0}
_STEP_SECONDS = 0.004
# PyTorch's loops and Trainer share a program.
_OWN_PROGRAMS = ("keras", "jax")
# In `--quick`, of each launch.
_QUICK_GROUPS = 1


class Causes(Chapter[Plan]):
    name = "causes"
    about = "Compare injected causes inside steps with what reports name and promise."
    section = causes_scores.SECTION

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--ranks", type=numbers(int), default=(1, 2, 4))
        parser.add_argument("--framework", type=words(FRAMEWORKS), default=tuple(FRAMEWORKS))
        sizes = tuple(map(str, PERCENTS))
        parser.add_argument(
            "--percents", type=words(sizes), default=sizes, help="sizes in percent of the step"
        )
        parser.add_argument("--repeats", type=at_least(1), default=1)
        parser.add_argument("--turns", type=at_least(1), default=3, help="turns of every run")
        parser.add_argument("--steps", type=at_least(40), default=70, help="steps of a turn")
        parser.add_argument(
            "--quick", action="store_true", help="train one group of each launch, as a look"
        )

    def missing(self, out: Path, options: argparse.Namespace) -> list[Plan]:
        """Return the groups of each launch with an incomplete run; a group is trained as a whole."""
        launches = (
            groups(framework, ranks, repeat, tuple(map(int, options.percents)))[
                : _QUICK_GROUPS if options.quick else None
            ]
            for repeat in range(options.repeats)
            for framework in options.framework
            for ranks in RANKS[framework]
            if ranks in options.ranks
        )
        missing = (untrained_groups(out, launch_groups) for launch_groups in launches)
        return [
            Plan(launch_groups, options.turns, options.steps)
            for launch_groups in missing
            if launch_groups
        ]

    def counted(self, missing: Sequence[Plan]) -> str:
        runs = [run for plan in missing for run in plan.runs]
        causes = sum(len(run.causes) for run in runs)
        return f"{len(runs)} runs with {causes} causes in {len(missing)} launches"

    def seconds(self, work: Plan, options: argparse.Namespace) -> float:
        """Estimate how long a launch takes on two idle cores."""
        framework, ranks = work.runs[0].framework, work.runs[0].ranks
        share = max(1.0, ranks / (os.cpu_count() or 1))
        clean = DEVICE_MS / 1e3 + _STEP_SECONDS * share
        seconds = _LAUNCH_SECONDS[framework] * share
        for run in work.runs:
            longer = sum(fault.percent / 100 for fault in run.faults if not fault.repaired)
            steps = work.turns * work.steps * clean * (1 + longer)
            seconds += _RUN_SECONDS[framework] * share + steps
        return seconds

    def train(self, out: Path, work: Plan, options: argparse.Namespace) -> list[Score]:
        """Train the groups of one framework and number of ranks in one launch."""
        run = work.runs[0]
        launch_plan(
            out,
            work.name,
            [run.name for run in work.runs],
            lambda path: write_plan(path, work),
            run.framework,
            run.ranks,
            f"train_causes_{run.framework if run.framework in _OWN_PROGRAMS else 'torch'}.py",
        )
        return []

    def answer(self, out: Path, work: Plan, scores: Sequence[Score]) -> str:
        run = work.runs[0]
        return f"{len(work.runs)} runs of {FRAMEWORKS[run.framework]}, ranks: {run.ranks}"

    def score_trained(self, out: Path, options: argparse.Namespace) -> Iterator[Score]:
        for run in trained_runs(out):
            try:
                yield from _scores(out, run)
            except (StallscopeError, ValueError) as error:
                print(f"{run.name}: not scored: {error}")


def _scores(out: Path, run: Run) -> Iterator[Score]:
    """Yield the score of each of a run's causes; one score if it has none."""
    analysis = _analysed(out, run)
    if not run.causes:
        yield causes_scores.score_clean(run, analysis)
    for fault in run.causes:
        repaired = run.without(fault.cause)
        if is_trained(out, repaired):
            yield causes_scores.score_cause(
                run, fault, analysis, _analysed(out, repaired), _delays(out, run)
            )


def _analysed(out: Path, run: Run) -> Analysis:
    return analyse(read(str(out / run.name / "logs"))[0])


def _delays(out: Path, run: Run) -> causes_scores.Delays:
    """Return what the ranks of a run have measured, steps × ranks of each cause."""
    of_ranks = [
        json.loads(rank_path(out / run.name, rank).read_text())["delays"]
        for rank in range(run.ranks)
    ]
    return {
        cause: np.array([delays[cause] for delays in of_ranks], np.float64).T
        for cause in of_ranks[0]
    }
