"""The tables on a loader that ran alone: its rate, the training's rates, and its stages."""

from __future__ import annotations

from stallscope.analysis import Analysis
from stallscope.analysis.gains.input_times import InputRates, loader_rate
from stallscope.formatting.lists import capitalised, counted, listed
from stallscope.formatting.numbers import NOT_MEASURED, percent, rate, rate_between
from stallscope.run import InputStage
from stallscope.text.cells import Cells

from ..document import NOTHING, Table

_ENOUGH = {
    True: "Alone it is fast enough: during training something takes CPU cores, disk or memory from it",
    False: "Alone it is too slow already",
    None: "Its interval is too wide to tell whether it is fast enough alone",
}


def rates_table(analysis: Analysis) -> Table | None:
    """Return the three rates of one rank's input; None if no loader was run alone."""
    rates = analysis.input_rates
    if rates is None:
        return None
    title = f"Loader alone (rank {rates.slowest.rank}, the slowest)"
    rows = (
        (title, rate(None if rates.alone is None else rates.alone.value), _interval(rates)),
        ("Training on synthetic data", rate(rates.synthetic), NOTHING),
        ("Training on real data", rate(rates.real), NOTHING),
    )
    return Table(
        "Where input time goes: three rates",
        ("Per rank", "Rate", "95% interval"),
        rows,
        note=f"Of one rank. {_ENOUGH[rates.enough]}. {_measured_on(analysis, rates)}",
    )


def stages_table(analysis: Analysis) -> Table | None:
    """Return the stages of the slowest loader; None if it has none."""
    rates = analysis.input_rates
    if rates is None or not rates.slowest.stages:
        return None
    slowest = rates.slowest
    cells = Cells.for_all([slowest.ms])
    rows = [_stage_row(stage, cells, slowest.ms) for stage in slowest.stages]
    missing = f" {capitalised(slowest.no_stages)}." if slowest.no_stages else ""
    return Table(
        "The loader's stages",
        ("Stage", "What it is", f"{cells.unit} per batch", "Share"),
        tuple(rows),
        words=frozenset({0, 1}),
        note=f"Rank {slowest.rank}: the time that each adds to a batch, without training.{missing}",
    )


def trials_table(analysis: Analysis) -> Table | None:
    """Return the settings of the slowest loader that were tried; None if none were."""
    rates = analysis.input_rates
    if rates is None or not rates.slowest.trials:
        return None
    trials = rates.slowest.trials
    cells = Cells.for_all([trial.ms for trial in trials])
    keeps_up = "The marked one is the smallest that keeps up with what a rank needs."
    return Table.of(
        "Settings of the loader",
        {
            "Workers": [str(trial.workers) for trial in trials],
            "Prefetch": [str(trial.prefetch) for trial in trials],
            f"{cells.unit} per batch": [cells.mean(trial.ms, trial.ci95_ms) for trial in trials],
        },
        words=frozenset(),
        emphasised=frozenset(at for at, trial in enumerate(trials) if trial == rates.proposed),
        note=f"Rank {rates.slowest.rank}: the loader alone with other settings."
        f"{f' {keeps_up}' if rates.proposed else ''}",
    )


def _stage_row(stage: InputStage, cells: Cells, whole: float | None) -> tuple[str, ...]:
    part = percent(stage.ms / whole) if whole else NOTHING
    return (stage.kind, stage.name, cells.mean(stage.ms, stage.ci95_ms), part)


def _interval(rates: InputRates) -> str:
    alone = loader_rate(rates.slowest)
    if alone is None or alone.ci95 is None:
        return NOT_MEASURED if alone is None else NOTHING
    return rate_between(*alone.ci95)


def _measured_on(analysis: Analysis, rates: InputRates) -> str:
    batches = counted(rates.slowest.batches, "batch", "batches")
    on = listed("rank", [rank.rank for rank in rates.ranks])
    together = "at the same time" if rates.at_once else "not all ranks at the same time"
    several = f", {together}" if analysis.run.size > 1 else ""
    return f"measure_input ran on {on}{several}; {batches} after the warm-up."
