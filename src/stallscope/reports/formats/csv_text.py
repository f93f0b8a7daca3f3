"""CSV for spreadsheets."""

from __future__ import annotations

import csv
import io
from functools import lru_cache

from stallscope.formatting.numbers import finite
from stallscope.formatting.plain import plain

from ..base import ReportOptions, ReportParts, Value

# Spreadsheets run a cell that begins like this, in ASCII or in full width (OWASP, "CSV injection").
_FORMULA = tuple("=+-@＝＋－＠")


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
