"""How jobs scale, for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.bar import Bar
from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from stallscope.analysis import ENTRIES
from stallscope.analysis.scaling import Series
from stallscope.charts.palette import COLOURS
from stallscope.formatting.numbers import percent, rate_scale, significant
from stallscope.formatting.plain import plain

from .contents import (
    difference,
    headline,
    held_against_one,
    how_far_off,
    lost_column,
    percentage,
    title,
)

_BAR = 16


def scaling_summary(series: Sequence[Series]) -> RenderableType:
    """Every series with its rates as bars and what is lost. To be printed by a ``rich`` console."""
    parts: list[RenderableType] = []
    for one in series:
        parts += [Text(plain(title(one)), style="dim"), Text(plain(headline(one)), style="bold")]
        parts += [_rates(one)]
        if one.projection:
            parts.append(Text(f"* {plain(how_far_off(one))}", style="dim"))
        lost = _lost(one)
        if lost is not None:
            parts += [Text(), lost]
        said = [text for text in (difference(one), *one.warnings) if text]
        parts += [Text(f"! {plain(text)}", style="yellow") for text in said]
        parts.append(Text())
    return Group(*parts)


def _rates(series: Series) -> Grid:
    grid = Grid(box=box.SIMPLE, pad_edge=False)
    unit, factor = rate_scale(series.unit)
    for name in ("ranks", unit, "", "efficiency", "whole job"):
        grid.add_column(name, justify="left" if not name else "right", no_wrap=True)
    for one in series.points:
        share = one.efficiency or one.relative
        grid.add_row(
            f"{one.point.ranks:,}",
            significant(one.point.rate.value * factor),
            _bar(share.value),
            percentage(share),
            percentage(one.efficiency_job),
        )
    for there in series.projection:
        share_there = there.efficiency
        ends = None if share_there is None else share_there.ci95
        sure = "" if ends is None else f"{percent(ends[0])} to {percent(ends[1])}"
        grid.add_row(
            f"{there.ranks:,}*",
            significant(there.rate.value * factor),
            Text("projected", style="dim"),
            "–" if share_there is None else percent(share_there.value),
            Text(sure, style="dim"),
        )
    return grid


def _bar(share: float) -> Bar:
    return Bar(1.0, 0, min(max(share, 0.0), 1.0), width=_BAR, color=COLOURS["steps"].light)


def _lost(series: Series) -> Grid | None:
    held = held_against_one(series)
    if not held:
        return None
    grid = Grid(
        title="Where efficiency is lost", title_justify="left", box=box.SIMPLE, pad_edge=False
    )
    for name in ("ranks", "lost", *ENTRIES):
        grid.add_column(name, justify="right")
    for one in held:
        lost = lost_column(one)
        cells = (f"{lost.text(share)}%" for share in (lost.total, *lost.parts))
        grid.add_row(f"{one.point.ranks:,}", *cells)
    return grid
