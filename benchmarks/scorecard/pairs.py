"""Compare predicted gains with real fixes: train pairs, with and without a fault.

    python benchmarks/scorecard/pairs.py [OPTIONS]     train missing pairs, and score all
    python benchmarks/scorecard/pairs.py score OUT     score trained pairs again

The analysis predicts the step time after the fix from the faulty run's logs, once with a synthetic
baseline and once without. The fixed run shows what the fix really achieves. Trainings of a group
take turns of a few seconds, so that the machine's drift affects all of them alike. Ranks are not
pinned to cores. Scores are lines of OUT/scores.jsonl.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from pathlib import Path

import numpy as np
from launching import HERE, ROOT, horovodrun, launch, require_training_environment, torchrun
from options import at_least, numbers, words
from pairs_plan import (
    FIRST,
    FRAMEWORKS,
    Group,
    Pair,
    Plan,
    Segment,
    groups,
    is_trained,
    pairs,
    trained_pairs,
    write_plan,
)
from pairs_scoring import (
    Row,
    Score,
    line,
    predict,
    repeat_differences,
    rows,
)
from rich.console import Console
from rich.table import Table
from score_lines import append_score, read_scores

from stallscope.analysis import Analysis, analyse
from stallscope.errors import StallscopeError
from stallscope.parsers import read
from stallscope.run import Run

# For the estimate: seconds of a launch and of a segment without its steps, and of a clean step.
_LAUNCH_SECONDS = 15.0
_SEGMENT_SECONDS = {"keras": 2.0, "torch": 0.5, "ddp": 0.5}
_STEP_SECONDS = 0.030


SCORES = "scores.jsonl"
MODES = ("baseline", "alone")


# -- training ------------------------------------------------------------------------------------


def planned(options: argparse.Namespace) -> list[list[Group]]:
    """Return the groups of segments of every launch."""
    return [
        groups(pairs(framework, ranks, repeat))
        for repeat in range(options.repeats)
        for ranks in options.ranks
        for framework in options.framework
    ]


def missing_groups(out: Path, launch_groups: list[Group]) -> list[Group]:
    """Return the groups with an incomplete segment; a group is trained as a whole."""
    return [group for group in launch_groups if not all(is_trained(out, each) for each in group)]


def first_pair(plan: Plan) -> Pair:
    """Return a pair of a launch: all have the same framework, number of ranks and repeat."""
    return next(segment.pair for segment in plan.segments if segment.pair is not None)


def estimated_seconds(plan: Plan) -> float:
    """Estimate how long a launch takes on two idle cores."""
    seconds, pair = _LAUNCH_SECONDS, first_pair(plan)
    share = max(1.0, pair.ranks / (os.cpu_count() or 1))
    for segment in plan.segments:
        step = _STEP_SECONDS * share
        if segment.pair is not None and segment.role == "faulty":
            step += segment.pair.fault_ms(step * 1e3) / 1e3
        seconds += _SEGMENT_SECONDS[pair.framework] * share + plan.turns * plan.steps * step
    return seconds


def train(out: Path, plan: Plan) -> None:
    """Train segments of one framework and number of ranks in one launch."""
    for segment in plan.segments:
        # An interrupted launch may have left partial data.
        shutil.rmtree(out / segment.name, ignore_errors=True)
    pair = first_pair(plan)
    name = f"{pair.framework}-{pair.ranks}-r{pair.repeat}"
    path = out / f"plan-{name}.json"
    shutil.rmtree(out / f"warm-up-{path.stem}", ignore_errors=True)
    write_plan(path, plan)
    command = torchrun(pair.ranks) if pair.framework == "ddp" else horovodrun(pair.ranks)
    program = str(HERE / f"train_pairs_{pair.framework}.py")
    launch([*command, program, str(path), str(out)], out / f"printed-{name}.txt")


def train_missing(options: argparse.Namespace, out: Path) -> None:
    """Train the missing groups; with ``--estimate`` only print how long that takes."""
    missing = [missing_groups(out, groups) for groups in planned(options)]
    plans = [Plan(groups, options.turns, options.steps) for groups in missing if groups]
    count = sum(segment.role == "faulty" for plan in plans for segment in plan.segments)
    seconds = sum(map(estimated_seconds, plans))
    print(f"{count} pairs in {len(plans)} launches, about {seconds / 60:.0f} minutes")
    if options.estimate or not plans:
        return
    require_training_environment()
    if options.first:
        os.environ[FIRST] = "1"
    for plan in plans:
        began = time.monotonic()
        train(out, plan)
        print(f"{len(plan.groups)} groups in {(time.monotonic() - began) / 60:.1f} minutes")


# -- scoring -------------------------------------------------------------------------------------


def score_all(out: Path) -> None:
    """Score every trained pair again."""
    scores = out / SCORES
    scores.unlink(missing_ok=True)
    for faulty in trained_pairs(out):
        try:
            for score in pair_scores(out, faulty):
                append_score(scores, score)
        except (StallscopeError, ValueError) as error:
            print(f"{faulty.name}: not scored: {error}")


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


def show(scores: list[Score], by: tuple[str, ...]) -> None:
    """Print a table of scores, with and without a baseline side by side."""
    shown = Table(title=", ".join(by) or "all pairs")
    figures = (
        *("n", "without\nprediction", "median\n|error|", "90th\npercentile", "held"),
        *("bounds", "bounds\nheld"),
    )
    for name in by:
        shown.add_column(name)
    for mode in MODES:
        for number, name in enumerate(figures):
            shown.add_column(f"{mode}\n{name}" if number == 0 else name, justify="right")
    tables = {
        mode: rows((score for score in scores if score["mode"] == mode), by) for mode in MODES
    }
    for cell in tables[MODES[0]]:
        cells = [each for mode in MODES for each in _cells(tables[mode][cell])]
        shown.add_row(*map(str, cell), *cells)
    Console(width=150).print(shown)


def show_repeats(scores: list[Score]) -> None:
    """Print how much equal fixed runs differ."""
    differences = repeat_differences(scores)
    if differences:
        middle, most = np.quantile(differences, (0.5, 0.9))
        print(
            f"{len(differences)} pairs of equal fixed runs differ by {middle:.1%} of the faulty step "
            f"(median), {most:.1%} (90th percentile)"
        )


def _cells(row: Row) -> tuple[str, ...]:
    absent = row.n - row.predicted - row.bounds
    shares = map(_percent, (row.median, row.p90, row.held))
    return str(row.n), str(absent), *shares, str(row.bounds), _percent(row.bounds_held)


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"


# -- the command ---------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=numbers(int), default=(2, 1, 4))
    parser.add_argument("--framework", type=words(FRAMEWORKS), default=FRAMEWORKS)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--turns", type=int, default=6, help="turns of every training")
    parser.add_argument("--steps", type=at_least(20), default=26, help="steps of a turn")
    parser.add_argument("--out", type=Path, default=ROOT / ".stallscope" / "pairs")
    parser.add_argument(
        "--cells", action="store_true", help="also print a table with a row per kind of pair"
    )
    parser.add_argument(
        "--first",
        action="store_true",
        help="take priority over other sessions' work on this machine (Linux, as root)",
    )
    parser.add_argument("--estimate", action="store_true", help="only print how long it takes")
    return parser


def main() -> None:
    if sys.argv[1:2] == ["score"]:
        if len(sys.argv) < 3:
            sys.exit("pairs.py score OUT: name the folder of trained pairs")
        out, every_cell = Path(sys.argv[2]).absolute(), "--cells" in sys.argv
    else:
        options = parser().parse_args()
        out, every_cell = options.out.absolute(), options.cells
        out.mkdir(parents=True, exist_ok=True)
        train_missing(options, out)
        if options.estimate:
            return
    score_all(out)
    if not (out / SCORES).exists():
        sys.exit(f"no pair is trained in {out}")
    scores = read_scores(out / SCORES)
    kind = ("stage", "prefetched", "way", "who")
    if every_cell:
        show(scores, ("framework", "ranks", *kind))
    for by in (("framework", "ranks"), kind, ("percent",), ("half",), ()):
        show(scores, by)
    show_repeats(scores)


if __name__ == "__main__":
    main()
