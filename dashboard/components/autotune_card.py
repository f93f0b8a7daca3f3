"""Cards of an autotune log among a run's files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dash_mantine_components as dmc

from stallscope.charts import PALETTE
from stallscope.charts.plotly_figures.plotly_parts import Drawing
from stallscope.formatting.lists import counted
from stallscope.formatting.numbers import significant
from stallscope.formatting.plain import plain
from stallscope.parsers.formats.autotune import AutotuneLog, Sample
from stallscope.reports.document import Table

from ..companion_files import LoadedAutotune
from .basics import card, code_block
from .chart_card import custom_chart_card, custom_drawing
from .chart_csv import Row
from .data_tables import folded_table

_MOST_SAMPLES = 2000


def autotune_cards(loaded: LoadedAutotune) -> list[Any]:
    """Chart the scores, with the best setting to paste and all samples folded below."""
    log, best = loaded.log, loaded.log.best
    if best is None:
        empty = dmc.Text(f"{plain(loaded.path.name)} has no sample yet.", size="sm")
        return [card("Autotuning", empty)]
    return [
        custom_chart_card(
            "autotune",
            "Autotuning",
            _sentence(loaded, best),
            _drawing(log, best),
            _numbers(log),
            dmc.Text("The best setting, for the environment of all ranks:", size="sm", mt="xs"),
            code_block("\n".join(best.environment), "The best setting", mt="xs"),
            folded_table(_samples_table(log, best)),
        )
    ]


def _sentence(loaded: LoadedAutotune, best: Sample) -> str:
    log = loaded.log
    tried = f"{plain(loaded.path.name)}: {counted(len(log.samples), 'setting')} tried"
    end = (
        "tuning has converged"
        if log.settled
        else "tuning had not ended, so the best setting may change"
    )
    torn = f" {counted(log.torn, 'line')} could not be read." if log.torn else ""
    return (
        f"{tried}, {end}. The best one reduces {significant(best.score)} MB/s; a score is one "
        f"measurement, and the best of many is partly luck.{torn}"
    )


def _numbers(log: AutotuneLog) -> tuple[Sequence[str], list[Row]]:
    rows: list[Row] = [
        (number, sample.score, sample.cycle_time_ms, sample.fusion_mib)
        for number, sample in enumerate(log.samples, start=1)
    ]
    return ("setting", "score, MB/s", "cycle, ms", "fusion, MiB"), rows


def _drawing(log: AutotuneLog, best: Sample) -> Drawing:
    drawn = custom_drawing()
    numbers = list(range(1, len(log.samples) + 1))
    drawn.add_trace(
        "scatter",
        x=numbers,
        y=[sample.score for sample in log.samples],
        customdata=[[sample.cycle_time_ms, sample.fusion_mib] for sample in log.samples],
        mode="lines+markers",
        line={"width": 1, "color": PALETTE["allreduce"]},
        marker={"size": 5, "color": PALETTE["allreduce"]},
        hovertemplate="setting %{x}: %{y:.3g} MB/s<br>cycle %{customdata[0]:.3g} ms, fusion "
        "%{customdata[1]:.3g} MiB<extra></extra>",
    )
    # Tuning ends with a line that repeats the best sample.
    at = next(
        (number for number, sample in zip(numbers, log.samples, strict=True) if sample == best), 0
    )
    if at:
        drawn.add_trace(
            "scatter",
            x=[at],
            y=[best.score],
            mode="markers+text",
            text=["best"],
            textposition="top center",
            marker={
                "size": 13,
                "symbol": "circle-open",
                "color": PALETTE["ink"],
                "line": {"width": 2.5},
            },
            cliponaxis=False,
            hoverinfo="skip",
        )
    drawn.update(
        margin={"t": 28},
        xaxis={"title": {"text": "setting"}, "showgrid": False},
        yaxis={"ticksuffix": " MB/s"},
    )
    return drawn


def _samples_table(log: AutotuneLog, best: Sample) -> Table:
    """Tabulate all samples, of many the first."""
    switches = list(dict.fromkeys(name for sample in log.samples for name in sample.switches))
    rows = tuple(
        (
            f"{number:,}" + (" (best)" if sample == best else ""),
            *("on" if sample.switches.get(name) else "off" for name in switches),
            significant(sample.cycle_time_ms),
            significant(sample.fusion_mib),
            significant(sample.score),
        )
        for number, sample in enumerate(log.samples[:_MOST_SAMPLES], start=1)
    )
    return Table(
        "Settings that were tried",
        (
            "Setting",
            *(plain(name).replace("_", " ").capitalize() for name in switches),
            "Cycle, ms",
            "Fusion, MiB",
            "Score, MB/s",
        ),
        rows,
        words=frozenset(range(1 + len(switches))),
        note="In the order in which they were tried.",
    )
