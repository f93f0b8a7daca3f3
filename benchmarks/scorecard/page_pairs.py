"""Write docs/scorecard/fixes.md: predictions against pairs of trainings, with and without a fault.

docs/scorecard/pairs.json has all their scores: a line per pair and mode.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from page_bars import Bar, bar_table, misses
from page_tables import NOTHING, percent, table
from pairs_scoring import Row, Score, repeat_differences, row, rows
from score_lines import read_scores, write_together

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
_ROUNDED = {"faulty_ms": 3, "predicted_ms": 3, "achieved_ms": 3, "baseline_ms": 3, "error": 5}
_INTERVALS = ("predicted_ci95", "achieved_ci95")

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


def bring_together(scores: Path, out: Path) -> None:
    """Write the page's data from all scores."""
    write_together(out, "pairs", map(_line, read_scores(scores)))


def _line(score: Score) -> Score:
    kept = {name: score[name] for name in _KEPT}
    for name, digits in _ROUNDED.items():
        kept[name] = None if score[name] is None else round(score[name], digits)
    for name in _INTERVALS:
        kept[name] = None if score[name] is None else [round(end, 3) for end in score[name]]
    return kept


def page(content: dict[str, Any]) -> str:
    """Return the whole page from the data of ``bring_together``."""
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
    far = [score for score in scores if score["error"] is not None and abs(score["error"]) > P90]
    broken = [score for score in scores if score["held"] is False and not score["bound"]]
    what = f"Step time after the fix, {MODES[mode]}"
    return [
        _bar(f"{what}: median error", MEDIAN, result.median, result.predicted, []),
        _bar(f"{what}: 90th percentile of errors", P90, result.p90, result.predicted, far),
        _bar(f"{what}: holds", HELD, result.held, result.with_interval, broken),
    ]


def _bound_bar(framework: str, bounds: Sequence[Score]) -> Bar:
    """Return the bar on a framework's bounds, with and without a baseline."""
    bounds = [score for score in bounds if score["framework"] == framework]
    exceeded = [score for score in bounds if not score["held"]]
    what = f'"At most", {_FRAMEWORKS[framework]}: the fix gains no more'
    return _bar(what, BOUND_HELD, row(bounds).bounds_held, len(bounds), exceeded)


def _bar(what: str, limit: float, value: float | None, n: int, wrong: list[Score]) -> Bar:
    at_least = limit in (HELD, BOUND_HELD)
    needed = f"≥ {limit:.0%} of pairs" if at_least else f"≤ {limit:.0%} of the step"
    if value is None:
        return Bar(what, needed.replace("%", " %"), NOTHING, None, ())
    passed = value >= limit if at_least else value <= limit
    shown = () if passed else tuple(_worst(wrong))
    counted = "1 pair" if n == 1 else f"{n} pairs"
    return Bar(what, needed.replace("%", " %"), f"{percent(value)}; {counted}", passed, shown)


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
    error = "" if score["error"] is None else f", error {_signed(score['error'])}"
    return (
        f"{_fault(score)}: step {score['faulty_ms']:.1f} ms, {predicted} after fixing {score['fix']}, "
        f"{score['achieved_ms']:.1f} ms achieved{error}; verdict {score['verdict']}"
    )


def _fault(score: Score) -> str:
    stage = f"prefetched {score['stage']}" if score["prefetched"] else score["stage"]
    who = "all ranks" if score["who"] == "all" else f"rank {score['rank']}"
    ranks = f"{score['ranks']} rank{'s' if score['ranks'] > 1 else ''}"
    framework = _FRAMEWORKS[score["framework"]]
    return f"{framework}, {ranks}: {stage} +{score['percent']:g} % on {who} ({score['way']})"


def _signed(share: float) -> str:
    return f"{share * 100:+.1f} %".replace("-", "−")


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
        (f"{_FRAMEWORKS[framework]}, {ranks} rank{'s' if ranks > 1 else ''}", *_figures(row))
        for (framework, ranks), row in rows(of_mode, ("framework", "ranks")).items()
    ]
    by_kind = rows(of_mode, ("stage", "prefetched", "way", "who"))
    for (stage, prefetched, way, who), kind_row in by_kind.items():
        kind = f"prefetched {stage}" if prefetched else stage
        lines.append((f"{kind}, {way}, {who}", *_figures(kind_row)))
    return table((f"{MODES[mode]}", *_HEAD[1:]), lines)


_HEAD = (
    *("", "pairs", "no prediction", "median error", "90th percentile", "holds"),
    *("bounds", "bounds hold"),
)


def _figures(row: Row) -> tuple[str, ...]:
    counts = (row.n, row.n - row.predicted - row.bounds)
    shares = (percent(row.median), percent(row.p90), percent(row.held))
    return (*map(str, counts), *shares, str(row.bounds), percent(row.bounds_held))
