"""Score the gains that an analysis predicts against what the fix really achieved.

Predictions are of a faulty run, with or without a baseline, and compared with the fixed run.
docs/scorecard/fixes.md is written from these scores; docs/scorecard/pairs.json has a line per pair and
mode.
"""

from __future__ import annotations

import itertools
import re
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from chapter import Score, Section, rounded
from page_tables import NOTHING, Bar, bar_table, counted, error_bar, misses, percent, table

from stallscope.analysis import Analysis
from stallscope.analysis.gains.what_if import WhatIf
from stallscope.text.gain_words import main_gain
from stallscope.words import Fix

Interval = tuple[float, float]


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
    #: Whether an input probe has measured it in the faulty run.
    measured: bool = False

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
        bound=gain.bound,
        measured=gain.measured,
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


# -- the page ------------------------------------------------------------------------------------

#: Targets: errors as shares of the faulty step, and the shares of predictions and of bounds that hold.
MEDIAN, P90, HELD, BOUND_HELD = 0.02, 0.05, 0.90, 0.97

MODES = {"baseline": "with a baseline", "alone": "without a baseline"}
_MOST_MISSES = 5
_HALVES = ("calibration", "check")
_FRAMEWORKS = {"keras": "Keras + Horovod", "torch": "PyTorch + Horovod", "ddp": "DDP"}

_KEPT = (
    *("name", "mode", "framework", "ranks", "repeat", "stage", "prefetched", "way", "who"),
    *("percent", "rank", "half", "baseline", "verdict", "fix", "led", "reason", "bound", "held"),
)
_DIGITS = {
    **dict.fromkeys(("faulty_ms", "predicted_ms", "achieved_ms", "baseline_ms"), 3),
    "error": 5,
    **dict.fromkeys(("predicted_ci95", "achieved_ci95"), 3),
}

_TEXT = """\
# Scorecard: predicted gains against real fixes

This page compares predicted gains with real fixes, in {pairs} pairs of real trainings: one has a
fault, the other is the same training without it. The analysis predicts the step time after the fix
from the faulty run's logs; the other run shows the step time that the fix achieves. A baseline and
four pairs are trained in the same processes, in turns of a few seconds, so that the machine's drift
affects all of them alike. Most steps without a fault take {low} to {high} ms; {ranks} ranks share
{cores} cores and are not pinned to them. Faults sleep or burn CPU time, on one rank or on all, in the
loader, in a prefetching loader, in compute or between steps.

*Error* is predicted minus achieved, as a share of the faulty run's step. A prediction *holds* if the
achieved step time lies within its 95 % interval, widened by the achieved step's interval. A bound
("at most") has no error; it holds if the fix gains no more. Two equal fixed runs differ by {middle}
of the faulty step in the median and by {most} at the 90th percentile. No prediction can be closer
than that.

{asked}

{halves}

{why}

{misses}

## By framework and fault

{kinds}
"""

_WHY = """\
## Missed targets, and why

- **The machine.** Two equal runs that take turns differ, most of all with Horovod's PyTorch: its
  waiting ranks poll, and four of them keep two cores busy.
- **The baseline has no loader.** A repaired loader still takes 0.5 to 3 ms per step. If its worker
  processes share CPU cores with compute, the gain is called a bound.
- **Prefetching loaders that burn CPU.** They take cores from compute. Without a baseline, the run does
  not show how fast compute is while loaders are idle.
- **Prefetching loaders that are slow on all ranks.** Ranks get out of step and wait for each other in
  turn. If one of them never starves, the other one is named, and the gain is called a bound, because
  the limit of the first one's loader is unknown.
- **Ranks that wake up together.** Four ranks that have slept at the same time compete for two cores.
  The cost may look like slower compute on all ranks.
- **No baseline.** The analysis assumes that a step without a fault needs 1 ± 1 ms for input and as much
  between steps. Gains on shared cores are bounds.
"""


_NOT_TRAINED = """\
# Scorecard: predicted gains against real fixes

Not trained yet. `make scorecard` trains them where there is a training environment.
"""


def _kept(score: Score) -> Score:
    return rounded({name: score[name] for name in (*_KEPT, *_DIGITS)}, _DIGITS)


def page(content: dict[str, Any]) -> str:
    """Return the whole page from the results in ``DOCS``."""
    scores = content["pairs"]
    if not scores:
        return _NOT_TRAINED
    bars, differences = pair_bars(scores), repeat_differences(scores)
    middle, most = np.quantile(differences, (0.5, 0.9)) if differences else (None, None)
    low, high = np.quantile([score["achieved_ms"] for score in scores], (0.1, 0.9))
    *some, most_ranks = map(str, sorted({score["ranks"] for score in scores}))
    text = _TEXT.format(
        pairs=number(scores),
        low=f"{low:.0f}",
        high=f"{high:.0f}",
        ranks=f"{', '.join(some)} or {most_ranks}" if some else most_ranks,
        cores=content["made_on"]["cores"],
        middle=percent(middle),
        most=percent(most),
        asked=bar_table(bars),
        halves=_halves_table(scores),
        kinds="\n\n".join(_kinds_table(scores, mode) for mode in MODES),
        why="" if all(bar.passed for bar in bars) else _WHY.strip(),
        misses=misses(bars),
    )
    # Empty parts leave blank lines.
    return re.sub(r"\n{3,}", "\n\n", text)


def number(scores: Sequence[Score]) -> int:
    """Return the number of scored pairs."""
    return len({score["name"] for score in scores})


def pair_bars(scores: Sequence[Score]) -> list[Bar]:
    """Return the bars on predictions with and without a baseline, and on bounds, with every miss."""
    bounds = [score for score in scores if score["bound"]]
    return [
        *(bar for mode in MODES for bar in _prediction_bars(mode, scores)),
        *(_bound_bar(framework, bounds) for framework in _FRAMEWORKS),
    ]


