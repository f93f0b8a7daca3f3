"""The parts of a report: a document, JSON, rows for spreadsheets, and metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from typing import Any

from stallscope import __version__
from stallscope.arrays.stats import Mean
from stallscope.catalogue.entry import text
from stallscope.formatting.numbers import finite
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
