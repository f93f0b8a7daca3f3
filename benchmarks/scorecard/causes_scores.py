"""Score whether reports name the causes inside steps, and what they promise for repairing one.

A repaired run is the same training without that cause. docs/scorecard/causes.md is written from these
scores; docs/scorecard/causes.json has a line per cause, and one per run without any.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from causes_plan import DEVICE_MS, EVERY, FRAMEWORKS, PERCENTS, SAVE_EVERY, SAVE_LASTS, Fault, Run
from chapter import Score, Section, rounded
from page_tables import (
    NOTHING,
    Bar,
    alarm_bar,
    bar_table,
    counted,
    error_bar,
    of_all,
    page_of,
    percent,
    share_bar,
    table,
)

from stallscope.analysis import Analysis
from stallscope.analysis.findings.step_causes import StepCause
from stallscope.arrays.stats import Mean
from stallscope.arrays.types import Floats
from stallscope.formatting.lists import joined

#: Nanoseconds by which faults delay ranks: steps × ranks of each cause.
Delays = Mapping[str, Floats]


def injected_ms(analysis: Analysis, delays: Delays, cause: str) -> float:
    """Return what a cause costs per step: what its delays, taken off the ranks' arrivals, would save.

    Raises:
        ValueError: if the run has no steady steps.
    """
    steady = analysis.steady
    if steady is None:
        raise ValueError("a run has no steady steps")
    arrival = steady.cells.rows("arrival", np.arange(len(steady))).astype(np.float64)
    without = arrival - _relative(cause, delays[cause])[steady.steps]
    return float((arrival.max(axis=1) - without.max(axis=1)).mean()) / 1e6


def _relative(cause: str, amount: Floats) -> Floats:
    """Return a delay; unequal work delays by how much it is more than the ranks' mean."""
    return amount - amount.mean(axis=1, keepdims=True) if cause == "unequal_work" else amount


def score_cause(
    run: Run, fault: Fault, analysis: Analysis, repaired: Analysis, delays: Delays
) -> Score:
    """Score what a report says on one of a run's causes.

    Args:
        run: the run.
        fault: one of its causes.
        analysis: the run's.
        repaired: that of the same run without this cause.
        delays: what the run's ranks have measured.

    Raises:
        ValueError: if one of the runs has no steps that can be timed.
    """
    faulty, fixed = _step(analysis), _step(repaired)
    named = next((each for each in _causes(analysis) if each.code == fault.cause), None)
    others = {each.cause for each in run.causes}
    wrong = [each.code for each in _causes(analysis) if each.code not in others]
    injected = injected_ms(analysis, delays, fault.cause)
    achieved = faulty.value - fixed.value
    saved = None if named is None else named.saved_ms
    return {
        **_described(run, analysis),
        "cause": fault.cause,
        "who": fault.who,
        "percent": fault.percent,
        "ranks_with_it": list(ranks_with(run, fault)),
        "beside": next(iter(others - {fault.cause}), None),
        "ranks_named": None if named is None else list(named.ranks),
        "right": named is not None and named.ranks == ranks_with(run, fault) and not wrong,
        "injected_ms": injected,
        "found_ms": None if saved is None else saved.value,
        "found_ci95": None if saved is None else saved.ci95,
        "size": None if saved is None else saved.value / injected,
        "fixed_ms": fixed.value,
        "fixed_ci95": fixed.ci95,
        "error": None if saved is None else (saved.value - achieved) / faulty.value,
    }


def score_clean(run: Run, analysis: Analysis) -> Score:
    """Score a run in which no cause may be named: a clean, a repaired or a merely slow one."""
    slow = next((fault.cause for fault in run.faults if not fault.repaired), None)
    repaired = "repaired" if run.faults else "clean"
    return {**_described(run, analysis), "cause": None, "what": slow or repaired}


def ranks_with(run: Run, fault: Fault) -> tuple[int, ...]:
    """Return the ranks that a report must name; none if work is unequal and that of none is larger."""
    only = run.rank_of(fault)
    if only is not None:
        return (only,)
    return () if fault.cause == "unequal_work" else tuple(range(run.ranks))


def _described(run: Run, analysis: Analysis) -> Score:
    step = _step(analysis)
    return {
        "name": run.name,
        **{name: getattr(run, name) for name in ("framework", "ranks", "repeat", "group")},
        "verdict": analysis.bottleneck.kind,
        "named": {each.code: each.saved_ms.value / step.value for each in _causes(analysis)},
        "step_ms": step.value,
        "step_ci95": step.ci95,
        "evidence": [each.text for each in _causes(analysis)],
    }


def _causes(analysis: Analysis) -> Sequence[StepCause]:
    return analysis.step_causes.causes


def _step(analysis: Analysis) -> Mean:
    if analysis.step is None:
        raise ValueError("a run has no steps that can be timed")
    return Mean(analysis.step.mean, analysis.step.ci95)


# -- the page ------------------------------------------------------------------------------------

