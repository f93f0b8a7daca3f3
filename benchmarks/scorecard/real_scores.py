"""Score trainings on real ranks by what was injected, and write docs/scorecard/ranks.md.

docs/scorecard/real.json has the scores of all real runs: a line per run.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from cells import Cell, truth_path
from chapter import Score, Section
from page_tables import (
    CLEARLY,
    CV,
    FALSE_ALARMS,
    MISSES,
    NOTHING,
    PERCENT,
    RIGHT,
    WHO,
    Bar,
    misses,
    percent,
    ratio,
    table,
    too_many_alarms,
)
from scoring import OUTCOMES, Injected, score, score_of

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.steps.alignment import align
from stallscope.parsers import read
from stallscope.run import Run

# The largest error of two clocks that are read one after the other.
_RESOLUTION_MS = 0.1


def score_cell(out: Path, cell: Cell) -> Score:
    """Score a trained cell.

    Raises:
        StallscopeError: if its logs, or those of its baseline, cannot be read.
    """
    run, baseline = (read(str(out / name / "logs"))[0] for name in (cell.name, cell.baseline))
    analysis = analyse(run, baseline)
    where = {
        "source": "real",
        "name": cell.name,
        "framework": cell.framework,
        "ranks": cell.ranks,
        "percent": cell.percent,
        "way": cell.way,
        "repeat": cell.repeat,
        "misplaced": misplaced(out, cell, run),
        "cpu_wait_ms": cpu_wait_ms(out, cell),
    }
    return asdict(score(analysis, measured(out, cell, analysis), where))


def measured(out: Path, cell: Cell, analysis: Analysis) -> Injected:
    """Return what was injected into the analysed steps."""
    assert analysis.steady is not None
    assert analysis.baseline is not None
    assert analysis.baseline.step is not None
    injected = injected_ms(out, cell)[analysis.steady.steps]
    per_step = {
        "none": np.zeros(1),
        "one": injected[:, cell.rank or 0],
        "all": injected.mean(axis=1),
        "rotating": injected.max(axis=1),
    }
    return Injected(
        stage=cell.stage,
        who=cell.who,
        rank=cell.rank,
        mean_ms=float(per_step[cell.who].mean()),
        step_ms=analysis.baseline.step.mean,
    )


def _truth(out: Path, cell: Cell) -> list[dict[str, Any]]:
    """Read every rank's truth about itself."""
    paths = [truth_path(out / cell.name, rank) for rank in range(cell.ranks)]
    return [json.loads(path.read_text()) for path in paths]


def injected_ms(out: Path, cell: Cell) -> npt.NDArray[np.float64]:
    """Return each rank's measured injection (steps × ranks)."""
    return np.array([rank_truth["injected_ns"] for rank_truth in _truth(out, cell)]).T / 1e6


def cpu_wait_ms(out: Path, cell: Cell) -> list[float]:
    """Return, per rank, how long per step its threads waited for a core.

    If it differs between ranks, something else than the fault slowed one of them down.
    """
    truth = _truth(out, cell)
    return [
        rank_truth["cpu_wait_ns"] / len(rank_truth["injected_ns"]) / 1e6 for rank_truth in truth
    ]


def misplaced(out: Path, cell: Cell, run: Run) -> int:
    """Count steps of ranks whose injected stage is recorded as shorter than the injection.

    If the recorder assigns time correctly there are none, however noisy the machine is.
    """
    if cell.stage is None:
        return 0
    aligned = align(run, 0)
    stage = {
        "input": (aligned.data - aligned.begin)[1:],
        "compute": (aligned.ready - aligned.data)[1:],
        "other": aligned.begin[1:] - aligned.reduced[:-1],
    }[cell.stage]
    injected = injected_ms(out, cell)[aligned.steps[1:]]
    return int((stage / 1e6 < injected - _RESOLUTION_MS).sum())


# -- the page ------------------------------------------------------------------------------------

_KEPT = ("framework", "ranks", "percent", "way", "repeat", "misplaced")


