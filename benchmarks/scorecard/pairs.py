"""Train pairs, with and without a fault; predicted gains are compared with the real fixes.

The analysis predicts the step time after the fix from the faulty run's logs, once with a synthetic
baseline and once without. The fixed run shows what the fix really achieves. Trainings of a group
take turns of a few seconds, so that the machine's drift affects all of them alike. Ranks are not
pinned to cores.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pairs_scores
from chapter import SCORES, Chapter, Score, at_least, numbers, read_scores, words
from launching import launch_plan
from pairs_plan import (
    FIRST,
    FRAMEWORKS,
    Plan,
    Segment,
    groups,
    pairs,
    trained_pairs,
    untrained_groups,
    write_plan,
)
from pairs_scores import MODES, line, predict, table_by

from stallscope.analysis import Analysis, analyse
from stallscope.errors import StallscopeError
from stallscope.parsers import read
from stallscope.run import Run

# For the estimate: seconds of a launch and of a segment without its steps, and of a clean step.
_LAUNCH_SECONDS = 15.0
_SEGMENT_SECONDS = {"keras": 2.0, "torch": 0.5, "ddp": 0.5}
_STEP_SECONDS = 0.030


class Pairs(Chapter[Plan]):
    name = "pairs"
    about = "Compare predicted gains with real fixes: train pairs, with and without a fault."
    section = pairs_scores.SECTION

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--ranks", type=numbers(int), default=(2, 1, 4))
        parser.add_argument("--framework", type=words(FRAMEWORKS), default=FRAMEWORKS)
        parser.add_argument("--repeats", type=int, default=1)
        parser.add_argument("--turns", type=int, default=6, help="turns of every training")
        parser.add_argument("--steps", type=at_least(20), default=26, help="steps of a turn")
        parser.add_argument(
            "--cells",
            action="store_true",
            help="also print tables with a row per kind of pair and per size",
        )
        parser.add_argument(
            "--first",
            action="store_true",
            help="take priority over other sessions' work on this machine (Linux, as root)",
        )

    def missing(self, out: Path, options: argparse.Namespace) -> list[Plan]:
        """Return the groups of each launch with an incomplete segment; a group is trained as a whole."""
        launches = (
            groups(pairs(framework, ranks, repeat))
            for repeat in range(options.repeats)
            for ranks in options.ranks
            for framework in options.framework
        )
        missing = (untrained_groups(out, launch_groups) for launch_groups in launches)
        return [
            Plan(launch_groups, options.turns, options.steps)
            for launch_groups in missing
            if launch_groups
        ]

    def counted(self, missing: Sequence[Plan]) -> str:
        count = sum(segment.role == "faulty" for plan in missing for segment in plan.segments)
        return f"{count} pairs in {len(missing)} launches"

    def seconds(self, work: Plan, options: argparse.Namespace) -> float:
        """Estimate how long a launch takes on two idle cores."""
        seconds, pair = _LAUNCH_SECONDS, work.first_pair
        share = max(1.0, pair.ranks / (os.cpu_count() or 1))
        for segment in work.segments:
            step = _STEP_SECONDS * share
            if segment.pair is not None and segment.role == "faulty":
                step += segment.pair.fault_ms(step * 1e3) / 1e3
            seconds += _SEGMENT_SECONDS[pair.framework] * share + work.turns * work.steps * step
        return seconds

    def train(self, out: Path, work: Plan, options: argparse.Namespace) -> list[Score]:
        """Train segments of one framework and number of ranks in one launch."""
        if options.first:
            os.environ[FIRST] = "1"
        pair = work.first_pair
        launch_plan(
            out,
            f"{pair.framework}-{pair.ranks}-r{pair.repeat}",
            [segment.name for segment in work.segments],
            lambda path: write_plan(path, work),
            pair.framework,
            pair.ranks,
            f"train_pairs_{'keras' if pair.framework == 'keras' else 'torch'}.py",
        )
        return []

    def answer(self, out: Path, work: Plan, scores: Sequence[Score]) -> str:
        pair = work.first_pair
        return f"{len(work.groups)} groups of {pair.framework}, {pair.ranks} ranks"

    def score_trained(self, out: Path, options: argparse.Namespace) -> Iterator[Score]:
        for faulty in trained_pairs(out):
            try:
                yield from pair_scores(out, faulty)
            except (StallscopeError, ValueError) as error:
                print(f"{faulty.name}: not scored: {error}")

    def finish(self, out: Path, options: argparse.Namespace) -> None:
        super().finish(out, options)
        if options.cells:
            scores = read_scores(out / SCORES)
            kind = ("stage", "prefetched", "way", "who")
            for by in (("framework", "ranks", *kind), ("percent",)):
                print(table_by(scores, by), end="\n\n")


def pair_scores(out: Path, segment: Segment) -> list[Score]:
    """Return the scores of one pair, with and without its baseline."""
    pair, fixed_name = segment.pair, segment.fixed
    assert pair is not None
    assert fixed_name is not None
    faulty, fixed, baseline = (
        _run(out, name) for name in (segment.name, fixed_name, segment.baseline)
    )
    reached, clean = analyse(fixed), analyse(baseline)
    # A single rank delays no other rank.
    who = pair.who if pair.ranks > 1 else "all"
    scores = []
    for mode in MODES:
        analysis = analyse(faulty, baseline if mode == "baseline" else None)
        where = {
            "name": pair.name,
            "mode": mode,
            **{name: getattr(pair, name) for name in _PAIR_FIELDS},
            "baseline": segment.baseline,
            "baseline_ms": None if clean.step is None else clean.step.mean,
            "stages": {
                "faulty": _entries(analysis),
                "fixed": _entries(reached),
                "baseline": _entries(clean),
            },
        }
        scores.append(line(predict(analysis, reached, pair.stage, who), where))
    return scores


_PAIR_FIELDS = (
    *("framework", "ranks", "repeat", "stage", "way", "who"),
    *("percent", "prefetched", "rank", "half"),
)


def _run(out: Path, name: str) -> Run:
    return read(str(out / name / "logs"))[0]


def _entries(analysis: Analysis) -> dict[str, float]:
    return {entry.name: round(entry.ms, 3) for entry in analysis.entries}
