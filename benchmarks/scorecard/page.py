"""Write docs/scorecard.md and its detailed pages from the results of the scorecard's parts.

    python benchmarks/scorecard/page.py [--scores FILE] [--pairs FILE] [--hangs FILE]
        [--hosts FILE] [--frameworks FILE]

Every number and every pass or miss on the pages is computed; page_texts.py has the sentences.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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
SCORES = ROOT / ".stallscope" / "scorecard" / "scores.jsonl"
PAIRS = ROOT / ".stallscope" / "pairs" / "scores.jsonl"
HANGS = ROOT / ".stallscope" / "hangs" / "scores.jsonl"
HOSTS = ROOT / ".stallscope" / "hosts" / "scores.jsonl"
FRAMEWORKS = ROOT / ".stallscope" / "frameworks" / "scores.jsonl"


def summary(
    simulated: dict[str, Any],
    real: dict[str, Any],
    pairs: dict[str, Any],
    found: Mapping[str, Sequence[Bar]],
) -> str:
    """Return the first page: the main result of each page, all misses, and the limits.

    Args:
        simulated: results of simulated.py.
        real: results of page_real.py; without runs if there are none.
        pairs: results of page_pairs.py; without pairs if there are none.
        found: the targets and results of each page.
    """
    return texts.SUMMARY.format(
        simulated=simulated["runs"],
        real=len(real["runs"]),
        pairs=page_pairs.number(pairs["pairs"]),
        stage=STAGE,
        ranks=RANKS,
        picture_cv=PICTURE_CV * 100,
        percent=PERCENT,
        steps=STEPS,
        cv=CV * 100,
        groups=_groups(found),
        missed=bar_table([bar for own in found.values() for bar in own if bar.passed is False]),
    )


def _groups(found: Mapping[str, Sequence[Bar]]) -> str:
    """Return a table of the pages: their first target, and how many of all targets passed."""
    rows = []
    for name, own in found.items():
        first = own[0] if own else Bar("", "", "not measured", None)
        passed = f"{sum(bar.passed is True for bar in own)} of {len(own)}"
        link = f"[{texts.GROUPS[name]}](scorecard/{name}.md)"
        rows.append((link, first.what, first.needed, first.result, passed))
    return table(("page", "first target", "asked", "found", "targets passed"), rows, texts=5)


def targets(simulated: dict[str, Any], found: Mapping[str, Sequence[Bar]]) -> str:
    """Return the page of all targets and results."""
    return texts.TARGETS.format(
        percent=PERCENT,
        steps=STEPS,
        cv=CV * 100,
        bars=bar_table([bar for own in found.values() for bar in own]),
        versions=", ".join(f"{name} {value}" for name, value in simulated["made_with"].items()),
    )


def _content(path: Path, without: dict[str, Any]) -> dict[str, Any]:
    """Return the content of a file, or a substitute where there is none."""
    return dict(json.loads(path.read_text())) if path.exists() else without


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scores", type=Path, default=SCORES, help="results of real.py")
    parser.add_argument("--pairs", type=Path, default=PAIRS, help="results of pairs.py")
    parser.add_argument("--hangs", type=Path, default=HANGS, help="results of hangs.py")
    parser.add_argument("--hosts", type=Path, default=HOSTS, help="results of hosts.py")
    parser.add_argument(
        "--frameworks", type=Path, default=FRAMEWORKS, help="results of frameworks.py"
    )
    options = parser.parse_args()
    path = DOCS / "simulated.json"
    if not path.exists():
        raise SystemExit(f"there is no {path.relative_to(ROOT)}: run simulated.py first")
    simulated = json.loads(path.read_text())
    if options.scores.exists():
        page_real.bring_together(options.scores, DOCS / "real.json")
    if options.pairs.exists():
        page_pairs.bring_together(options.pairs, DOCS / "pairs.json")
    if options.hangs.exists():
        page_hangs.bring_together(options.hangs, DOCS / "hangs.json")
    if options.hosts.exists():
        page_hosts.bring_together(options.hosts, DOCS / "hosts.json")
    if options.frameworks.exists():
        page_frameworks.bring_together(options.frameworks, DOCS / "frameworks.json")
    frameworks = _content(DOCS / "frameworks.json", {"runs": []})
    hangs = _content(DOCS / "hangs.json", {"runs": []})
    hosts = _content(DOCS / "hosts.json", {"runs": []})
    real = _content(DOCS / "real.json", {"runs": []})
    pairs = _content(DOCS / "pairs.json", {"pairs": []})
    found: dict[str, Sequence[Bar]] = {
        "fixes": page_pairs.pair_bars(pairs["pairs"]),
        "ranks": page_real.real_bars(real["runs"]),
        "frameworks": page_frameworks.framework_bars(frameworks["runs"]),
        "hangs": page_hangs.hang_bars(hangs["runs"]),
        "hosts": page_hosts.host_bars(hosts["runs"]),
        "simulated": bars(simulated),
    }
    (DOCS / "power.svg").write_text(picture(simulated.get("power", ())))
    (DOCS / "fixes.md").write_text(page_pairs.page(pairs))
    (DOCS / "frameworks.md").write_text(page_frameworks.page(frameworks))
    (DOCS / "hangs.md").write_text(page_hangs.page(hangs))
    (DOCS / "hosts.md").write_text(page_hosts.page(hosts))
    (DOCS / "ranks.md").write_text(page_real.page(real))
    (DOCS / "simulated.md").write_text(page_simulated.page(simulated))
    (DOCS / "targets.md").write_text(targets(simulated, found))
    PAGE.write_text(summary(simulated, real, pairs, found))
    for bar in (bar for own in found.values() for bar in own):
        print(
            {True: "passed", False: "MISSED", None: "–"}[bar.passed], bar.what, bar.result, sep="; "
        )


if __name__ == "__main__":
    main()
