"""Write docs/scorecard.md and its detailed pages from the results of the scorecard's parts.

    python benchmarks/scorecard/page.py [--scores FILE] [--pairs FILE] [--hangs FILE]
        [--hosts FILE] [--frameworks FILE]

Every number and every pass or miss on the pages is computed; page_texts.py has the sentences.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import page_frameworks
import page_hangs
import page_hosts
import page_pairs
import page_real
import page_simulated
import page_texts as texts
from page_bars import CV, PERCENT, STEPS, Bar, bar_table, bars
from page_picture import CV as PICTURE_CV
from page_picture import RANKS, STAGE, picture
from page_tables import table

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "scorecard.md"
#: The detailed pages, and the results for them.
DOCS = ROOT / "docs" / "scorecard"


class Part(NamedTuple):
    """A part of the scorecard on real runs, and how it gets onto the pages."""

    #: The module of its page.
    module: ModuleType
    bars: Callable[[Sequence[dict[str, Any]]], list[Bar]]
    #: The name of its page.
    page: str
    #: The command line's option for its scores, and their usual folder.
    option: str
    folder: str
    #: The name of the list of runs in its results.
    runs: str = "runs"


#: By the names of the programs that make the scores, and of the results in ``DOCS``.
PARTS = {
    "pairs": Part(page_pairs, page_pairs.pair_bars, "fixes", "pairs", "pairs", "pairs"),
    "real": Part(page_real, page_real.real_bars, "ranks", "scores", "scorecard"),
    "frameworks": Part(
        page_frameworks, page_frameworks.framework_bars, "frameworks", "frameworks", "frameworks"
    ),
    "hangs": Part(page_hangs, page_hangs.hang_bars, "hangs", "hangs", "hangs"),
    "hosts": Part(page_hosts, page_hosts.host_bars, "hosts", "hosts", "hosts"),
}


def summary(
    simulated: dict[str, Any],
    real: dict[str, dict[str, Any]],
    bars_by_page: Mapping[str, Sequence[Bar]],
) -> str:
    """Return the first page: the main result of each page, all misses, and the limits.

    Args:
        simulated: the results of simulated.py.
        real: the results of ``PARTS``, by name.
        bars_by_page: the targets and results of each page.
    """
    return texts.SUMMARY.format(
        simulated=simulated["runs"],
        real=len(real["real"]["runs"]),
        pairs=page_pairs.number(real["pairs"]["pairs"]),
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
    for name, page_bars in bars_by_page.items():
        first = page_bars[0] if page_bars else Bar("", "", "not measured", None)
        passed = f"{sum(bar.passed is True for bar in page_bars)} of {len(page_bars)}"
        link = f"[{texts.GROUPS[name]}](scorecard/{name}.md)"
        rows.append((link, first.what, first.needed, first.result, passed))
    return table(("page", "first target", "asked", "found", "targets passed"), rows, texts=5)


def targets(simulated: dict[str, Any], bars_by_page: Mapping[str, Sequence[Bar]]) -> str:
    """Return the page of all targets and results."""
    return texts.TARGETS.format(
        percent=PERCENT,
        steps=STEPS,
        cv=CV * 100,
        bars=bar_table([bar for page_bars in bars_by_page.values() for bar in page_bars]),
        versions=", ".join(f"{name} {value}" for name, value in simulated["made_with"].items()),
    )


def results_of(name: str, scores: Path) -> dict[str, Any]:
    """Return a part's results, updated from its scores if there are any; without runs if it has none."""
    part, path = PARTS[name], DOCS / f"{name}.json"
    if scores.exists():
        part.module.bring_together(scores, path)
    return dict(json.loads(path.read_text())) if path.exists() else {part.runs: []}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, part in PARTS.items():
        usual = ROOT / ".stallscope" / part.folder / "scores.jsonl"
        parser.add_argument(
            f"--{part.option}", type=Path, default=usual, help=f"results of {name}.py"
        )
    options = parser.parse_args()
    path = DOCS / "simulated.json"
    if not path.exists():
        raise SystemExit(f"there is no {path.relative_to(ROOT)}: run simulated.py first")
    simulated = json.loads(path.read_text())
    real = {name: results_of(name, getattr(options, part.option)) for name, part in PARTS.items()}
    bars_by_page = {part.page: part.bars(real[name][part.runs]) for name, part in PARTS.items()}
    bars_by_page["simulated"] = bars(simulated)
    for name, part in PARTS.items():
        (DOCS / f"{part.page}.md").write_text(part.module.page(real[name]))
    (DOCS / "power.svg").write_text(picture(simulated.get("power", ())))
    (DOCS / "simulated.md").write_text(page_simulated.page(simulated))
    (DOCS / "targets.md").write_text(targets(simulated, bars_by_page))
    PAGE.write_text(summary(simulated, real, bars_by_page))
    words = {True: "passed", False: "MISSED", None: "–"}
    for bar in (bar for page_bars in bars_by_page.values() for bar in page_bars):
        print(words[bar.passed], bar.what, bar.result, sep="; ")


if __name__ == "__main__":
    main()