#: Targets: shares of causes, the most error of a size, and the error of a gain as a share of the step.
RIGHT, SIZED, SIZE_ERROR, GAIN = 0.90, 0.90, 0.15, 0.03
#: Targets are for causes of this size or more, in percent of the clean step.
LEAST = 10

_TITLES = {
    "garbage_collection": "garbage collection",
    "unequal_work": "unequal work",
    "saving": "saves within steps",
    "compilation": "compilation",
    "background_saving": "saves in the background",
    "padding": "padding",
    "background_evaluation": "evaluations beside training",
    "interpreter": "Python's lock",
}
_WHO = {"one": "one rank", "rotating": "ranks in turn", "all": "all ranks"}
_CLEAN = {
    "clean": "no fault",
    "repaired": "repaired in place",
    "slow_rank": "a slow rank",
    "slow_input": "slow input",
    "free_work": "unequal batches that take the same time",
}
_DIGITS = {
    **dict.fromkeys(("step_ms", "injected_ms", "found_ms", "fixed_ms"), 3),
    **dict.fromkeys(("step_ci95", "found_ci95", "fixed_ci95"), 3),
    **dict.fromkeys(("size", "error"), 4),
}


def _kept(score: Score) -> Score:
    named = {code: round(share, 4) for code, share in score["named"].items()}
    return {**rounded(score, _DIGITS), "named": named}


def cause_bars(runs: Sequence[Score]) -> list[Bar]:
    """Return the bars on named causes, their sizes and gains, and on runs without any."""
    if not runs:
        return []
    large = [score for score in _injected(runs) if score["percent"] >= LEAST]
    sized = [score for score in large if score["size"] is not None]
    far = sorted(sized, key=lambda score: -abs(score["error"]))
    what = f"A cause inside the step, {LEAST} % or more"
    return [
        share_bar(f"{what}: cause and ranks right", large, _is_right, RIGHT, _wrong, "cause"),
        share_bar(f"{what}: size within 15 %", sized, _is_sized, SIZED, _missized, "cause"),
        error_bar(
            f"{what}: gain of the repair, median error",
            GAIN,
            [abs(score["error"]) for score in sized],
            0.5,
            map(_far, far[:5]),
            "cause",
        ),
        alarm_bar("No cause inside the step: a cause named", _clean(runs), _is_quiet, _alarm),
    ]


def _injected(runs: Iterable[Score]) -> list[Score]:
    return [score for score in runs if score["cause"] is not None]


def _clean(runs: Iterable[Score]) -> list[Score]:
    return [score for score in runs if score["cause"] is None]


def _is_right(score: Score) -> bool:
    return bool(score["right"])


def _is_sized(score: Score) -> bool:
    return score["size"] is not None and abs(score["size"] - 1) <= SIZE_ERROR


def _is_quiet(score: Score) -> bool:
    return not score["named"]


def page(content: dict[str, Any]) -> str:
    """Return the whole page from the results in ``DOCS``."""
    runs = content["runs"]
    injected, clean = _injected(runs), _clean(runs)
    if not injected:
        return _NOT_TRAINED
    frameworks = [
        f"{FRAMEWORKS[framework]} {_on_ranks(_ranks(runs, framework))}"
        for framework in FRAMEWORKS
        if _ranks(runs, framework)
    ]
    text = _TEXT.format(
        runs=len({score["name"] for score in runs}),
        causes=len(injected),
        frameworks=", ".join(frameworks),
        sizes=joined([f"{size}" for size in PERCENTS]),
        device=f"{DEVICE_MS:g}",
        clean=f"{statistics.median(score['step_ms'] for score in clean or injected):.0f}",
        cores=content["made_on"]["cores"],
        pauses=EVERY["garbage_collection"],
        compilations=EVERY["compilation"],
        lasts=SAVE_LASTS,
        every=SAVE_EVERY,
    )
    bars = cause_bars(runs)
    parts = [
        text.strip(),
        bar_table(bars),
        "## By cause, size and framework",
        _causes_table(injected),
        "## Runs without a cause",
        _CLEAN_TEXT.strip(),
        _clean_table(clean),
    ]
    return page_of(parts, bars, _HOW)


def _ranks(runs: Iterable[Score], framework: str) -> list[int]:
    return sorted({score["ranks"] for score in runs if score["framework"] == framework})


def _on_ranks(numbers: Sequence[int]) -> str:
    return "in one process" if numbers == [1] else f"on {joined(list(map(str, numbers)))} ranks"


def _causes_table(injected: Sequence[Score]) -> str:
    cells: dict[str, list[Score]] = {}
    for cause, title in _TITLES.items():
        for size in PERCENTS:
            cells[f"{title}, {size} %"] = _of(injected, cause=cause, percent=size)
    for who, title in _WHO.items():
        cells[title] = _of(injected, who=who)
    cells["alone"] = _of(injected, beside=None)
    cells["two at once"] = [score for score in injected if score["beside"] is not None]
    for framework, title in FRAMEWORKS.items():
        for ranks in _ranks(injected, framework):
            of_ranks = _of(injected, framework=framework, ranks=ranks)
            cells[f"{title}, {counted(ranks, 'rank')}"] = of_ranks
    head = ("", "causes", "right", "size, median", "size within 15 %", "gain, median error")
    return table(head, [(name, *_figures(cell)) for name, cell in cells.items() if cell])


