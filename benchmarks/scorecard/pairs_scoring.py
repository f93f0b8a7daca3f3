"""Score the gains that an analysis predicts against what the fix really achieved.

Pure functions of analyses: of a faulty run, with or without a baseline, and of the fixed run.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from stallscope.analysis import Analysis
from stallscope.analysis.gains.what_if import WhatIf
from stallscope.text.gain_words import main_gain
from stallscope.words import Fix

Interval = tuple[float, float]
Score = dict[str, Any]


@dataclass(frozen=True)
class Prediction:
    """One analysis's prediction for one fix, and the result of the fix. Times in ms per step."""

    verdict: str
    #: The fix whose gain is scored; None if the analysis offers none for this fault.
    fix: str | None
    #: Whether this gain is first in the report.
    led: bool
    #: Why there is no prediction; None if there is one.
    reason: str | None
    faulty_ms: float
    achieved_ms: float
    predicted_ms: float | None = None
    predicted_ci95: Interval | None = None
    achieved_ci95: Interval | None = None
    #: Whether the prediction is an upper bound of the gain.
    bound: bool = False

    @property
    def error(self) -> float | None:
        """Return predicted minus achieved, as a fraction of the faulty run's step; None for a bound."""
        if self.predicted_ms is None or self.bound:
            return None
        return (self.predicted_ms - self.achieved_ms) / self.faulty_ms

    @property
    def held(self) -> bool | None:
        """Tell whether the prediction holds, within both intervals; None without an interval.

        A bound holds if the fixed run is not certainly faster than it.
        """
        achieved = self.achieved_ci95 or (self.achieved_ms, self.achieved_ms)
        if self.predicted_ms is not None and self.bound:
            return achieved[1] >= self.predicted_ms
        if self.predicted_ms is None or self.predicted_ci95 is None:
            return None
        low, high = self.predicted_ci95
        below = np.hypot(self.predicted_ms - low, achieved[1] - self.achieved_ms)
        above = np.hypot(high - self.predicted_ms, self.achieved_ms - achieved[0])
        return bool(self.predicted_ms - below <= self.achieved_ms <= self.predicted_ms + above)


def predict(faulty: Analysis, fixed: Analysis, stage: str, who: str) -> Prediction:
    """Find the prediction for removing a fault, and compare it with the fixed run.

    Args:
        faulty: the analysis of the faulty run.
        fixed: the analysis of the same run without the fault.
        stage: the stage that the fault is in.
        who: ``one`` for a fault on one of several ranks, ``all`` otherwise.

    Raises:
        ValueError: if one of the runs has no steps that can be timed.
    """
    if faulty.step is None or fixed.step is None:
        raise ValueError("a run has no steps that can be timed")
    main = main_gain(faulty)
    gain = answering_gain(faulty, stage, who)
    step = faulty.step.mean
    common = {
        "verdict": faulty.bottleneck.kind,
        "faulty_ms": step,
        "achieved_ms": fixed.step.mean,
        "achieved_ci95": fixed.step.ci95,
    }
    if gain is None:
        return Prediction(fix=None, led=False, reason=_no_gain(faulty, stage, who), **common)
    ci95 = gain.saved_ms.ci95
    return Prediction(
        fix=str(gain.fix),
        led=main is not None and main.what_if == gain,
        reason=None,
        predicted_ms=step - gain.saved_ms.value,
        predicted_ci95=None if ci95 is None else (step - ci95[1], step - ci95[0]),
        bound=bool(getattr(gain, "bound", False)),
        **common,
    )


def answering_gain(faulty: Analysis, stage: str, who: str) -> WhatIf | None:
    """Return the gain of the fix that removes a fault; None if the analysis offers none.

    The fix of a fault on one rank is that of the imbalance, of that rank, or of the stage. The gain
    that is first in the report is used if it is one of those.
    """
    offered = [gain for gain in faulty.what_if if _answers(gain.fix, stage, who)]
    main = main_gain(faulty)
    if main is not None and main.what_if in offered:
        return main.what_if
    return min(offered, key=lambda gain: _order(gain.fix), default=None)


def _answers(fix: Fix, stage: str, who: str) -> bool:
    return fix.kind == stage or (who == "one" and fix.kind in ("imbalance", "rank"))


def _order(fix: Fix) -> int:
    """Order fixes: all slow ranks before one of them, and a rank before a stage."""
    return {"imbalance": 0, "rank": 1}.get(fix.kind, 2)


def _no_gain(faulty: Analysis, stage: str, who: str) -> str:
    if faulty.bottleneck.kind == "insufficient_data":
        return "insufficient data"
    if stage == "compute" and who == "all":
        known = "against a baseline" if faulty.baseline is not None else "without a baseline"
        return f"no gain is offered for compute on all ranks {known}"
    return f"no gain is offered for {stage} on {who}"


# -- many of them --------------------------------------------------------------------------------


def line(prediction: Prediction, where: Mapping[str, Any]) -> Score:
    """Format one prediction as a line of scores; ``where`` describes its pair."""
    derived = {"error": prediction.error, "held": prediction.held}
    return {**where, **asdict(prediction), **derived}


@dataclass(frozen=True)
class Row:
    """Summary of one kind of predictions."""

    n: int
    #: Predictions that have an error: they exist and are no bounds.
    predicted: int
    #: Of the absolute errors.
    median: float | None
    p90: float | None
    #: Predictions with an interval, and the share of them that holds.
    with_interval: int
    held: float | None
    #: Predictions that are bounds, and the share of them that no fix exceeds.
    bounds: int
    bounds_held: float | None


def row(scores: Sequence[Score]) -> Row:
    """Summarize scores."""
    errors = [abs(score["error"]) for score in scores if score["error"] is not None]
    bounds = [score["held"] for score in scores if score["bound"]]
    held = [score["held"] for score in scores if score["held"] is not None and not score["bound"]]
    return Row(
        n=len(scores),
        predicted=len(errors),
        median=statistics.median(errors) if errors else None,
        p90=float(np.quantile(errors, 0.9)) if errors else None,
        with_interval=len(held),
        held=statistics.mean(held) if held else None,
        bounds=len(bounds),
        bounds_held=statistics.mean(bounds) if bounds else None,
    )


def rows(scores: Iterable[Score], by: Sequence[str]) -> dict[tuple[Any, ...], Row]:
    """Summarize scores that share the values of some fields, ordered by these."""
    cells: dict[tuple[Any, ...], list[Score]] = {}
    for score in scores:
        cells.setdefault(tuple(score[name] for name in by), []).append(score)
    return {cell: row(cells[cell]) for cell in sorted(cells)}


def repeat_differences(scores: Iterable[Score]) -> list[float]:
    """Return the differences of equal fixed runs, as fractions of the step of a faulty run.

    Runs are equal if they share a baseline and their loaders are alike. This is the error of a
    second training as a prediction.
    """
    alike: dict[tuple[str, bool], dict[str, Score]] = {}
    for score in scores:
        cell = alike.setdefault((score["baseline"], score["prefetched"]), {})
        cell[score["name"]] = score
    return [
        abs(first["achieved_ms"] - second["achieved_ms"]) / first["faulty_ms"]
        for cell in alike.values()
        for first, second in itertools.pairwise(cell.values())
    ]
