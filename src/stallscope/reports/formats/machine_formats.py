"""Write reports for programs: JSON, CSV for spreadsheets, OpenMetrics."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from functools import lru_cache

from stallscope.formatting.numbers import finite
from stallscope.formatting.plain import plain

from ..report_formats import Metric, ReportOptions, ReportParts, Value

# Spreadsheets run a cell that begins like this, in ASCII or in full width (OWASP, "CSV injection").
_FORMULA = tuple("=+-@＝＋－＠")


def json_text(parts: ReportParts, _options: ReportOptions) -> str:
    """Write the content as one object."""
    return json.dumps(parts.content(), indent=1, allow_nan=False) + "\n"


# -- CSV for spreadsheets -------------------------------------------------------------------------


def csv_text(parts: ReportParts, _options: ReportOptions) -> str:
    """Write one row per record. A cell is empty where the value is not known."""
    assert parts.records is not None
    records = parts.records()
    text = io.StringIO()
    writer = csv.DictWriter(text, records.columns, restval="", lineterminator="\r\n")
    writer.writeheader()
    writer.writerows({name: _written(value) for name, value in row.items()} for row in records.rows)
    return text.getvalue()


def _written(value: Value) -> Value:
    if isinstance(value, str):
        return cell(value)
    return finite(value) if isinstance(value, float) else value


@lru_cache(maxsize=1024)
def cell(text: str) -> str:
    """Return text that no spreadsheet takes for a formula."""
    shown = plain(text)
    return f"'{shown}" if shown.lstrip().startswith(_FORMULA) else shown


# -- OpenMetrics 1.0 for Prometheus and other readers of its format -------------------------------


def openmetrics_text(parts: ReportParts, _options: ReportOptions) -> str:
    """Write the figures of a report."""
    assert parts.metrics is not None
    return openmetrics_lines(parts.metrics())


def openmetrics_lines(metrics: Iterable[Metric]) -> str:
    """Write one family per metric. A metric without known samples is left out."""
    lines = [line for metric in metrics for line in _lines(metric)]
    return "\n".join([*lines, "# EOF"]) + "\n"


def _lines(metric: Metric) -> Iterator[str]:
    known = [(labels, finite(value)) for labels, value in metric.samples]
    samples = [(labels, value) for labels, value in known if value is not None]
    if not samples:
        return
    yield f"# TYPE {metric.name} {metric.kind}"
    if metric.unit:
        yield f"# UNIT {metric.name} {metric.unit}"
    yield f"# HELP {metric.name} {metric.title}."
    suffix = "_info" if metric.kind == "info" else ""
    for labels, value in samples:
        text = ",".join(f'{name}="{_label(label)}"' for name, label in labels.items())
        yield f"{metric.name}{suffix}{{{text}}} {float(value)!r}"


def _label(text: str) -> str:
    """Escape a label as the format requires; characters that cannot be seen are written out."""
    return plain(text).replace("\\", "\\\\").replace('"', '\\"')