def _kept(content: Score) -> Score:
    scored = score_of(content)
    guilty = {scored.injected.rank} if scored.injected.who == "one" else set()
    return {
        **{name: scored.cell.get(name) for name in _KEPT},
        "who": scored.injected.who,
        "injected_stage": scored.injected.stage,
        "injected_ms": round(scored.injected.mean_ms, 3),
        "step_ms": round(scored.injected.step_ms, 3),
        **{name: getattr(scored, name) for name in OUTCOMES},
        "innocent_named": bool({*scored.named} - guilty),
        "recovered": None if scored.recovered is None else round(scored.recovered, 4),
        "allreduce_ms": None if scored.allreduce_ms is None else round(scored.allreduce_ms, 3),
        "cv": round(max(scored.cv), 3) if scored.cv else None,
    }


def page(real: dict[str, Any]) -> str:
    """Return the whole page from the results in ``DOCS``."""
    runs = real["runs"]
    if not runs:
        return _NOT_REAL
    cores = real["made_on"]["cores"]
    parts = [_REAL.format(cores=cores)]
    for ranks in sorted({run["ranks"] for run in runs}):
        group = [run for run in runs if run["ranks"] == ranks]
        shared = f" that share {cores} cores" if ranks > cores else ""
        parts += [
            f"## {ranks} ranks{shared}",
            clean_sentence(group),
            fault_table(group),
            f"Cause and rank right by framework, stage and way, faults of {PERCENT} % or more:",
            stage_table(group),
        ]
    short = sum(run["misplaced"] or 0 for run in runs)
    parts.append(
        f"Steps whose injected stage is recorded as shorter than what was injected into it: {short}. "
        "There must be none."
    )
    listed = misses(real_bars(runs))
    parts += [f"{MISSES}\n\n{listed}"] if listed else []
    return "\n\n".join(part.strip() for part in parts) + "\n"


def share(runs: Sequence[Score], right: Callable[[Score], bool | float | None]) -> float | None:
    """Return the share of runs that are right, among those where the question applies."""
    known = [float(value) for run in runs if (value := right(run)) is not None]
    return statistics.mean(known) if known else None


def cause_and_rank(run: Score) -> bool:
    return run["cause_right"] is not False and bool(run["rank_right"])


def latest(run: Score) -> bool:
    return run["latest_cause_right"] is not False and bool(run["latest_rank_right"])


def verdict(run: Score) -> bool | None:
    """Return whether the verdict is right; None if another cause costs about as much."""
    if run["allreduce_ms"] is None or run["injected_ms"] < CLEARLY * run["allreduce_ms"]:
        return None
    return bool(run["verdict_right"])


def fault_table(runs: Sequence[Score]) -> str:
    """Tabulate by the ranks that have the fault and by its size."""
    rows = []
    for who, title in WHO.items():
        for size in sorted({run["percent"] for run in runs if run["who"] == who}):
            group = [run for run in runs if (run["who"], run["percent"]) == (who, size)]
            recovered = [run["recovered"] for run in group if run["recovered"] is not None]
            rows.append(
                (
                    f"{title}, {size:g} %",
                    str(len(group)),
                    percent(share(group, cause_and_rank), 0),
                    percent(share(group, lambda run: run["innocent_named"]), 0),
                    percent(share(group, verdict), 0),
                    ratio(statistics.median(recovered) if recovered else None),
                    percent(share(group, lambda run: run["own_log_right"]), 0),
                    percent(share(group, latest), 0),
                )
            )
    head = (
        "fault",
        "runs",
        "cause and rank right",
        "another rank named",
        "verdict right",
        "size, found/true",
        "own log (cause only)",
        "latest arrival",
    )
    return table(head, rows)


