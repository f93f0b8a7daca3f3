"""Score what the analysis finds of one slow rank: its stage, and the step time after the fix."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from cells import Cell
from frameworks_plan import NAMES_NO_RANK
from pairs_scoring import predict
from real import cpu_wait_ms, injected_ms, measured
from scoring import score

from stallscope.analysis import Analysis, analyse
from stallscope.parsers import read

#: A line of the scores: the cell, and what was found.
Score = dict[str, Any]

# The largest error of a rank's wait for data, as a share of the injected time.
_INPUT_WITHIN = 0.1
_PREDICTION = (
    *("fix", "faulty_ms", "predicted_ms", "predicted_ci95", "achieved_ms", "achieved_ci95"),
    "bound",
)


def score_cell(out: Path, cell: Cell) -> Score:
    """Score a trained cell.

    Raises:
        StallscopeError: if its logs, or those of its baseline, cannot be read.
    """
    analysis = analyse(_run(out, cell.name), _run(out, cell.baseline))
    line = {
        "name": cell.name,
        "framework": cell.framework,
        "ranks": cell.ranks,
        "repeat": cell.repeat,
        "stage": cell.stage,
        "rank": cell.rank,
        "percent": cell.percent,
        "verdict": analysis.bottleneck.kind,
        "named": sorted({rank for straggler in analysis.stragglers for rank in straggler.ranks}),
        "evidence": analysis.bottleneck.evidence,
        "step_ms": None if analysis.step is None else round(analysis.step.mean, 3),
        "cpu_wait_ms": round(max(cpu_wait_ms(out, cell)), 3),
    }
    if cell.framework in NAMES_NO_RANK:
        return {**line, **_without_stages(out, cell, analysis)}
    return {**line, **_with_stages(out, cell, analysis)}


def _run(out: Path, name: str) -> Any:
    (run,) = read(str(out / name / "logs"))
    return run


def _with_stages(out: Path, cell: Cell, analysis: Analysis) -> Score:
    scored = score(analysis, measured(out, cell, analysis), {})
    right = scored.rank_right and scored.cause_right is not False
    line = {
        "right": right,
        "found": scored.stage,
        "verdict_right": scored.verdict_right,
        "injected_ms": round(scored.injected.mean_ms, 3),
        "allreduce_ms": scored.allreduce_ms,
        "recovered": scored.recovered,
        "cv": round(max(scored.cv), 3),
    }
    if cell.stage is None:
        return line
    clean = Cell(cell.framework, cell.ranks, cell.repeat, cell.group)
    prediction = predict(analysis, analyse(_run(out, clean.name)), cell.stage, cell.who)
    known = asdict(prediction)
    gain = {name: known[name] for name in _PREDICTION}
    return {**line, **gain, "error": prediction.error, "held": prediction.held}


def _without_stages(out: Path, cell: Cell, analysis: Analysis) -> Score:
    """Score a run whose ranks cannot be compared: none may be named, and its input must be right."""
    line: Score = {"right": not analysis.bottleneck.ranks and not analysis.stragglers}
    if cell.rank is None:
        return line
    injected = float(injected_ms(out, cell)[1:, cell.rank].mean())
    of_clean, of_rank = (
        next(rank.input_ms for rank in each.ranks if rank.rank == cell.rank)
        for each in (analyse(_run(out, cell.baseline)), analysis)
    )
    line |= {"injected_ms": round(injected, 3)}
    if cell.stage == "input" and of_rank is not None and of_clean is not None:
        recovered = (of_rank - of_clean) / injected
        line |= {"recovered": recovered}
        line["right"] &= abs(recovered - 1) <= _INPUT_WITHIN
    return line
