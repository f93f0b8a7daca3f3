"""The document on scaling: a headline for each series, with its charts and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stallscope.analysis.scaling import ScalingSeries
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
from .contents import (
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
        from stallscope.charts.scaling import (
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