def stage_table(runs: Sequence[Score]) -> str:
    """Tabulate by framework, stage and way of injecting."""
    large = [run for run in runs if _large(run)]
    rows = []
    keys = dict.fromkeys((run["framework"], run["injected_stage"], run["way"]) for run in large)
    for key in sorted(keys):
        group = [
            run for run in large if (run["framework"], run["injected_stage"], run["way"]) == key
        ]
        by_who = [share([run for run in group if run["who"] == who], cause_and_rank) for who in WHO]
        rows.append(
            (", ".join(key), str(len(group)), *[percent(right_share, 0) for right_share in by_who])
        )
    return table(("", "runs", *WHO.values()), rows)


def _large(run: Score) -> bool:
    return bool(run["who"] != "none" and run["percent"] >= PERCENT)


def clean_sentence(runs: Sequence[Score]) -> str:
    """Describe false alarms, and how noisy the runs were."""
    clean = [run for run in runs if run["who"] == "none"]
    alarms = sum(run["innocent_named"] for run in clean)
    by_latest = sum(not run["latest_rank_right"] for run in clean)
    return (
        f"In {alarms} of {len(clean)} clean runs a rank was named; the latest-arrival rule named "
        f"one in {by_latest}. Noise, as the coefficient of variation of the noisiest rank's own "
        f"step times in the clean run: {_noise(runs)}."
    )


def _noise(runs: Sequence[Score]) -> str:
    cvs = sorted(run["cv"] for run in runs if run["cv"] is not None)
    if not cvs:
        return NOTHING
    return f"{cvs[0] * 100:.0f} to {cvs[-1] * 100:.0f} %, median {_median_cv(runs) * 100:.0f} %"


def _median_cv(runs: Sequence[Score]) -> float:
    return statistics.median([run["cv"] for run in runs if run["cv"] is not None] or [0.0])


def real_bars(runs: Sequence[Score]) -> list[Bar]:
    """Return the bars on faults and false alarms, on real runs with any noise."""
    return [
        bar
        for ranks in sorted({run["ranks"] for run in runs})
        for bar in _bars_of(ranks, [run for run in runs if run["ranks"] == ranks])
    ]


def _bars_of(ranks: int, runs: Sequence[Score]) -> list[Bar]:
    large, clean = [run for run in runs if _large(run)], [r for r in runs if r["who"] == "none"]
    right = share(large, cause_and_rank)
    alarms = sum(run["innocent_named"] for run in clean)
    why = "no reason is known; this is a defect."
    if _median_cv(runs) > CV:
        why = (
            f"these ranks' own step times vary by {_median_cv(runs) * 100:.0f} % in the median run, but "
            f"the target is for noise up to {CV * 100:g} %: the machine itself makes ranks late."
        )
    bars = []
    if right is not None:
        bars.append(
            Bar(
                f"{ranks} real ranks, any fault: cause and rank right",
                f"≥ {RIGHT * 100:g} % of runs",
                f"{percent(right)} of {len(large)} runs",
                right >= RIGHT,
                () if right >= RIGHT else (_capital(why),),
            )
        )
    if clean:
        passed = not too_many_alarms(alarms, len(clean))
        bars.append(
            Bar(
                f"{ranks} real ranks, no fault: a rank named",
                f"≤ {FALSE_ALARMS * 100:g} % of runs",
                f"{percent(alarms / len(clean))} of {len(clean)} runs",
                passed,
                () if passed else (_capital(why),),
            )
        )
    return bars


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


# -- sentences; they contain no results ----------------------------------------------------------

_REAL = """\
# Scorecard: real Horovod ranks

This page shows how often the analysis is right on TensorFlow-Keras and PyTorch under `horovodrun`
over Gloo, on {cores} cores. A rank sleeps or spins in one of its stages and measures how long; that
is the truth. The baseline is the same training on synthetic data, minutes before. The noise comes
from the machine. The [summary](../scorecard.md) has the targets.
"""

_NOT_REAL = """\
# Scorecard: real Horovod ranks

Not trained yet. `make scorecard` trains them where there is a training environment.
"""

SECTION = Section("ranks", "Real ranks", lambda content: real_bars(content["runs"]), page, _kept)
