"""The figures of a report for spreadsheets, one row each, and for monitoring."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from stallscope.arrays.stats import Mean

Value = str | int | float | bool | None
#: By the name of a column, its value; a value that is not known is None or left out.
Row = dict[str, Value]


@dataclass(frozen=True)
class Records:
    """Rows and the columns that they may have."""

    columns: Sequence[str]
    rows: Iterable[Row]


def mean_cells(mean: Mean | None, name: str = "value", interval: str = "ci") -> Row:
    """Return a mean with the ends of its interval; nothing if it is not known."""
    if mean is None:
        return {}
    low, high = mean.ci95 or (None, None)
    return {name: mean.value, f"{interval}_low": low, f"{interval}_high": high}


Labels = Mapping[str, str]


@dataclass(frozen=True)
class Metric:
    """Samples of one name, each with its labels; a sample that is not known is None."""

    name: str
    title: str
    samples: Sequence[tuple[Labels, float | None]]
    #: The end of the name; empty for plain numbers.
    unit: str = ""
    kind: str = "gauge"
