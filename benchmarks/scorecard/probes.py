"""Compare what input probes promise with what repaired loaders really gain, in pairs of trainings.

A probe measures in the faulty run itself what faster input gains. The repaired run, which takes turns
with the faulty one, shows what the repair really gains, and is also a clean run with a probe.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import probes_scores
from chapter import Chapter, Score, at_least, numbers, words
from launching import launch_plan
from pairs_plan import is_trained, untrained_groups
from probes_plan import (
    BATCHES_AHEAD,
    DEVICE_SECONDS,
    FRAMEWORKS,
    KINDS,
    PROBE_EVERY,
    Plan,
    Run,
    faulty_runs,
    groups,
    trained_runs,
    write_plan,
)

from stallscope.errors import StallscopeError
from stallscope.parsers import read
from stallscope.run import Run as Recorded

# For the estimate: seconds of a launch, of a training without its steps, and of a step on a core.
_LAUNCH_SECONDS = {"keras": 20.0, "torch": 10.0, "ddp": 10.0, "trainer": 20.0}
_RUN_SECONDS = {"keras": 3.0, "torch": 1.0, "ddp": 1.0, "trainer": 1.5}
_STEP_SECONDS = 0.012
# In `--quick`, of each launch.
_QUICK_GROUPS = 1


class Probes(Chapter[Plan]):
    name = "probes"
    about = "Compare what input probes promise with what repaired loaders gain: train pairs."
    section = probes_scores.SECTION

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--ranks", type=numbers(int), default=(2, 1, 4))
        parser.add_argument("--framework", type=words(FRAMEWORKS), default=tuple(FRAMEWORKS))
        causes = sorted({cause for kinds in KINDS.values() for cause, _ in kinds})
        parser.add_argument(
            "--only", type=words(causes), default=tuple(causes), help="train only these causes"
        )
        parser.add_argument("--repeats", type=at_least(1), default=1)
        parser.add_argument("--epochs", type=at_least(2), default=4)
        parser.add_argument(
            "--steps", type=at_least(PROBE_EVERY + BATCHES_AHEAD), default=80, help="of an epoch"
        )
        parser.add_argument(
            "--quick", action="store_true", help="train one group of each launch, as a look"
        )

    def missing(self, out: Path, options: argparse.Namespace) -> list[Plan]:
        """Return the groups of each launch with an incomplete run; a group is trained as a whole."""
        launches = (
            groups(
                [run for run in faulty_runs(framework, ranks, repeat) if run.cause in options.only]
            )[: _QUICK_GROUPS if options.quick else None]
            for repeat in range(options.repeats)
            for ranks in options.ranks
            for framework in options.framework
        )
        missing = (untrained_groups(out, launch_groups) for launch_groups in launches)
        return [
            Plan(launch_groups, options.epochs, options.steps)
            for launch_groups in missing
            if launch_groups
        ]

    def counted(self, missing: Sequence[Plan]) -> str:
        return f"{sum(map(_pairs, missing))} pairs in {len(missing)} launches"

    def seconds(self, work: Plan, options: argparse.Namespace) -> float:
        """Estimate how long a launch takes on two idle cores."""
        framework, ranks = work.runs[0].framework, work.runs[0].ranks
        share = max(1.0, ranks / (os.cpu_count() or 1))
        seconds = _LAUNCH_SECONDS[framework] * share
        for run in work.runs:
            loader = run.loader(0 if run.rank is None else run.rank)
            burns = loader.decoding_ms + loader.collating_ms
            # Ranks and their workers share the cores.
            delay_ms = run.delay_ms if run.cause != "none" else 0.0
            step = (
                DEVICE_SECONDS
                + _STEP_SECONDS * share
                + (delay_ms * share if burns else delay_ms) / 1e3
            )
            seconds += _RUN_SECONDS[framework] * share + work.epochs * work.steps * step
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
            f"train_probes_{'keras' if run.framework == 'keras' else 'torch'}.py",
        )
        return []

    def answer(self, out: Path, work: Plan, scores: Sequence[Score]) -> str:
        run = work.runs[0]
        return f"{_pairs(work)} pairs of {FRAMEWORKS[run.framework]}, ranks: {run.ranks}"

    def score_trained(self, out: Path, options: argparse.Namespace) -> Iterator[Score]:
        for run in trained_runs(out):
            try:
                if run.cause == "none":
                    yield probes_scores.score_repaired(run, _recorded(out, run))
                elif is_trained(out, run.repaired):
                    logs = (_recorded(out, each) for each in (run, run.repaired))
                    yield probes_scores.score_pair(run, *logs)
            except (StallscopeError, ValueError) as error:
                print(f"{run.name}: not scored: {error}")


def _recorded(out: Path, run: Run) -> Recorded:
    return read(str(out / run.name / "logs"))[0]


def _pairs(plan: Plan) -> int:
    return sum(len(group) - 1 for group in plan.groups)
