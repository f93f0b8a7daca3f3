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
    found = analysis.input_rates
    if found is None:
        return None
    title = f"Loader alone (rank {found.slowest.rank}, the slowest)"
    rows = (
        (title, rate(None if found.alone is None else found.alone.value), _interval(found)),
        ("Training on synthetic data", rate(found.synthetic), NOTHING),
        ("Training on real data", rate(found.real), NOTHING),
    )
    return Table(
        "Where input time goes: three rates",
        ("Per rank", "Rate", "95% interval"),
        rows,
        note=f"Of one rank. {_ENOUGH[found.enough]}. {_measured_on(analysis, found)}",
    )


def stages_table(analysis: Analysis) -> Table | None:
    """Return the stages of the slowest loader; None if it has none."""
    found = analysis.input_rates
    if found is None or not found.slowest.stages:
        return None
    slowest = found.slowest
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
    found = analysis.input_rates
    if found is None or not found.slowest.trials:
        return None
    trials = found.slowest.trials
    cells = Cells.for_all([one.ms for one in trials])
    keeps_up = "The marked one is the smallest that keeps up with what a rank needs."
    return Table.of(
        "Settings of the loader",
        {
            "Workers": [str(one.workers) for one in trials],
            "Prefetch": [str(one.prefetch) for one in trials],
            f"{cells.unit} per batch": [cells.mean(one.ms, one.ci95_ms) for one in trials],
        },
        words=frozenset(),
        emphasised=frozenset(at for at, one in enumerate(trials) if one == found.proposed),
        note=f"Rank {found.slowest.rank}: the loader alone with other settings."
        f"{f' {keeps_up}' if found.proposed else ''}",
    )


def _stage_row(stage: InputStage, cells: Cells, whole: float | None) -> tuple[str, ...]:
    part = percent(stage.ms / whole) if whole else NOTHING
    return (stage.kind, stage.name, cells.mean(stage.ms, stage.ci95_ms), part)


def _interval(found: InputRates) -> str:
    alone = loader_rate(found.slowest)
    if alone is None or alone.ci95 is None:
        return NOT_MEASURED if alone is None else NOTHING
    return rate_between(*alone.ci95)


def _measured_on(analysis: Analysis, found: InputRates) -> str:
    batches = counted(found.slowest.batches, "batch", "batches")
    on = listed("rank", [one.rank for one in found.ranks])
    together = "at the same time" if found.at_once else "not all ranks at the same time"
    several = f", {together}" if analysis.run.size > 1 else ""
    return f"measure_input ran on {on}{several}; {batches} after the warm-up."
