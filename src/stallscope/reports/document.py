"""A report as a document: sections of texts, lists, key figures, tables, charts and code.

Each family of reports builds its documents, one for HTML (``html``), one for Markdown (``md``) and one
for the ``terminal``. Charts, folds and big figures are drawn in HTML only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from stallscope.analysis.findings.finding import Finding
from stallscope.analysis.gains.what_if import Advice
from stallscope.text.verdicts import Status

if TYPE_CHECKING:
    # Only pages have charts.
    from stallscope.charts.charts import Chart

#: Stands in a cell that has no value.
NOTHING = "–"
#: The title of warnings about logs and folders that are in no run.
LEFT_OUT = "Left out"


@dataclass(frozen=True)
class Text:
    """A paragraph; a note is set smaller than a sentence."""

    kind: ClassVar[str] = "text"
    text: str
    #: Stands in bold before the text.
    lead: str = ""
    title: str = ""
    note: bool = False
    #: The key of the section that a page links to.
    leads_to: str = ""


@dataclass(frozen=True)
class Listing:
    """Points, one below the other: sentences or caveats."""

    kind: ClassVar[str] = "listing"
    items: Sequence[str]
    role: Literal["points", "caveats"] = "points"
    title: str = ""
    #: The number of items that a format shows, by its name.
    most: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Steps:
    """Steps to take, one below the other."""

    kind: ClassVar[str] = "steps"
    items: Sequence[Advice]
    title: str = ""


@dataclass(frozen=True)
class KeyFigure:
    """A figure with its name; the detail is its interval."""

    name: str
    text: str
    detail: str = ""


@dataclass(frozen=True)
class KeyFigures:
    """Figures, one below the other."""

    kind: ClassVar[str] = "key_figures"
    figures: Sequence[KeyFigure]
    title: str = ""

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]]) -> KeyFigures:
        """Return figures from names and texts."""
        return cls([KeyFigure(name, text) for name, text in pairs])


@dataclass(frozen=True)
class BigFigure:
    """The figure that a page shows largest."""

    kind: ClassVar[str] = "big_figure"
    title: str
    text: str
    unit: str
    sentences: Sequence[str] = ()


@dataclass(frozen=True)
class Findings:
    """Findings, each with its advice."""

    kind: ClassVar[str] = "findings"
    items: Sequence[Finding]


@dataclass(frozen=True)
class CellBar:
    """A bar of coloured parts, each a fraction of the bar's full length."""

    parts: Sequence[tuple[str, float]]
    #: The fraction at the end that is shaded.
    shaded: float = 0.0
    #: Names the parts.
    text: str = ""


class Cell(str):
    """The text of a cell that has more than its text."""

    #: The sort key of the cell.
    key: float | str
    #: The file that the cell links to.
    link: str | None
    #: Stands below the text in a smaller font.
    below: str
    bar: CellBar | None

    def __new__(
        cls,
        text: str,
        key: float | str = "",
        *,
        link: str | None = None,
        below: str = "",
        bar: CellBar | None = None,
    ) -> Cell:
        """Make a cell of a text, with properties that formats may draw."""
        cell = super().__new__(cls, text)
        cell.key, cell.link, cell.below, cell.bar = key, link, below, bar
        return cell


@dataclass(frozen=True)
class Table:
    """Rows below columns; the first column names its row."""

    kind: ClassVar[str] = "table"
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    #: Columns of words; all others are numbers.
    words: frozenset[int] = frozenset({0})
    emphasised: frozenset[int] = frozenset()
    note: str = ""
    #: The columns that a format leaves out, by its name.
    without: Mapping[str, Iterable[int]] = field(default_factory=dict)
    #: The number of rows that a format shows, by its name.
    most: Mapping[str, int] = field(default_factory=dict)
    #: Whether a format with fewer rows shows the last ones.
    latest: bool = False
    #: The column by which the rows are sorted; readers can sort by others. None if they cannot.
    sorted_by: int | None = None
    #: Colours of the bars, with their names.
    legend: Sequence[tuple[str, str]] = ()

    @classmethod
    def of(cls, title: str, columns: Mapping[str, Iterable[str]], **more: Any) -> Table:
        """Return a table of columns: their titles with their cells from the top down."""
        return cls(title, tuple(columns), tuple(zip(*columns.values(), strict=True)), **more)

    def shown_columns(self, name: str) -> list[int]:
        """Return the columns that a format shows."""
        left_out = set(self.without.get(name, ()))
        return [at for at in range(len(self.columns)) if at not in left_out]

    def shown_rows(self, name: str, otherwise: int | None = None) -> range:
        """Return the rows that a format shows.

        Args:
            otherwise: the most rows if the table sets no limit.
        """
        count = len(self.rows)
        most = self.most.get(name, otherwise)
        shown = count if most is None else min(most, count)
        return range(count - shown, count) if self.latest else range(shown)


@dataclass(frozen=True)
class Figure:
    """A chart, with the tables of its figures folded below it."""

    kind: ClassVar[str] = "figure"
    chart: Chart
    tables: Sequence[Table] = ()

    @classmethod
    def of(cls, chart: Chart | None, *tables: Table | None) -> Figure | None:
        """Return a figure with the known tables; None without a chart."""
        return (
            None if chart is None else cls(chart, [table for table in tables if table is not None])
        )


@dataclass(frozen=True)
class Code:
    """Lines to copy."""

    kind: ClassVar[str] = "code"
    text: str
    title: str = ""


@dataclass(frozen=True)
class Fold:
    """Blocks that a page hides until its reader opens them."""

    kind: ClassVar[str] = "fold"
    title: str
    blocks: Sequence[DocumentBlock]
    is_open: bool = False


DocumentBlock = (
    Text | Listing | Steps | KeyFigures | BigFigure | Findings | Table | Figure | Code | Fold
)


@dataclass(frozen=True)
class Section:
    """A part of a document with its heading.

    A ``headline`` begins a report on the subject of its label. A ``verdict`` is a headline with an
    aside. An ``alert`` stands out. ``charts`` and a ``notice`` have no visible heading.
    """

    title: str
    blocks: Sequence[DocumentBlock]
    style: Literal["part", "headline", "verdict", "alert", "notice", "charts"] = "part"
    label: str = ""
    #: The target of links within a page.
    key: str = ""
    #: The severity, which colours a headline.
    status: Status = "neutral"
    aside: Sequence[DocumentBlock] = ()


def sections_of(*tables: Table | None) -> list[Section]:
    """Return a section for each table that is not None."""
    return [Section(table.title, (table,)) for table in tables if table is not None]


def charts_section(title: str, figures: Iterable[Figure | None]) -> list[Section]:
    """Return a section with the charts that exist; no section without any."""
    drawn = [figure for figure in figures if figure is not None]
    return [Section(title, drawn, style="charts")] if drawn else []


@dataclass(frozen=True)
class Chip:
    """A short fact below a page's title, with its figure in bold."""

    strong: str
    before: str = ""
    after: str = ""


@dataclass(frozen=True)
class Document:
    """A whole report as its readers see it."""

    title: str
    sections: Sequence[Section]
    #: The subject of the sections, for the link that skips to them.
    subject: str
    chips: Sequence[Chip] = ()
    #: The basis of the figures, for the last line.
    basis: str = ""

    @property
    def headline(self) -> str:
        """The title of the first section; empty without any."""
        return self.sections[0].title if self.sections else ""
