"""The scorecard: faults of known size, and how often the analysis is right about them.

    python benchmarks/scorecard/scorecard.py CHAPTER [OPTIONS]   train or simulate what is missing; score
    python benchmarks/scorecard/scorecard.py CHAPTER score OUT   score what is trained in OUT again
    python benchmarks/scorecard/scorecard.py rise                score how soon a rise is found
    python benchmarks/scorecard/scorecard.py page                write docs/scorecard.md and its pages

chapter.py is the driver of all chapters. X.py says what is planned and how it is trained, X_plan.py is
what trainings read in other environments, train_X_FRAMEWORK.py trains, and X_scores.py scores and has
the page; frameworks.py has all of its chapter but the trainings. Every number and every pass or miss on
the pages is computed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import rise
from causes import Causes
from chapter import DOCS, SCORES, Chapter, run
from frameworks import Frameworks
from hangs import Hangs
from hosts import Hosts
from launching import ROOT
from page_tables import CV, PERCENT, STEPS, Bar, bar_table, table
from pairs import Pairs
from pairs_scores import number
from picture import CV as PICTURE_CV
from picture import RANKS, STAGE, picture
from probes import Probes
from real import Real
from sharded import Sharded
from simulated import SimulatedRuns

PAGE = ROOT / "docs" / "scorecard.md"

#: In the order of the summary.
CHAPTERS: tuple[Chapter[Any], ...] = (
    Pairs(),
    Probes(),
    Causes(),
    Real(),
    Frameworks(),
    Sharded(),
    Hangs(),
    Hosts(),
    SimulatedRuns(),
)


def main() -> None:
    name, *arguments = sys.argv[1:] or ["--help"]
    commands = {"page": write_pages, "rise": rise.main}
    by_name = {chapter.name: chapter for chapter in CHAPTERS}
    if name in commands:
        commands[name](arguments)
    elif name in by_name:
        run(by_name[name], arguments)
    else:
        print(__doc__.strip(), f"chapters: {', '.join(by_name)}", sep="\n\n")
        sys.exit(0 if name in ("-h", "--help") else f"there is no chapter {name}")


# -- the pages -----------------------------------------------------------------------------------


def write_pages(arguments: Sequence[str]) -> None:
    """Write the scorecard's pages from the results of all chapters, updated from their scores."""
    parser = argparse.ArgumentParser(
        prog="scorecard.py page", description="Write the scorecard's pages."
    )
    for chapter in CHAPTERS:
        if chapter.keeps_scores:
            usual = chapter.usual_folder / SCORES
            parser.add_argument(
                f"--{chapter.name}", type=Path, default=usual, help=f"scores of {chapter.name}"
            )
    given = vars(parser.parse_args(arguments))
    results = {chapter.name: results_of(chapter, given.get(chapter.name)) for chapter in CHAPTERS}
    if not results["simulated"]["runs"]:
        raise SystemExit("there are no results of simulated runs: run scorecard.py simulated first")
    for name, text in pages(results).items():
        (PAGE.parent / name).write_text(text)
    words = {True: "passed", False: "MISSED", None: "–"}
    for bar in (bar for page_bars in bars_of(results).values() for bar in page_bars):
        print(words[bar.passed], bar.what, bar.result, sep="; ")


def pages(results: Mapping[str, dict[str, Any]]) -> dict[str, str]:
    """Return the text of each file of the pages, from the chapters' results."""
    simulated, bars_by_page = results["simulated"], bars_of(results)
    sections = {chapter.name: chapter.section for chapter in CHAPTERS}
    return {
        **{
            f"scorecard/{section.page}.md": section.text(results[name])
            for name, section in sections.items()
        },
        "scorecard/power.svg": picture(simulated.get("power", ())),
        "scorecard/targets.md": targets(simulated, bars_by_page),
        PAGE.name: summary(results, bars_by_page),
    }


def bars_of(results: Mapping[str, dict[str, Any]]) -> dict[str, list[Bar]]:
    """Return the targets and results of each page."""
    sections = {chapter.name: chapter.section for chapter in CHAPTERS}
    return {section.page: section.bars(results[name]) for name, section in sections.items()}


def results_of(chapter: Chapter[Any], scores: Path | None = None) -> dict[str, Any]:
    """Return a chapter's results, updated from its scores if there are any."""
    section, path = chapter.section, DOCS / f"{chapter.name}.json"
    if scores is not None and scores.exists():
        section.bring_together(scores, path)
    return dict(json.loads(path.read_text())) if path.exists() else {section.runs: []}


