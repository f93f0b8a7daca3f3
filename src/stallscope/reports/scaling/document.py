"""The document on scaling: a headline for each series, with its charts and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stallscope.analysis.scaling import Projected, Scaled, Series
from stallscope.charts.scaling import efficiency_chart, rate_chart, steps_chart
from stallscope.formatting.numbers import percent, rate_scale, significant

from ..document import (
    NOTHING,
    Block,
    Cell,
    CellBar,
    Document,
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
    lost_table,
    percentage,
    published_table,
    rates_table,
    title,
)


def document(series: Sequence[Series], form: str) -> Document:
    """Build the document for a format; published curves come last."""
    sections = [section for one in series for section in _series(one, form)]
    published = None if form == "terminal" else published_table()
    return Document("Scaling", [*sections, *sections_of(published)], "series")


def _series(series: Series, form: str) -> Iterator[Section]:
    blocks: list[Block] = [Text(text) for text in (difference(series),) if text]
    if series.warnings:
        blocks.append(Listing(series.warnings, role="caveats"))
    yield Section(headline(series), blocks, style="headline", label=title(series))
    if form == "html":
        yield from charts_section(
            "Charts", [rate_chart(series), efficiency_chart(series), steps_chart(series)]
        )
    if form != "terminal":
        yield from sections_of(rates_table(series), lost_table(series))
        return
    note = [Text(f"* {how_far_off(series)}", note=True)] if series.projection else []
    rates = _short_rates_table(series)
    yield Section(rates.title, (rates, *note))
    yield from sections_of(lost_table(series, intervals=False))


def _short_rates_table(series: Series) -> Table:
    """Return the rates as bars, for formats without charts."""
    unit, factor = rate_scale(series.unit)
    rows = [_measured_row(one, factor) for one in series.points]
    rows += [_projected_row(one, factor) for one in series.projection]
    return Table(
        "Throughput and efficiency",
        ("Ranks", unit, "", "Efficiency", "Whole job"),
        tuple(rows),
        words=frozenset({2}),
    )


def _measured_row(one: Scaled, factor: float) -> tuple[str, ...]:
    share = one.efficiency or one.relative
    return (
        f"{one.point.ranks:,}",
        significant(one.point.rate.value * factor),
        Cell("", bar=CellBar([("steps", min(share.value, 1.0))])),
        percentage(share),
        percentage(one.efficiency_job),
    )


def _projected_row(one: Projected, factor: float) -> tuple[str, ...]:
    share = one.efficiency
    ends = None if share is None else share.ci95
    return (
        f"{one.ranks:,}*",
        significant(one.rate.value * factor),
        "projected",
        NOTHING if share is None else percent(share.value),
        "" if ends is None else f"{percent(ends[0])} to {percent(ends[1])}",
    )
