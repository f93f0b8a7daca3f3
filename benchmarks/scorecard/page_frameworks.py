"""Write docs/scorecard/frameworks.md: what the analysis finds of one slow rank with each recorder.

docs/scorecard/frameworks.json has all scores: a line per run.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import page_texts as texts
from frameworks_plan import FRAMEWORKS, NAMES_NO_RANK
from page_bars import CLEARLY, FALSE_ALARMS, RIGHT, Bar, bar_table
from page_tables import NOTHING, percent, ratio, table
from score_lines import read_scores, write_together

Run = dict[str, Any]

_STAGES = {"input": "input", "compute": "backward"}
_ROUNDED = {
    "allreduce_ms": 3,
    "faulty_ms": 3,
    "predicted_ms": 3,
    "achieved_ms": 3,
    "cv": 3,
    "recovered": 4,
    "error": 4,
}
_INTERVALS = ("predicted_ci95", "achieved_ci95")


def bring_together(scores: Path, out: Path) -> None:
    """Write the page's data from all scores."""
    write_together(out, "runs", map(_kept, read_scores(scores)))


def _kept(run: Run) -> Run:
    kept = dict(run)
    for name, digits in _ROUNDED.items():
        if kept.get(name) is not None:
            kept[name] = round(kept[name], digits)
    for name in _INTERVALS:
        if kept.get(name) is not None:
            kept[name] = [round(edge, 3) for edge in kept[name]]
    return kept


def framework_bars(runs: Sequence[Run]) -> list[Bar]:
    """Return the bars on faults, false alarms, and on JAX, where no rank is named."""
    if not runs:
        return []
    named = [run for run in runs if run["framework"] not in NAMES_NO_RANK]
    unnamed = [run for run in runs if run["framework"] in NAMES_NO_RANK]
    slow, clean = _slow(named), [run for run in runs if run["stage"] is None]
    return [
        _right("Each recorder, one slow rank: cause and rank right", slow),
        Bar(
            "Each recorder, no fault: a rank named",
            f"≤ {FALSE_ALARMS * 100:g} % of runs",
            f"{sum(bool(run['named']) for run in clean)} of {len(clean)} runs",
            sum(bool(run["named"]) for run in clean) <= FALSE_ALARMS * len(clean),
            tuple(_miss(run) for run in clean if run["named"]),
        ),
        _right("JAX, one slow rank: no rank named, and each rank's input right", _slow(unnamed)),
    ]


def _right(what: str, runs: Sequence[Run]) -> Bar:
    if not runs:
        return Bar(what, f"≥ {RIGHT * 100:g} % of runs", "not measured", None)
    right = sum(run["right"] for run in runs)
    return Bar(
        what,
        f"≥ {RIGHT * 100:g} % of runs",
        f"{right} of {len(runs)} runs",
        right >= RIGHT * len(runs),
        tuple(_miss(run) for run in runs if not run["right"]),
    )


def page(content: dict[str, Any]) -> str:
    """Return the whole page from the data of ``bring_together``."""
    runs = content["runs"]
    if not runs:
        return texts.NO_FRAMEWORKS
    bars = framework_bars(runs)
    missed = [f"- {miss}" for bar in bars for miss in bar.misses]
    wrong = [run for run in _slow(runs) if run["right"] and _verdict_right(run) is False]
    parts = [
        texts.FRAMEWORKS.format(runs=len(runs), cores=content["made_on"]["cores"]),
        bar_table(bars),
        "## By recorder",
        _table(runs),
        texts.FRAMEWORK_COLUMNS.format(drift=_drift(runs)),
        texts.FRAMEWORK_GAINS,
        _gains(runs),
    ]
    if missed:
        parts += ["## Misses", "\n".join(missed)]
    if wrong:
        parts += ["## Other verdicts", texts.OTHER_VERDICTS, "\n".join(map(_verdict, wrong))]
    return "\n\n".join(part.strip() for part in [*parts, texts.HOW_FRAMEWORKS]) + "\n"


def _slow(runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if run["stage"] is not None]