def _figures(cell: Sequence[Score]) -> tuple[str, ...]:
    sized = [score for score in cell if score["size"] is not None]
    size = f"{statistics.median(score['size'] for score in sized):.2f}" if sized else NOTHING
    error = statistics.median(abs(score["error"]) for score in sized) if sized else None
    return (
        str(len(cell)),
        of_all(cell, _is_right),
        size,
        of_all(sized, _is_sized),
        percent(error),
    )


def _clean_table(clean: Sequence[Score]) -> str:
    rows = []
    for what, title in _CLEAN.items():
        cell = _of(clean, what=what)
        if cell:
            rows.append((title, of_all(cell, lambda score: not _is_quiet(score))))
    return table(("", "a cause named"), rows)


def _of(runs: Iterable[Score], **fields: Any) -> list[Score]:
    return [run for run in runs if all(run[name] == value for name, value in fields.items())]


def _case(score: Score) -> str:
    where = f"{FRAMEWORKS[score['framework']]}, {counted(score['ranks'], 'rank')}"
    if score["cause"] is None:
        return f"{where}, {_CLEAN[score['what']]}"
    beside = "" if score["beside"] is None else f" beside {_TITLES[score['beside']]}"
    who = _WHO[score["who"]] if score["who"] != "one" else f"rank {score['ranks_with_it'][0]}"
    return f"{where}: {_TITLES[score['cause']]} of {score['percent']:g} % on {who}{beside}"


def _said(score: Score) -> str:
    return " ".join(score["evidence"]) or "No cause inside the step is named."


def _wrong(score: Score) -> str:
    return f"{_case(score)}. {_said(score)}"


def _missized(score: Score) -> str:
    injected, reported = (f"{score[name]:.2f} ms" for name in ("injected_ms", "found_ms"))
    return f"{_case(score)}. {injected} per step injected, {reported} found"


def _far(score: Score) -> str:
    gained = score["step_ms"] - score["fixed_ms"]
    error = f"error {score['error'] * 100:+.1f} %".replace("-", "−")
    return (
        f"{_case(score)}. Step {score['step_ms']:.1f} ms, {score['found_ms']:.2f} ms promised, "
        f"{gained:.2f} ms gained, {error}"
    )


def _alarm(score: Score) -> str:
    return f"{_case(score)}. {_said(score)}"


# -- sentences; they contain no results ----------------------------------------------------------

_NOT_TRAINED = """\
# Scorecard: causes inside the step

No run has been trained yet: run `make causes`.
"""

_TEXT = """\
# Scorecard: causes inside the step

This page compares [causes inside steps](../report.md#causes-inside-the-step) of known size with
what reports say, in {runs} trainings on real ranks with {causes} injected causes ({frameworks}). A
cause costs the job about {sizes} % of the clean step, on one rank, on ranks in turn or on all,
alone or beside another one. Collections look at real objects, and saves are real and wait for a
slow disk, in one of {pauses} steps; Dynamo, TensorFlow or JAX compiles for a new length in one of
{compilations}. The device is simulated: it sleeps {device} ms for a mean batch, in proportion to
the batch, and for longer beside a save in the background or an evaluation on another thread, which
lasts {lasts} of {every} steps. Most clean steps take {clean} ms; the ranks share {cores} cores, on
which those of Horovod's PyTorch sleep while they wait, in place of polling, if there are more of
them. A run and its repaired runs take turns in the same processes, so that the machine's drift
affects them alike.

A cause is *right* if the report names it with its ranks, and no cause that is not there. Its *size*
is what it costs the job per step: the report's figure over what the injected delays, taken off the
ranks' arrivals in each step, would save. Reductions that take longer beside other work are no
injected delay. The *gain* is the time per step that the report promises; its error is the
difference to what the repaired run gained, as a share of the faulty step. Frozen objects and
compiling for all shapes are repairs; so are equal batches, and no saves or padding.
"""

_CLEAN_TEXT = """\
No cause inside the step may be named in these runs.
"""

_HOW = """\
## How it is scored

`make causes` trains all of this in the environments of `make training-env` and `make keras3-env`.
It continues where it was interrupted. [causes.json](causes.json) has every cause. JAX trains in one
process: in the compiled step of several, compute and waiting of a rank cannot be told apart, so
that reports name no cause there. Another thread has Python's lock for up to 4 ms at a time, when
the training thread wants it. It needs a core for that, and on two cores training then waits for a
core as well. The kernel counts that time (`schedstat` of the training thread), and the injected
delay leaves it out, as [looks at the lock](../step-log.md#within-steps) do. They begin a moment
after the thread becomes busy.
"""


SECTION = Section(
    "causes", "Causes inside the step", lambda content: cause_bars(content["runs"]), page, _kept
)
