"""The parts of a report (a document, JSON, rows for spreadsheets, metrics), and the formats of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import datetime
from functools import cache
from pkgutil import resolve_name
from typing import Any

from stallscope import __version__
from stallscope.arrays.stats import Mean
from stallscope.catalogue.entry import text
from stallscope.errors import UsageError
from stallscope.formatting.numbers import finite
from stallscope.plugins import plugins
from stallscope.words import Fix

from .document import Document

#: A JSON object.
Content = dict[str, Any]
Value = str | int | float | bool | None
#: Values by column; unknown values are None or left out.
Row = dict[str, Value]
Labels = Mapping[str, str]

#: The version of all report schemas in docs/.
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class ReportOptions:
    """When and by which version reports are made."""

    generated_at: datetime
    version: str = __version__


@dataclass(frozen=True)
class ReportRecords:
    """Rows for spreadsheets, and the columns that they may have."""

    columns: Sequence[str]
    rows: Iterable[Row]


@dataclass(frozen=True)
class Metric:
    """Samples of one name, each with its labels; unknown samples are None."""

    name: str
    title: str
    samples: Sequence[tuple[Labels, float | None]]
    #: The suffix of the name; empty for plain numbers.
    unit: str = ""
    kind: str = "gauge"


@dataclass(frozen=True)
class ReportParts:
    """The parts of a report; each is built only if a format writes it."""

    #: For people, by the name of the format: ``html``, ``md`` or ``terminal``.
    document: Callable[[str], Document]
    #: For programs: JSON.
    content: Callable[[], Content]
    #: For spreadsheets: CSV. None if there is none.
    records: Callable[[], ReportRecords] | None = None
    #: For monitoring: OpenMetrics. None if there is none.
    metrics: Callable[[], Iterable[Metric]] | None = None


def content_of(**parts: Any) -> Content:
    """Return the JSON of a report with these keys; unknown values are None."""
    return {"schema_version": SCHEMA_VERSION, **_valid(parts)}


def _valid(value: Any) -> Any:
    """Convert a value for JSON: no dataclasses, fixes, NaN, infinity, tuples or surrogates."""
    if isinstance(value, float):
        return finite(value)
    if isinstance(value, (str, Fix)):
        return text(str(value))
    if isinstance(value, Mapping):
        return {name: _valid(part) for name, part in value.items()}
    if isinstance(value, Sequence):
        return [_valid(part) for part in value]
    if is_dataclass(value):
        return {field.name: _valid(getattr(value, field.name)) for field in fields(value)}
    return value


def fields_of(record: object, names: str) -> Content:
    """Return attributes as JSON; a mean becomes the two keys of ``mean_fields``.

    Args:
        record: the object with the attributes.
        names: their names, separated by spaces; ``key=attribute`` for another key.
    """
    content: Content = {}
    for key, _, attribute in (name.partition("=") for name in names.split()):
        value = getattr(record, attribute or key)
        content |= mean_fields(key, value) if isinstance(value, Mean) else {key: value}
    return content


def mean_fields(key: str, mean: Mean | None) -> Content:
    """Return a mean as JSON with its interval: ``saved_ms`` and ``saved_ci95_ms``."""
    name = key.removesuffix("_ms")
    value, ci95 = (None, None) if mean is None else (mean.value, mean.ci95)
    return {key: value, f"{name}_ci95{key.removeprefix(name)}": ci95}


def value_of(mean: Mean | None) -> float | None:
    """Return the value of a mean; None if it is not known."""
    return None if mean is None else mean.value


def mean_cells(mean: Mean | None, name: str = "value", interval: str = "ci") -> Row:
    """Return a mean with the ends of its interval; nothing if it is not known."""
    if mean is None:
        return {}
    low, high = mean.ci95 or (None, None)
    return {name: mean.value, f"{interval}_low": low, f"{interval}_high": high}


# -- Formats ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ReportFormat:
    """A format of files. A new one is a function in ``formats/`` and an entry below."""

    #: The name for ``--format``.
    name: str
    #: The suffix of its files.
    suffix: str
    #: Writes the whole report. Of a built-in format, its module in ``formats/`` and its function, which
    #: are imported on first use.
    writer: str | Callable[[ReportParts, ReportOptions], str]


FORMATS = (
    ReportFormat("html", ".html", "html:html_text"),
    ReportFormat("md", ".md", "markdown:markdown_text"),
    ReportFormat("json", ".json", "machine_formats:json_text"),
    ReportFormat("csv", ".csv", "machine_formats:csv_text"),
    ReportFormat("openmetrics", ".prom", "machine_formats:openmetrics_text"),
)
#: The names of these formats.
BUILT_IN = tuple(report_format.name for report_format in FORMATS)
#: The formats of reports on several runs.
SEVERAL_RUNS = ("html", "md", "json", "csv")


@cache
def _formats() -> tuple[ReportFormat, ...]:
    """Return all formats, with those of other packages by the names of their entry points."""
    parts = plugins("reports", ReportFormat, lambda: BUILT_IN)
    return *FORMATS, *(replace(plugin.part, name=plugin.name) for plugin in parts)


def names() -> list[str]:
    """Return the names for ``--format``."""
    return [report_format.name for report_format in _formats()]


def by_name(name: str) -> ReportFormat:
    """Return the format of that name.

    Raises:
        UsageError: if there is none; the message lists the known names.
    """
    for report_format in _formats():
        if report_format.name == name:
            return report_format
    raise UsageError(f"no report format {name!r}: there are {', '.join(names())}")


def render(name: str, parts: ReportParts, options: ReportOptions) -> str:
    """Return the whole report as text, in the format of that name.

    Raises:
        UsageError: if there is no such format.
    """
    writer = by_name(name).writer
    if isinstance(writer, str):
        writer = resolve_name(f"{__package__}.formats.{writer}")
    return str(writer(parts, options))


def parse(words_given: str, known: Sequence[str] = SEVERAL_RUNS) -> list[str]:
    """Return the names in a list such as ``html,md``, each once, in the order given.

    Raises:
        UsageError: if a name is unknown, or the list is empty.
    """
    words = [word.strip().lower() for word in words_given.split(",") if word.strip()]
    if not words:
        raise UsageError(f"no report format in {words_given!r}: there are {', '.join(known)}")
    for word in words:
        if word not in known:
            raise UsageError(f"no report format {word!r}: there are {', '.join(known)}")
    return list(dict.fromkeys(words))