def _table(runs: Sequence[Run]) -> str:
    rows = []
    for name, title in FRAMEWORKS.items():
        for ranks in sorted({run["ranks"] for run in runs if run["framework"] == name}):
            group = [run for run in runs if (run["framework"], run["ranks"]) == (name, ranks)]
            rows.append((f"{title}, {ranks} ranks", *_cells(group)))
    head = ("clean: a rank named", *(f"slow {stage}: right" for stage in _STAGES.values()))
    return table(("", *head, "size, found/true", "verdict right"), rows)


def _cells(runs: Sequence[Run]) -> Iterator[str]:
    clean = [run for run in runs if run["stage"] is None]
    yield f"{sum(bool(run['named']) for run in clean)} of {len(clean)}"
    for stage in _STAGES:
        faulty = [run for run in runs if run["stage"] == stage]
        yield f"{sum(run['right'] for run in faulty)} of {len(faulty)}"
    sizes = [run["recovered"] for run in runs if run.get("recovered") is not None]
    yield ratio(statistics.median(sizes)) if sizes else NOTHING
    known = [right for run in runs if (right := _verdict_right(run)) is not None]
    yield f"{sum(known)} of {len(known)}" if known else NOTHING


def _verdict_right(run: Run) -> bool | None:
    """Tell whether a slow rank is the verdict; None if another cause costs about as much."""
    if run["stage"] is None or run.get("verdict_right") is None:
        return None
    if run["injected_ms"] < CLEARLY * (run["allreduce_ms"] or 0.0):
        return None
    return bool(run["verdict_right"])


def _gains(runs: Sequence[Run]) -> str:
    rows = []
    for name, title in FRAMEWORKS.items():
        group = [run for run in runs if run["framework"] == name and run.get("error") is not None]
        if group:
            held = [run["held"] for run in group if run["held"] is not None]
            errors = [abs(run["error"]) for run in group]
            rows.append(
                (
                    title,
                    str(len(group)),
                    percent(statistics.median(errors)),
                    percent(float(np.quantile(errors, 0.9))),
                    f"{sum(held)} of {len(held)}" if held else NOTHING,
                    percent(max(_drifts(run for run in runs if run["framework"] == name))),
                )
            )
    head = ("runs", "median error", "90th percentile", "holds", "clean runs differ, at most")
    return table(("", *head), rows)


def _drift(runs: Sequence[Run]) -> str:
    """Write by how much the two clean runs of a launch differ."""
    drifts = _drifts(runs)
    middle, most = percent(statistics.median(drifts), 0), percent(max(drifts), 0)
    return f"{middle} in the median, {most} at most"


def _drifts(runs: Iterable[Run]) -> list[float]:
    """Return by how much the two clean runs of each launch differ, as shares of the shorter step."""
    groups: dict[tuple[Any, ...], list[float]] = {}
    for run in runs:
        if run["stage"] is None and run["step_ms"] is not None:
            key = (run["framework"], run["ranks"], run["repeat"])
            groups.setdefault(key, []).append(run["step_ms"])
    return [max(times) / min(times) - 1 for times in groups.values() if len(times) > 1] or [0.0]


def _case(run: Run) -> str:
    title = f"{FRAMEWORKS[run['framework']]}, {run['ranks']} ranks"
    if run["stage"] is None:
        return f"{title}, no fault"
    return f"{title}, {_STAGES[run['stage']]} of rank {run['rank']} +{run['percent']:g} %"


def _miss(run: Run) -> str:
    named = f"ranks {run['named']}" if run["named"] else "no rank"
    stage = f", {run['found']}" if run.get("found") else ""
    size = "" if run.get("recovered") is None else f", {run['recovered']:.2f} times its size"
    cores = f"A rank waited {run['cpu_wait_ms']:.0f} ms of each {run['step_ms']:.0f} ms step for a core."
    return f"{_case(run)}. Found: {named}{stage}{size}. {run['evidence']} {cores}"


def _verdict(run: Run) -> str:
    return f"- {_case(run)}: {run['evidence']}"
