"""The document on scaling: a headline for each series, with its charts and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from stallscope.analysis import ENTRIES
from stallscope.analysis.scaling import Point, Projected, Scaled, ScalingSeries
from stallscope.arrays.stats import Mean
from stallscope.formatting.numbers import percent, percent_ends, rate_scale, significant

from ..document import (
    LEFT_OUT,
    NOTHING,
    Cell,
    CellBar,
    Document,
    DocumentBlock,
    Figure,
    Listing,
    Section,
    Table,
    Text,
    charts_section,
    sections_of,
)
from ..report_formats import (
    Content,
    ReportRecords,
    Row,
    content_of,
    fields_of,
    mean_cells,
    mean_fields,
    value_of,
)
from .scaling_contents import (
    difference,
    headline,
    how_far_off,
    kind_in_words,
    lost_table,
    percentage,
    published_table,
    rates_table,
    title,
)

COLUMNS = (
    "series",
    "synthetic",
    "ranks",
    "projected",
    "runs",
    "samples_per_second",
    "ci_low",
    "ci_high",
    "samples_per_second_job",
    "efficiency",
    "efficiency_ci_low",
    "efficiency_ci_high",
    "efficiency_job",
    "relative_efficiency",
    *(f"lost_{name}" for name in ENTRIES),
)


def document(series: Sequence[ScalingSeries], warnings: Sequence[str], form: str) -> Document:
    """Build the document for a format; published curves come last."""
    sections = [section for scaling in series for section in _series(scaling, form)]
    published = None if form == "terminal" else published_table()
    if warnings and form != "terminal":
        # The command prints them next to what the terminal shows.
        sections.append(Section(LEFT_OUT, (Listing(warnings, role="caveats"),)))
    return Document("Scaling", [*sections, *sections_of(published)], "series")


def _series(series: ScalingSeries, form: str) -> Iterator[Section]:
    sentences = kind_in_words(series), difference(series)
    blocks: list[DocumentBlock] = [Text(text) for text in sentences if text]
    if series.warnings:
        blocks.append(Listing(series.warnings, role="caveats"))
    yield Section(headline(series), blocks, style="headline", label=title(series))
    rates, lost = rates_table(series), lost_table(series)
    if form == "html":
        # Other formats have no charts.
        from stallscope.charts.scaling_curves import (
            efficiency_chart,
            losses_chart,
            rate_chart,
            steps_chart,
        )

        losses = Figure.of(losses_chart(series), lost)
        rate, efficiency = rate_chart(series), efficiency_chart(series)
        figures = [Figure.of(rate, rates), Figure.of(efficiency), losses]
        yield from charts_section("Charts", [*figures, Figure.of(steps_chart(series))])
        yield from sections_of(lost if losses is None else None)
        return
    if form == "md":
        yield from sections_of(rates, lost)
        return
    note = [Text(f"* {how_far_off(series)}", note=True)] if series.projection else []
    rates = _short_rates_table(series)
    yield Section(rates.title, (rates, *note))
    yield from sections_of(lost_table(series, intervals=False))


def _short_rates_table(series: ScalingSeries) -> Table:
    """Return the rates as bars, for formats without charts."""
    unit, factor = rate_scale(series.unit)
    measured, projected = series.points, series.projection
    shares = [scaled.efficiency or scaled.relative for scaled in measured]
    columns = {
        "Ranks": [f"{scaled.point.ranks:,}" for scaled in measured]
        + [f"{size.ranks:,}*" for size in projected],
        unit: [significant(scaled.point.rate.value * factor) for scaled in measured]
        + [significant(size.rate.value * factor) for size in projected],
        "": [Cell("", bar=CellBar([("steps", min(share.value, 1.0))])) for share in shares]
        + ["projected"] * len(projected),
        "Efficiency": [percentage(share) for share in shares]
        + [
            NOTHING if size.efficiency is None else percent(size.efficiency.value)
            for size in projected
        ],
        "Whole job": [percentage(scaled.efficiency_job) for scaled in measured]
        + [_ends(size.efficiency) for size in projected],
    }
    return Table.of("Throughput and efficiency", columns, words=frozenset({2}))


def _ends(mean: Mean | None) -> str:
    ends = None if mean is None else mean.ci95
    return "" if ends is None else percent_ends(ends)


# -- Scaling for programs and spreadsheets --------------------------------------------------------
#
# One object, and one row per series and number of ranks.


def json_content(series: Sequence[ScalingSeries], warnings: Sequence[str] = ()) -> Content:
    """Return all series as one object; unknown values are None."""
    return content_of(series=[_series_content(scaling) for scaling in series], warnings=[*warnings])


def _series_content(series: ScalingSeries) -> dict[str, Any]:
    return {
        **fields_of(series, "name kind synthetic unit"),
        "points": [_point(scaled) for scaled in series.points],
        "alone": None if series.alone is None else _rates(series.alone),
        "projection": [_projected(projected) for projected in series.projection],
        "difference": series.difference and fields_of(series.difference, "p found"),
        "warnings": series.warnings,
    }


def _rates(point: Point) -> dict[str, Any]:
    return {
        "ranks": point.ranks,
        **mean_fields("samples_per_second", point.rate),
        **mean_fields("samples_per_second_job", point.job_rate),
        "step_ms": value_of(point.step_ms),
        "runs": [run.run.id for run in point.runs],
    }


def _point(scaled: Scaled) -> dict[str, Any]:
    lost = scaled.lost
    return {
        **_rates(scaled.point),
        **mean_fields("efficiency", scaled.efficiency),
        "efficiency_job": value_of(scaled.efficiency_job),
        "efficiency_alone": value_of(scaled.efficiency_alone),
        "relative_efficiency": scaled.relative.value,
        "lost": None if lost is None else {name: mean.value for name, mean in lost.items()},
        "lost_ci95": None if lost is None else {name: mean.ci95 for name, mean in lost.items()},
    }


def _projected(projected: Projected) -> dict[str, Any]:
    return {
        "ranks": projected.ranks,
        **mean_fields("samples_per_second", projected.rate),
        **mean_fields("efficiency", projected.efficiency),
    }


def records(series: Sequence[ScalingSeries]) -> ReportRecords:
    """List every size, the projected ones last."""
    return ReportRecords(COLUMNS, (row for scaling in series for row in _series_rows(scaling)))


def _series_rows(series: ScalingSeries) -> Iterator[Row]:
    named: Row = {"series": series.name, "synthetic": series.synthetic}
    for scaled in series.points:
        yield {**named, **_measured_row(scaled)}
    for projected in series.projection:
        yield {**named, **_projected_row(projected)}


def _measured_row(scaled: Scaled) -> Row:
    point = scaled.point
    return {
        "ranks": point.ranks,
        "projected": False,
        "runs": len(point.runs),
        **mean_cells(point.rate, "samples_per_second"),
        "samples_per_second_job": value_of(point.job_rate),
        **mean_cells(scaled.efficiency, "efficiency", "efficiency_ci"),
        "efficiency_job": value_of(scaled.efficiency_job),
        "relative_efficiency": scaled.relative.value,
        **{f"lost_{name}": mean.value for name, mean in (scaled.lost or {}).items()},
    }


def _projected_row(projected: Projected) -> Row:
    return {
        "ranks": projected.ranks,
        "projected": True,
        **mean_cells(projected.rate, "samples_per_second"),
        **mean_cells(projected.efficiency, "efficiency", "efficiency_ci"),
    }
