"""A chapter of the scorecard, and the driver that trains and scores every chapter.

The driver plans, trains what is missing, keeps scores as lines of OUT/scores.jsonl, and prints them.
A chapter says what is planned, how that is trained or simulated, how it is scored, and has a section.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from launching import ROOT
from page_tables import Bar

#: The detailed pages, and the results for them.
DOCS = ROOT / "docs" / "scorecard"
SCORES = "scores.jsonl"

# What takes less time gets a line of progress only so often.
_SHORT_SECONDS, _PROGRESS_SECONDS = 10.0, 30.0

#: A line of the scores: what was trained, and what was found.
Score = dict[str, Any]

#: What is trained in one go: a launch, or a single run.
Work = TypeVar("Work")


@dataclass(frozen=True)
class Section:
    """How a chapter gets onto the pages, from its results in ``DOCS``."""

    #: The file name of its page, and the title of that.
    page: str
    title: str
    #: Returns the targets and results.
    bars: Callable[[dict[str, Any]], list[Bar]]
    #: Returns the whole page.
    text: Callable[[dict[str, Any]], str]
    #: Returns what the results keep of a score.
    kept: Callable[[Score], Score] = dict
    #: The name of the list of runs in the results.
    runs: str = "runs"

    def results(self, scores: Path) -> dict[str, Any]:
        """Return all scores of a file as results, with the machine that made them."""
        machine = {"machine": platform.machine(), "cores": os.cpu_count()}
        return {"made_on": machine, self.runs: [self.kept(score) for score in read_scores(scores)]}

    def bring_together(self, scores: Path, out: Path) -> None:
        """Write all scores of a file as results: a line per run."""
        results = self.results(scores)
        lines = ",\n".join(json.dumps(run) for run in results[self.runs])
        made_on = json.dumps(results["made_on"])
        out.write_text(f'{{"made_on": {made_on},\n"{self.runs}": [\n{lines}\n]}}\n')


class Chapter(ABC, Generic[Work]):
    """A part of the scorecard."""

    #: The driver's name of it, which is also that of its results.
    name: ClassVar[str]
    about: ClassVar[str]
    section: ClassVar[Section]
    #: The usual folder of what is trained, in ``.stallscope``; by default, the name.
    folder: ClassVar[str] = ""
    #: Whether all that is trained is scored after training; otherwise, each run is scored at its end.
    scored_last: ClassVar[bool] = True
    #: Whether it keeps scores as lines; otherwise, it writes its results itself.
    keeps_scores: ClassVar[bool] = True
    #: Whether trained runs can be scored again.
    scored_again: ClassVar[bool] = True

    @property
    def usual_folder(self) -> Path:
        return ROOT / ".stallscope" / (self.folder or self.name)

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add the chapter's own options; the driver has ``--out``, ``--estimate`` and ``--again``."""

    @abstractmethod
    def missing(self, out: Path, options: argparse.Namespace) -> list[Work]:
        """Return what is planned and not trained yet."""

    @abstractmethod
    def counted(self, missing: Sequence[Work]) -> str:
        """Write how much is missing."""

    @abstractmethod
    def seconds(self, work: Work, options: argparse.Namespace) -> float:
        """Estimate how long it takes."""

    def at_once(self, options: argparse.Namespace) -> int:
        """Return how much is trained at a time."""
        return 1

    def pool(self, options: argparse.Namespace) -> Executor | None:
        """Return what trains several at a time; None if they come one after the other."""
        return None

    @abstractmethod
    def train(self, out: Path, work: Work, options: argparse.Namespace) -> list[Score]:
        """Train; return the scores of what is scored at once."""

    def keep(self, out: Path, work: Work, scores: Iterable[Score]) -> None:
        for score in scores:
            append_score(out / SCORES, score)

    @abstractmethod
    def answer(self, out: Path, work: Work, scores: Sequence[Score]) -> str:
        """Write the outcome in one line."""

    def score_trained(self, out: Path, options: argparse.Namespace) -> Iterator[Score]:
        """Score all that is trained."""
        return iter(())

    def finish(self, out: Path, options: argparse.Namespace) -> None:
        """Print the page of the scores in this folder."""
        print(self.section.text(self.section.results(out / SCORES)))


class CaseChapter(Chapter[Work]):
    """A chapter of single runs, which are drawn from a seed and scored at their ends."""

    scored_last = False
    frameworks: ClassVar[tuple[str, ...]]
    #: What may be wrong with a run, or nothing.
    kinds: ClassVar[tuple[str, ...]]
    #: The number of runs, and the time of one.
    usual_runs: ClassVar[int]
    run_seconds: ClassVar[float]

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--framework", type=words(self.frameworks), default=self.frameworks)
        parser.add_argument(
            "--runs", type=at_least(1), default=self.usual_runs, help="runs of all frameworks"
        )
        parser.add_argument(
            "--what", type=words(self.kinds), default=self.kinds, help="train only these"
        )
        parser.add_argument("--seed", type=int, default=1)

    @abstractmethod
    def planned(self, options: argparse.Namespace) -> list[Any]:
        """Return all runs, which have a name and say what is wrong."""

    def missing(self, out: Path, options: argparse.Namespace) -> list[Any]:
        done = {score["name"] for score in read_scores(out / SCORES)}
        return [
            case
            for case in self.planned(options)
            if case.name not in done and case.what in options.what
        ]

    def counted(self, missing: Sequence[Work]) -> str:
        return f"{len(missing)} runs"

    def seconds(self, work: Work, options: argparse.Namespace) -> float:
        return self.run_seconds

    def answer(self, out: Path, work: Any, scores: Sequence[Score]) -> str:
        if not scores:
            return f"{work.name}: failed; its output is in {out / work.name / 'printed.txt'}"
        return f"{work.name}: {self.answer_of(scores[0])}"

    @abstractmethod
    def answer_of(self, score: Score) -> str:
        """Write whether a run's fault is found, and what is reported."""