def summary(
    results: Mapping[str, dict[str, Any]], bars_by_page: Mapping[str, Sequence[Bar]]
) -> str:
    """Return the first page: the main result of each page, all misses, and the limits.

    Args:
        results: by chapter.
        bars_by_page: the targets and results of each page.
    """
    return _SUMMARY.format(
        simulated=results["simulated"]["runs"],
        real=len(results["real"]["runs"]),
        pairs=number(results["pairs"]["pairs"]),
        stage=STAGE,
        ranks=RANKS,
        picture_cv=PICTURE_CV * 100,
        percent=PERCENT,
        steps=STEPS,
        cv=CV * 100,
        groups=_groups(bars_by_page),
        missed=bar_table(
            [bar for page_bars in bars_by_page.values() for bar in page_bars if bar.passed is False]
        ),
    )


def _groups(bars_by_page: Mapping[str, Sequence[Bar]]) -> str:
    """Return a table of the pages: their first target, and how many of all targets passed."""
    rows = []
    for section in (chapter.section for chapter in CHAPTERS):
        page_bars = bars_by_page[section.page]
        first = page_bars[0] if page_bars else Bar("", "", "not measured", None)
        passed = f"{sum(bar.passed is True for bar in page_bars)} of {len(page_bars)}"
        link = f"[{section.title}](scorecard/{section.page}.md)"
        rows.append((link, first.what, first.needed, first.result, passed))
    return table(("page", "first target", "asked", "found", "targets passed"), rows, texts=5)


def targets(simulated: dict[str, Any], bars_by_page: Mapping[str, Sequence[Bar]]) -> str:
    """Return the page of all targets and results."""
    return _TARGETS.format(
        percent=PERCENT,
        steps=STEPS,
        cv=CV * 100,
        bars=bar_table([bar for page_bars in bars_by_page.values() for bar in page_bars]),
        versions=", ".join(f"{name} {value}" for name, value in simulated["made_with"].items()),
    )


# -- sentences; they contain no results ----------------------------------------------------------

_SUMMARY = """\
# Scorecard: how often attribution is right

This page compares the analysis with the truth. Runs get faults of known size: {pairs:,} pairs of
trainings with a fault and without it, {real:,} trainings on real Horovod ranks, and {simulated:,}
simulated runs.

![Runs with the cause and the rank right, by size of the fault](scorecard/power.svg)

Simulated faults in {stage} on {ranks} ranks, noise {picture_cv:g} %. The other two lines are
[readings of separate logs](scorecard/simulated.md#comparison-with-separate-logs).

{groups}

Faults of {percent} % of the step or more. Simulated runs have {steps} steps and noise up to {cv:g} %.
[All targets](scorecard/targets.md) have a page, and so have four more checks: [an independent
witness](scorecard/witness.md), the Horovod Timeline; [late timestamps](scorecard/late-timestamps.md)
of the recorder; how soon [a rise of the step time](scorecard/rise.md) is found; and
[projections](scorecard/projections.md) to more ranks.

## Missed targets

{missed}

Each page gives the reasons of its misses.

## Limits

- Simulated noise is lognormal, has one correlation for all stages, and is independent between ranks.
  Real noise has more shapes. The real half is small: few ranks, one machine, no GPU, no fast network.
- A rank that is late only for an early bucket of gradients looks like a slow network. No rank is named
  for it, and the time counts as allreduce.
- Baselines are of the same job. Comparisons with another batch size, model or machine are not scored;
  the report lists such differences.
"""

_TARGETS = """\
# Scorecard: all targets

This page lists every target of the [scorecard](../scorecard.md) and its result. Faults of {percent} %
of the step or more. Simulated runs have {steps} steps and noise up to {cv:g} %.

{bars}

## How to make these pages

`make scorecard` trains and simulates everything (hours of one core), then writes these pages. It
continues where it was interrupted, and repeats only what a change of the code affects. `make
scorecard ARGS=--quick` prints a small simulated grid in a few minutes and leaves the pages unchanged.
The JSON files here have the figures of all cells. Seeds are fixed: the simulated half is the same on
every machine.

Made with {versions}.
"""

if __name__ == "__main__":
    main()
