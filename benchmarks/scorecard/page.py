"""Writes docs/scorecard.md from what the two halves of the scorecard have left.

    python benchmarks/scorecard/page.py [--scores FILE]

Every number and every pass or miss on the page is computed; the sentences around them are in
page_texts.py.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import page_pairs
import page_real
import page_tables as tables
import page_texts as texts
from page_bars import CV, PERCENT, STEPS, Bar, bar_table, bars, misses
from page_picture import CV as PICTURE_CV
from page_picture import RANKS, STAGE, picture
from page_tables import FIXES, LEDGER, PHI, percent

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "scorecard"
PAGE = ROOT / "docs" / "scorecard.md"
SCORES = ROOT / ".stallscope" / "scorecard" / "scores.jsonl"
PAIRS = ROOT / ".stallscope" / "pairs" / "scores.jsonl"

Cell = dict[str, Any]


def page(
    simulated: dict[str, Any], real: dict[str, Any], pairs: dict[str, Any], witness: str | None
) -> str:
    """The whole page.

    Args:
        simulated: what simulated.py has written.
        real: what page_real.py has written; without runs if there are none.
        pairs: what page_pairs.py has written; without pairs if there are none.
        witness: tables of the witness, if it was asked.
    """
    found = [*bars(simulated), *page_real.real_bars(real["runs"])]
    power = [c for c in simulated.get("power", ()) if (c["steps"], c["phi"]) == (STEPS, PHI)]
    sections = [
        _introduction(simulated, real),
        page_pairs.section(pairs),
        _first(simulated, found, power),
        _misses(found),
        _power(power),
        _lengths(simulated.get("power", ())),
        _clean(simulated.get("clean", ())),
        _patterns(simulated.get("pattern", ())),
        _real(real),
        "" if witness is None else f"{texts.WITNESS}\n{witness}",
        _coverage(simulated.get("coverage", ())),
        _robustness(simulated.get("robustness", ())),
        texts.LIMITS,
        _made(simulated, real, pairs),
    ]
    return "\n\n".join(section.strip() for section in sections if section) + "\n"


def _introduction(simulated: dict[str, Any], real: dict[str, Any]) -> str:
    return texts.INTRODUCTION.format(simulated=simulated["runs"], real=len(real["runs"]))


def _first(simulated: dict[str, Any], found: Sequence[Bar], power: Sequence[Cell]) -> str:
    within = [cell for cell in power if cell["percent"] >= PERCENT and cell["cv"] <= CV]
    return texts.FIRST.format(
        percent=PERCENT,
        steps=STEPS,
        cv=CV * 100,
        bars=bar_table(found),
        summary=tables.summary(within, simulated.get("clean", ())),
        stage=STAGE,
        ranks=RANKS,
        picture_cv=PICTURE_CV * 100,
    )


def _misses(found: Sequence[Bar]) -> str:
    listed = misses(found)
    return f"{texts.MISSES}\n\n{listed}" if listed else ""


def _power(power: Sequence[Cell]) -> str:
    if not power:
        return ""
    kinds = {
        "one": [cell for cell in power if cell["who"] == "one"],
        "all": [cell for cell in power if cell["who"] == "all"],
        "compute": [c for c in power if (c["who"], c["stage"]) == ("rotating", "compute")],
        "rest": [c for c in power if c["who"] == "rotating" and c["stage"] != "compute"],
    }
    parts = [texts.POWER.strip()]
    for name, cells in kinds.items():
        parts += [texts.POWER_KINDS[name], tables.power_table(cells)]
    innocent = percent(tables.run_share(power, "innocent_named"))
    return "\n\n".join(
        [
            *parts,
            f"A healthy rank was named in {innocent} of these runs.",
            texts.SIZES.format(cv=CV * 100),
            tables.size_table([cell for cell in power if cell["cv"] <= CV]),
            texts.VERDICTS,
            tables.verdict_table(power),
        ]
    )


def _lengths(cells: Sequence[Cell]) -> str:
    alike = [
        cell
        for cell in cells
        if (cell["ranks"], cell["cv"]) == (8, 0.1)
        and cell["percent"] in (10, 30)
        and cell["stage"] in ("input", "compute")
    ]
    return f"{texts.LENGTHS}\n{tables.length_table(alike)}" if alike else ""


def _clean(cells: Sequence[Cell]) -> str:
    if not cells:
        return ""
    rotating = percent(tables.run_share(cells, "rotating_found"))
    return (
        f"{texts.CLEAN}\n{tables.clean_table(cells)}\n\n"
        f"Lateness that varies from step to step, on no rank in particular, was found in {rotating} "
        "of them."
    )


def _patterns(cells: Sequence[Cell]) -> str:
    return f"{texts.PATTERNS}\n{tables.pattern_table(cells)}" if cells else ""


def _real(real: dict[str, Any]) -> str:
    runs = real["runs"]
    if not runs:
        return texts.NOT_REAL
    cores = real["made_on"]["cores"]
    parts = [texts.REAL.format(cores=cores).strip()]
    for ranks in sorted({run["ranks"] for run in runs}):
        own = [run for run in runs if run["ranks"] == ranks]
        shared = f" that share {cores} cores" if ranks > cores else ""
        parts += [
            f"### {ranks} ranks{shared}",
            page_real.clean_sentence(own),
            page_real.fault_table(own),
            f"Cause and rank right by framework, stage and way, faults of {PERCENT} % or more:",
            page_real.stage_table(own),
        ]
    short = sum(run["misplaced"] or 0 for run in runs)
    parts.append(
        f"Steps whose injected stage is recorded as shorter than what was injected into it: {short}. "
        "There can be none if time is booked where it was spent."
    )
    return "\n\n".join(parts)


def _coverage(cells: Sequence[Cell]) -> str:
    if not cells:
        return ""
    parts = [
        texts.COVERAGE,
        tables.coverage_table(cells, LEDGER, "covered"),
        texts.GAINS,
        tables.coverage_table(cells, FIXES, "covered"),
        texts.GAIN_ERRORS,
        tables.coverage_table(cells, FIXES, "error"),
    ]
    return "\n\n".join(part.strip() for part in parts)


def _robustness(cells: Sequence[Cell]) -> str:
    return texts.ROBUSTNESS.format(table=tables.robustness_table(cells)) if cells else ""


def _made(simulated: dict[str, Any], real: dict[str, Any], pairs: dict[str, Any]) -> str:
    trained = {"real.json": real["runs"], "pairs.json": pairs["pairs"]}
    links = [f" and [{name}](scorecard/{name})" for name, found in trained.items() if found]
    return texts.MADE.format(
        simulated=simulated["runs"],
        real=len(real["runs"]),
        pairs=page_pairs.number(pairs["pairs"]),
        trained="".join(links),
        versions=", ".join(f"{name} {value}" for name, value in simulated["made_with"].items()),
    )


def _content(path: Path, without: dict[str, Any]) -> dict[str, Any]:
    """What a file holds, or what stands for it where there is none."""
    return dict(json.loads(path.read_text())) if path.exists() else without


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scores", type=Path, default=SCORES, help="what real.py has left")
    parser.add_argument("--pairs", type=Path, default=PAIRS, help="what pairs.py has left")
    options = parser.parse_args()
    scores = options.scores
    simulated = DOCS / "simulated.json"
    if not simulated.exists():
        raise SystemExit(f"there is no {simulated.relative_to(ROOT)}: run simulated.py first")
    content = json.loads(simulated.read_text())
    if scores.exists():
        page_real.bring_together(scores, DOCS / "real.json")
    if options.pairs.exists():
        page_pairs.bring_together(options.pairs, DOCS / "pairs.json")
    witness = DOCS / "witness.md"
    real = _content(DOCS / "real.json", {"runs": []})
    pairs = _content(DOCS / "pairs.json", {"pairs": []})
    said = witness.read_text() if witness.exists() else None
    (DOCS / "power.svg").write_text(picture(content.get("power", ())))
    PAGE.write_text(page(content, real, pairs, said))
    found = [*bars(content), *page_real.real_bars(real["runs"])]
    for bar in [*page_pairs.pair_bars(pairs["pairs"]), *found]:
        print(
            {True: "passed", False: "MISSED", None: "–"}[bar.passed], bar.what, bar.result, sep="; "
        )


if __name__ == "__main__":
    main()
