"""Score what input probes promise against what repaired loaders gain, and the causes that reports name.

Pairs are of a faulty run with probes and the repaired run, which is a clean run with probes itself.
docs/scorecard/probes.md is written from these scores; docs/scorecard/probes.json has a line per run.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from chapter import Score, Section, rounded
from page_tables import (
    NOTHING,
    Bar,
    alarm_bar,
    bar_table,
    counted,
    error_bar,
    page_of,
    percent,
    share_bar,
    table,
)
from pairs_scores import predict
from probes_plan import BATCHES_AHEAD, CAUSES, DEVICE_SECONDS, FRAMEWORKS, Run

from stallscope.analysis import Analysis, analyse
from stallscope.analysis.advice.loader_reasons import LOADER_CODES
from stallscope.run import Run as Recorded

#: Per cause, the codes of which each must be named, and those that are true as well.
CODES: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    cause: (frozenset({f"loader_{must}"}), frozenset(f"loader_{true}" for true in also))
    for cause, must, also in (
        ("storage", "waiting", ("no_workers", "few_workers")),
        ("decoding", "function", ("no_workers", "few_workers", "crowded")),
        ("collating", "collating", ("no_workers", "few_workers", "crowded")),
        ("no_workers", "no_workers", ("waiting",)),
        ("few_workers", "few_workers", ("waiting",)),
        ("slow_worker", "slow_worker", ("waiting",)),
        ("slow_shard", "slow_worker", ("waiting",)),
        ("slow_samples", "slow_batches", ()),
    )
}
#: The recorder has no figures of their loaders; the stage and the ranks are all that a report can name.
NO_LOADER_FIGURES = ("keras",)

_PREDICTION = (
    *("fix", "led", "faulty_ms", "achieved_ms", "achieved_ci95"),
    *("predicted_ms", "predicted_ci95", "bound", "measured"),
)


def score_pair(run: Run, faulty: Recorded, repaired: Recorded) -> Score:
    """Score the log of a faulty run against that of the repaired one.

    Raises:
        ValueError: if one of them has no steps that can be timed.
    """
    analysis = analyse(faulty)
    who = run.who if run.ranks > 1 else "all"
    prediction = predict(analysis, analyse(repaired), "input", who)
    known, measured = asdict(prediction), prediction.measured
    return {
        **_described(run, analysis),
        **{name: known[name] for name in _PREDICTION},
        "error": prediction.error if measured else None,
        "held": prediction.held if measured else None,
        "cause_right": cause_right(run, analysis),
    }


def score_repaired(run: Run, repaired: Recorded) -> Score:
    """Score the log of a repaired run, in which nothing may be accused."""
    analysis = analyse(repaired)
    probe = analysis.input_probe
    named = any(straggler.ranks or straggler.hosts for straggler in analysis.stragglers)
    return {
        **_described(run, analysis),
        "accused": bool(_is_input(analysis) or named or _codes(analysis)),
        "real_ms": None if probe is None else probe.real_ms.value,
        "saved_ms": None if probe is None else probe.saved_ms.value,
        "saved_ci95": None if probe is None else probe.saved_ms.ci95,
    }


def cause_right(run: Run, analysis: Analysis) -> bool:
    """Tell whether a report names the injected cause on its ranks, and no cause that is not there."""
    ranks = () if run.rank is None or run.ranks == 1 else (run.rank,)
    if not _is_input(analysis) or _late_ranks(analysis) != ranks:
        return False
    if run.framework in NO_LOADER_FIGURES:
        return True
    must, also = CODES[run.cause]
    return must <= set(_codes(analysis)) <= must | also


def _late_ranks(analysis: Analysis) -> tuple[int, ...]:
    """Return the ranks that a verdict names: as stragglers, or as those with late batches."""
    verdict, probe = analysis.bottleneck, analysis.input_probe
    if verdict.kind == "input" and probe is not None:
        return probe.late_loaders
    return verdict.ranks


def _is_input(analysis: Analysis) -> bool:
    verdict = analysis.bottleneck
    return verdict.fault and "input" in (verdict.kind, verdict.cause)


def _codes(analysis: Analysis) -> list[str]:
    # Busy cores are no cause of slow input: they limit what faster input gains.
    causes = {*LOADER_CODES} - {"loader_busy_cores"}
    return [reason.code for reason in analysis.bottleneck.why if reason.code in causes]


def _described(run: Run, analysis: Analysis) -> Score:
    verdict, probe = analysis.bottleneck, analysis.input_probe
    facts = [log.facts.get("input_probe") or {} for log in analysis.run.logs]
    return {
        "name": run.name,
        **{name: getattr(run, name) for name in _RUN},
        "rank": run.rank,
        "verdict": verdict.kind,
        "late_ranks": list(_late_ranks(analysis)),
        "codes": _codes(analysis),
        "evidence": verdict.evidence,
        "probed_steps": 0 if probe is None else probe.steps,
        "refused": next((fact["refused"] for fact in facts if fact.get("refused")), None),
    }


_RUN = ("framework", "ranks", "repeat", "cause", "workers", "who", "delay_ms")

# -- the page ------------------------------------------------------------------------------------

#: Targets: errors as shares of the faulty step, and shares of pairs.
MEDIAN, P90, HELD, CAUSE, MEASURED = 0.02, 0.04, 0.92, 0.90, 0.95

_DIGITS = {
    **dict.fromkeys(("faulty_ms", "predicted_ms", "achieved_ms", "real_ms", "saved_ms"), 3),
    **dict.fromkeys(("predicted_ci95", "achieved_ci95", "saved_ci95"), 3),
    "error": 5,
}


def _kept(score: Score) -> Score:
    return rounded(score, _DIGITS)


def probe_bars(runs: Sequence[Score]) -> list[Bar]:
    """Return the bars on measured gains, causes and repaired runs, with every miss."""
    if not runs:
        return []
    pairs, clean = _pairs(runs), _clean(runs)
    errors = _errors(pairs)
    far = [pair for pair in pairs if pair["error"] is not None and abs(pair["error"]) > P90]
    with_interval = [pair for pair in pairs if pair["held"] is not None]
    what = "Step time after the repair, from an input probe"
    return [
        error_bar(f"{what}: median error", MEDIAN, errors, 0.5),
        error_bar(f"{what}: 90th percentile of errors", P90, errors, 0.9, map(_far, far)),
        _share_bar(f"{what}: holds", HELD, with_interval, "held", _far),
        _share_bar("Slow input: a probe measures the gain", MEASURED, pairs, "measured", _unknown),
        _share_bar("Slow input: the cause right", CAUSE, pairs, "cause_right", _wrong_cause),
        alarm_bar(
            "Repaired input: a loader or a rank accused",
            clean,
            lambda run: not run["accused"],
            _accused,
        ),
    ]


def _share_bar(
    what: str, least: float, pairs: Sequence[Score], name: str, miss: Callable[[Score], str]
) -> Bar:
    return share_bar(what, pairs, lambda pair: bool(pair[name]), least, miss, "pair")


def _pairs(runs: Iterable[Score]) -> list[Score]:
    return [run for run in runs if run["cause"] != "none"]


def _clean(runs: Iterable[Score]) -> list[Score]:
    return [run for run in runs if run["cause"] == "none"]


def _errors(pairs: Iterable[Score]) -> list[float]:
    return [abs(pair["error"]) for pair in pairs if pair["error"] is not None]


def _of(runs: Iterable[Score], **fields: Any) -> list[Score]:
    return [run for run in runs if all(run[name] == value for name, value in fields.items())]


def page(content: dict[str, Any]) -> str:
    """Return the whole page from the results in ``DOCS``."""
    runs = content["runs"]
    pairs, clean = _pairs(runs), _clean(runs)
    if not pairs:
        return _NOT_TRAINED
    low, high = np.quantile([pair["achieved_ms"] for pair in pairs], (0.1, 0.9))
    text = _TEXT.format(
        pairs=len(pairs),
        cores=content["made_on"]["cores"],
        low=f"{low:.0f}",
        high=f"{high:.0f}",
        device=f"{DEVICE_SECONDS * 1e3:g}",
        batches=BATCHES_AHEAD,
        steps=f"{statistics.median(pair['probed_steps'] for pair in pairs):.0f}",
    )
    bars = probe_bars(runs)
    parts = [
        text.strip(),
        bar_table(bars),
        "## By framework and cause",
        _pairs_table(pairs),
        "## Repaired loaders",
        _CLEAN.strip(),
        _clean_table(clean),
    ]
    return page_of(parts, bars, _HOW)


def _pairs_table(pairs: Sequence[Score]) -> str:
    rows = []
    for framework, title in FRAMEWORKS.items():
        for ranks in sorted({pair["ranks"] for pair in _of(pairs, framework=framework)}):
            group = _of(pairs, framework=framework, ranks=ranks)
            rows.append((f"{title}, {counted(ranks, 'rank')}", *_figures(group)))
    for cause, title in CAUSES.items():
        for workers in sorted({pair["workers"] for pair in _of(pairs, cause=cause)}):
            group = _of(pairs, cause=cause, workers=workers)
            rows.append((f"{title}, {_workers(workers)}", *_figures(group)))
    for who, title in (("one", "one rank"), ("all", "all ranks")):
        rows.append((title, *_figures(_of(pairs, who=who))))
    head = ("pairs", "measured", "median error", "90th percentile", "holds", "cause right")
    return table(("", *head), [row for row in rows if row[1] != "0"])


def _figures(pairs: Sequence[Score]) -> tuple[str, ...]:
    errors = _errors(pairs)
    held = [pair["held"] for pair in pairs if pair["held"] is not None]
    return (
        str(len(pairs)),
        str(sum(pair["measured"] for pair in pairs)),
        percent(statistics.median(errors) if errors else None),
        percent(float(np.quantile(errors, 0.9)) if errors else None),
        f"{sum(held)} of {len(held)}" if held else NOTHING,
        f"{sum(pair['cause_right'] for pair in pairs)} of {len(pairs)}",
    )


def _clean_table(clean: Sequence[Score]) -> str:
    rows = []
    for framework, title in FRAMEWORKS.items():
        group = _of(clean, framework=framework)
        saved = [
            abs(run["saved_ms"]) / run["real_ms"] for run in group if run["saved_ms"] is not None
        ]
        if group:
            most = (statistics.median(saved), max(saved)) if saved else (None, None)
            accused = f"{sum(run['accused'] for run in group)} of {len(group)}"
            rows.append((title, accused, *map(percent, most)))
    return table(("", "accused", "difference, median", "difference, most"), rows)


def _workers(workers: int) -> str:
    return counted(workers, "worker") if workers else "no workers"


def _case(run: Score) -> str:
    where = f"{FRAMEWORKS[run['framework']]}, {counted(run['ranks'], 'rank')}"
    if run["cause"] == "none":
        return f"{where}, repaired, {_workers(run['workers'])}"
    who = "all ranks" if run["rank"] is None else f"rank {run['rank']}"
    fault = f"{CAUSES[run['cause']]}, {_workers(run['workers'])}, on {who}"
    return f"{where}: {fault}, +{run['delay_ms']:g} ms"


def _far(pair: Score) -> str:
    promised = f"{pair['predicted_ms']:.1f} ms promised"
    if pair["predicted_ci95"] is not None:
        low, high = pair["predicted_ci95"]
        promised += f" ({low:.1f} to {high:.1f})"
    error = f"error {pair['error'] * 100:+.1f} %".replace("-", "−")
    return (
        f"{_case(pair)}. Step {pair['faulty_ms']:.1f} ms, {promised} after fixing {pair['fix']}, "
        f"{pair['achieved_ms']:.1f} ms achieved, {error}"
    )


def _unknown(pair: Score) -> str:
    reason = pair["refused"] or f"{pair['probed_steps']} probed steps, the fix is {pair['fix']}"
    return f"{_case(pair)}. No gain measured: {reason}. {pair['evidence']}"


def _wrong_cause(pair: Score) -> str:
    named = ", ".join(f"`{code}`" for code in pair["codes"]) or "no cause of the loader"
    return f"{_case(pair)}. Named: {named}. {pair['evidence']}"


def _accused(run: Score) -> str:
    return f"{_case(run)}. {run['evidence']}"


# -- sentences; they contain no results ----------------------------------------------------------

_NOT_TRAINED = """\
# Scorecard: input probes

