"""Write docs/scorecard/simulated.md: how often the analysis is right on simulated runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import page_tables as tables
import page_texts as texts
from page_bars import CV, PERCENT, STEPS, bars, misses
from page_tables import FIXES, LEDGER, PHI, percent

Cell = dict[str, Any]


def page(simulated: dict[str, Any]) -> str:
    """Return the whole page from the results of simulated.py."""
    power = [c for c in simulated.get("power", ()) if (c["steps"], c["phi"]) == (STEPS, PHI)]
    sections = [
        texts.SIMULATED.format(runs=simulated["runs"]),
        _comparison(simulated, power),
        _misses(simulated),
        _power(power),
        _lengths(simulated.get("power", ())),
        _clean(simulated.get("clean", ())),
        _patterns(simulated.get("pattern", ())),
        _coverage(simulated.get("coverage", ())),
        _robustness(simulated.get("robustness", ())),
    ]
    return "\n\n".join(section.strip() for section in sections if section) + "\n"


def _comparison(simulated: dict[str, Any], power: Sequence[Cell]) -> str:
    within = [cell for cell in power if cell["percent"] >= PERCENT and cell["cv"] <= CV]
    return texts.COMPARISON.format(
        percent=PERCENT,
        steps=STEPS,
        cv=CV * 100,
        summary=tables.summary(within, simulated.get("clean", ())),
    )


def _misses(simulated: dict[str, Any]) -> str:
    listed = misses(bars(simulated))
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
    if not cells:
        return ""
    page = f"{texts.PATTERNS}\n{tables.pattern_table(cells)}"
    right = tables.run_share(cells, "hidden_right")
    return page if right is None else f"{page}\n\n{texts.HIDDEN.format(right=percent(right))}"


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