# -- the driver ----------------------------------------------------------------------------------


def run(chapter: Chapter[Any], arguments: Sequence[str]) -> None:
    """Train what is missing of a chapter, and score it."""
    options = parser(chapter).parse_args(_in_full(chapter, arguments))
    out = options.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    if not options.again:
        missing = chapter.missing(out, options)
        total = sum(chapter.seconds(work, options) for work in missing)
        minutes = total / chapter.at_once(options) / 60
        print(f"{chapter.counted(missing)}, about {minutes:.0f} minutes", flush=True)
        if options.estimate:
            return
        if missing:
            _train(chapter, out, missing, options, total)
    if options.again or chapter.scored_last:
        _score_trained(chapter, out, options)
    chapter.finish(out, options)


def parser(chapter: Chapter[Any]) -> argparse.ArgumentParser:
    """Return the parser of a chapter's options."""
    parser = argparse.ArgumentParser(prog=f"scorecard.py {chapter.name}", description=chapter.about)
    chapter.add_options(parser)
    parser.add_argument(
        "--out", type=Path, default=chapter.usual_folder, help="folder of what is trained"
    )
    if chapter.scored_again:
        parser.add_argument("--again", action="store_true", help="only score trained runs again")
    parser.add_argument("--estimate", action="store_true", help="only print how long it takes")
    parser.set_defaults(again=False)
    return parser


def _in_full(chapter: Chapter[Any], arguments: Sequence[str]) -> list[str]:
    """Return the options that ``score OUT`` stands for."""
    if not chapter.scored_again or arguments[:1] != ["score"]:
        return list(arguments)
    if len(arguments) < 2:
        sys.exit(f"scorecard.py {chapter.name} score OUT: name the folder of trained runs")
    return ["--again", "--out", *arguments[1:]]


def _train(
    chapter: Chapter[Any],
    out: Path,
    missing: Sequence[Any],
    options: argparse.Namespace,
    total: float,
) -> None:
    done, began, printed = 0.0, time.monotonic(), float("-inf")
    for number, (work, scores) in enumerate(_trained(chapter, out, missing, options), 1):
        chapter.keep(out, work, scores)
        done += chapter.seconds(work, options)
        now = time.monotonic()
        short = chapter.seconds(work, options) < _SHORT_SECONDS
        if short and now - printed < _PROGRESS_SECONDS:
            continue
        printed, left = now, (now - began) / done * (total - done) / 60
        answer = chapter.answer(out, work, scores)
        print(f"{number}/{len(missing)} {answer}; about {left:.0f} minutes left", flush=True)


def _trained(
    chapter: Chapter[Any], out: Path, missing: Sequence[Any], options: argparse.Namespace
) -> Iterator[tuple[Any, list[Score]]]:
    """Train, and yield the scores of each in the order in which they end."""
    pool = chapter.pool(options)
    if pool is None:
        yield from ((work, chapter.train(out, work, options)) for work in missing)
        return
    try:
        works = {pool.submit(chapter.train, out, work, options): work for work in missing}
        for future in as_completed(works):
            yield works.pop(future), future.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _score_trained(chapter: Chapter[Any], out: Path, options: argparse.Namespace) -> None:
    """Replace the scores by those of all that is trained.

    Raises:
        SystemExit: if nothing is trained; the scores stay as they are.
    """
    scores = list(chapter.score_trained(out, options))
    if not scores:
        sys.exit(f"nothing that can be scored is trained in {out}")
    (out / SCORES).unlink(missing_ok=True)
    for score in scores:
        append_score(out / SCORES, score)


# -- scores as lines -----------------------------------------------------------------------------


def append_score(path: Path, score: Score) -> None:
    with path.open("a") as file:
        file.write(json.dumps(score) + "\n")


def read_scores(path: Path) -> list[Score]:
    """Return all scores; none if there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def rounded(score: Score, digits: Mapping[str, int]) -> Score:
    """Return a score with so many digits of some figures, and of both ends of intervals."""

    def short(name: str, value: Any) -> Any:
        if name not in digits or value is None:
            return value
        if isinstance(value, (list, tuple)):
            return [round(end, digits[name]) for end in value]
        return round(value, digits[name])

    return {name: short(name, value) for name, value in score.items()}


# -- types of options ----------------------------------------------------------------------------


def words(allowed: Iterable[str]) -> Callable[[str], tuple[str, ...]]:
    """Make a parser of comma-separated words that rejects all but the allowed ones."""

    def parse(text: str) -> tuple[str, ...]:
        given = tuple(text.split(","))
        unknown = set(given) - set(allowed)
        if unknown:
            raise argparse.ArgumentTypeError(f"{unknown.pop()} is none of {', '.join(allowed)}")
        return given

    return parse


def numbers(kind: type) -> Callable[[str], tuple[float, ...]]:
    """Make a parser of comma-separated numbers."""
    return lambda text: tuple(kind(number) for number in text.split(","))


def at_least(fewest: int) -> Callable[[str], int]:
    """Make a parser of whole numbers that rejects smaller ones."""

    def parse(text: str) -> int:
        if int(text) < fewest:
            raise argparse.ArgumentTypeError(f"{text} is less than {fewest}")
        return int(text)

    return parse