No pair has been trained yet: run `make probes`.
"""

_TEXT = """\
# Scorecard: input probes

This page compares what an [input probe](../input.md#measured-in-the-run) promises with what a repaired
loader gains, in {pairs} pairs of real trainings without a baseline. The faulty run's loader is too slow
on one rank or on all, for a reason of known size: storage, decoding, collating, too few workers, one
slow worker, a slow shard, or a few slow samples. Storage sleeps; decoding and collating use CPU time.
The repaired run is the same training without that, or with enough workers. Both take turns of an
epoch in the same processes, so that the machine's drift affects them alike. A step computes on a core
and waits {device} ms for a simulated device; most repaired steps take {low} to {high} ms, and ranks and
their workers share {cores} cores, on which Horovod's ranks of PyTorch sleep while they wait, in place of
polling. Each run has several probes of {batches} batches, {steps} measured steps in the median.

*Error* is the promised minus the achieved step time, as a share of the faulty step. A promise *holds*
if the achieved step time lies within its 95 % interval, widened by the achieved step's interval. Where a
probe does not show what taking a ready batch costs, the interval contains up to 2.4 ms for it: that was
read off repaired runs of this chapter on two ranks, so that they are no independent test of it. A
*cause* is right if the verdict is input on these ranks, and the reasons of the report contain the
injected one and none that is wrong; Keras' loaders have no figures during training, so that only the
verdict and the ranks count there.
[Fixes](fixes.md) compares gains that are predicted without a probe.
"""

_CLEAN = """\
A repaired run must accuse no rank and no loader. Its own probe should find next to nothing to gain: the
difference is between its real steps and those of its probes, as a share of the real step. It has the
loader's own cost and the machine's noise in it, and shows how close a promise can be.
"""

_HOW = """\
## How it is scored

`make probes` trains all of this, in about 40 minutes, in the environments of `make training-env` and
`make keras3-env`. It continues where it was interrupted. [probes.json](probes.json) has every run.
"""


SECTION = Section(
    "probes", "Input probes", lambda content: probe_bars(content["runs"]), page, _kept
)