def _prediction_bars(mode: str, scores: Sequence[Score]) -> list[Bar]:
    scores = [score for score in scores if score["mode"] == mode]
    result = row(scores)
    errors = [abs(score["error"]) for score in scores if score["error"] is not None]
    far = [score for score in scores if score["error"] is not None and abs(score["error"]) > P90]
    broken = [score for score in scores if score["held"] is False and not score["bound"]]
    what = f"Step time after the fix, {MODES[mode]}"
    return [
        error_bar(f"{what}: median error", MEDIAN, errors, 0.5),
        error_bar(f"{what}: 90th percentile of errors", P90, errors, 0.9, _worst(far)),
        _held_bar(f"{what}: holds", HELD, result.held, result.with_interval, broken),
    ]


def _bound_bar(framework: str, bounds: Sequence[Score]) -> Bar:
    """Return the bar on a framework's bounds, with and without a baseline."""
    bounds = [score for score in bounds if score["framework"] == framework]
    exceeded = [score for score in bounds if not score["held"]]
    what = f'"At most", {_FRAMEWORKS[framework]}: the fix gains no more'
    return _held_bar(what, BOUND_HELD, row(bounds).bounds_held, len(bounds), exceeded)


def _held_bar(what: str, least: float, share: float | None, n: int, broken: list[Score]) -> Bar:
    needed = f"≥ {least * 100:g} % of pairs"
    if share is None:
        return Bar(what, needed, NOTHING, None)
    passed = share >= least
    shown = () if passed else tuple(_worst(broken))
    return Bar(what, needed, f"{percent(share)}; {counted(n, 'pair')}", passed, shown)


def _worst(wrong: Sequence[Score]) -> Iterator[str]:
    """List the predictions that are furthest off, and count the others."""
    ordered = sorted(wrong, key=_off, reverse=True)
    yield from map(miss, ordered[:_MOST_MISSES])
    if len(ordered) > _MOST_MISSES:
        yield f"{len(ordered) - _MOST_MISSES} more: docs/scorecard/pairs.json has all of them"


def _off(score: Score) -> float:
    """Return the error of a prediction as a fraction of the faulty step; bounds as well."""
    return abs(float(score["predicted_ms"] - score["achieved_ms"])) / float(score["faulty_ms"])


def miss(score: Score) -> str:
    """Describe one wrong prediction with its figures."""
    predicted = f"{score['predicted_ms']:.1f} ms predicted"
    if score["bound"]:
        predicted = f"at least {predicted}"
    elif score["predicted_ci95"] is not None:
        low, high = score["predicted_ci95"]
        predicted += f" ({low:.1f} to {high:.1f})"
    error = "" if score["error"] is None else f", error {score['error'] * 100:+.1f} %"
    return (
        f"{_fault(score)}: step {score['faulty_ms']:.1f} ms, {predicted} after fixing {score['fix']}, "
        f"{score['achieved_ms']:.1f} ms achieved{error.replace('-', '−')}; verdict {score['verdict']}"
    )


def _fault(score: Score) -> str:
    stage = f"prefetched {score['stage']}" if score["prefetched"] else score["stage"]
    who = "all ranks" if score["who"] == "all" else f"rank {score['rank']}"
    where = f"{_FRAMEWORKS[score['framework']]}, {counted(score['ranks'], 'rank')}"
    return f"{where}: {stage} +{score['percent']:g} % on {who} ({score['way']})"


def _halves_table(scores: Sequence[Score]) -> str:
    """Tabulate both halves of the pairs and all of them; the analysis is tuned on one half only."""
    lines = []
    for mode, title in MODES.items():
        of_mode = [score for score in scores if score["mode"] == mode]
        halves = rows(of_mode, ("half",))
        for half in _HALVES:
            if (half,) in halves:
                lines.append((f"{title}, {half} half", *_figures(halves[half,])))
        lines.append((title, *_figures(row(of_mode))))
    return table(_HEAD, lines)


def _kinds_table(scores: Sequence[Score], mode: str) -> str:
    of_mode = [score for score in scores if score["mode"] == mode]
    lines = [
        (f"{_FRAMEWORKS[framework]}, {counted(ranks, 'rank')}", *_figures(row))
        for (framework, ranks), row in rows(of_mode, ("framework", "ranks")).items()
    ]
    by_kind = rows(of_mode, ("stage", "prefetched", "way", "who"))
    for (stage, prefetched, way, who), kind_row in by_kind.items():
        kind = f"prefetched {stage}" if prefetched else stage
        lines.append((f"{kind}, {way}, {who}", *_figures(kind_row)))
    return table((f"{MODES[mode]}", *_HEAD[1:]), lines)


def table_by(scores: Sequence[Score], by: Sequence[str]) -> str:
    """Tabulate pairs that share the values of some fields, with and without a baseline."""
    lines = [
        (f"{title}, {', '.join(map(str, cell))}", *_figures(cell_row))
        for mode, title in MODES.items()
        for cell, cell_row in rows((s for s in scores if s["mode"] == mode), by).items()
    ]
    return table((", ".join(by), *_HEAD[1:]), lines)


_HEAD = (
    *("", "pairs", "no prediction", "median error", "90th percentile", "holds"),
    *("bounds", "bounds hold"),
)


def _figures(row: Row) -> tuple[str, ...]:
    counts = (row.n, row.n - row.predicted - row.bounds)
    shares = (percent(row.median), percent(row.p90), percent(row.held))
    return (*map(str, counts), *shares, str(row.bounds), percent(row.bounds_held))


SECTION = Section(
    "fixes", "Fixes", lambda content: pair_bars(content["pairs"]), page, _kept, "pairs"
)
