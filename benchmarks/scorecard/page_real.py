"""Write docs/scorecard/ranks.md: how often the analysis is right on real Horovod ranks.

docs/scorecard/real.json has the scores of all real runs: a line per run.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import page_texts as texts
from page_bars import CLEARLY, CV, FALSE_ALARMS, PERCENT, RIGHT, Bar, misses, too_many_alarms
from page_tables import NOTHING, WHO, percent, ratio, table
from score_lines import write_together
from scoring import Score, scores_in

Run = dict[str, Any]

_KEPT = ("framework", "ranks", "percent", "way", "repeat", "misplaced")
_FOUND = (
    "named",
    "stage",
    "cause_right",
    "rank_right",
    "verdict",
    "verdict_right",
    "own_log_right",
    "latest_cause_right",
    "latest_rank_right",
)


def bring_together(scores: Path, out: Path) -> None:
    """Write the page's data from all scores."""
    runs = [_run(score) for score in scores_in(scores)]
    write_together(out, "runs", runs)


def _run(score: Score) -> Run:
    guilty = {score.injected.rank} if score.injected.who == "one" else set()
    return {
        **{name: score.cell.get(name) for name in _KEPT},
        "who": score.injected.who,
        "injected_stage": score.injected.stage,
        "injected_ms": round(score.injected.mean_ms, 3),
        "step_ms": round(score.injected.step_ms, 3),
        **{name: getattr(score, name) for name in _FOUND},
        "innocent_named": bool({*score.named} - guilty),
        "recovered": None if score.recovered is None else round(score.recovered, 4),
        "allreduce_ms": None if score.allreduce_ms is None else round(score.allreduce_ms, 3),
        "cv": round(max(score.cv), 3) if score.cv else None,
    }


def page(real: dict[str, Any]) -> str:
    """Return the whole page from the data of ``bring_together``."""
    runs = real["runs"]
    if not runs:
        return texts.NOT_REAL
    cores = real["made_on"]["cores"]
    parts = [texts.REAL.format(cores=cores)]
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
    parts += [f"{texts.MISSES}\n\n{listed}"] if listed else []
    return "\n\n".join(part.strip() for part in parts) + "\n"


def share(runs: Sequence[Run], right: Callable[[Run], bool | float | None]) -> float | None:
    """Return the share of runs that are right, among those where the question applies."""
    known = [float(value) for run in runs if (value := right(run)) is not None]
    return statistics.mean(known) if known else None


def cause_and_rank(run: Run) -> bool:
    return run["cause_right"] is not False and bool(run["rank_right"])


def latest(run: Run) -> bool:
    return run["latest_cause_right"] is not False and bool(run["latest_rank_right"])


def verdict(run: Run) -> bool | None:
    """Return whether the verdict is right; None if another cause costs about as much."""
    if run["allreduce_ms"] is None or run["injected_ms"] < CLEARLY * run["allreduce_ms"]:
        return None
    return bool(run["verdict_right"])


def fault_table(runs: Sequence[Run]) -> str:
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


def stage_table(runs: Sequence[Run]) -> str:
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


def _large(run: Run) -> bool:
    return bool(run["who"] != "none" and run["percent"] >= PERCENT)


def clean_sentence(runs: Sequence[Run]) -> str:
    """Describe false alarms, and how noisy the runs were."""
    clean = [run for run in runs if run["who"] == "none"]
    alarms = sum(run["innocent_named"] for run in clean)
    by_latest = sum(not run["latest_rank_right"] for run in clean)
    return (
        f"In {alarms} of {len(clean)} clean runs a rank was named; the latest-arrival rule named "
        f"one in {by_latest}. Noise, as the coefficient of variation of the noisiest rank's own "
        f"step times in the clean run: {_noise(runs)}."
    )


def _noise(runs: Sequence[Run]) -> str:
    cvs = sorted(run["cv"] for run in runs if run["cv"] is not None)
    if not cvs:
        return NOTHING
    return f"{cvs[0] * 100:.0f} to {cvs[-1] * 100:.0f} %, median {_median_cv(runs) * 100:.0f} %"


def _median_cv(runs: Sequence[Run]) -> float:
    return statistics.median([run["cv"] for run in runs if run["cv"] is not None] or [0.0])


def real_bars(runs: Sequence[Run]) -> list[Bar]:
    """Return the bars on faults and false alarms, on real runs with any noise."""
    return [
        bar
        for ranks in sorted({run["ranks"] for run in runs})
        for bar in _bars_of(ranks, [run for run in runs if run["ranks"] == ranks])
    ]


def _bars_of(ranks: int, runs: Sequence[Run]) -> list[Bar]:
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
