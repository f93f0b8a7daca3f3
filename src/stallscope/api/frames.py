"""Build DataFrames and figures: types of columns, and missing values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from stallscope.analysis import ENTRIES
from stallscope.arrays.stats import Mean
from stallscope.charts import Colour
from stallscope.charts.charts import Chart
from stallscope.charts.plotly_figures import figure
from stallscope.words import CAUSES, STAGES

#: The content of a column: numbers, whole numbers that are always known (``index``) or may be missing
#: (``count``), yes or no, text, a few names, moments in UTC, or tuples.
Kind = Literal["number", "index", "count", "flag", "text", "name", "moment", "tuple"]
Columns = Mapping[str, Kind | pd.CategoricalDtype]
_DTYPES: Mapping[Kind, str] = {
    "number": "float64",
    "moment": "datetime64[ns, UTC]",
    "index": "int64",
    "count": "Int64",
    "flag": "boolean",
    "text": "string",
    "name": "category",
    "tuple": "object",
}
#: The order of a step.
ENTRY = pd.CategoricalDtype([*ENTRIES], ordered=True)
CAUSE = pd.CategoricalDtype([*CAUSES], ordered=True)
STAGE = pd.CategoricalDtype([*STAGES], ordered=True)

_BACKGROUND = Colour("#ffffff", "#1b1f24")


def frame(
    rows: Iterable[Mapping[str, Any]], columns: Columns, index: Sequence[str] = ()
) -> pd.DataFrame:
    """Build a DataFrame from rows; values that are None or left out are missing.

    Args:
        rows: by the name of a column, its value.
        columns: all columns in their order, also those of the index; without rows they are empty.
        index: the columns that become the index; without any, rows are numbered.
    """
    listed = list(rows)
    series = {
        name: column([row.get(name) for row in listed], kind) for name, kind in columns.items()
    }
    table = pd.DataFrame(series)
    return table.set_index([*index]) if index else table


def typed(table: pd.DataFrame, columns: Columns, index: Sequence[str] = ()) -> pd.DataFrame:
    """Convert a DataFrame to these columns in their order; values of columns that it lacks are missing.

    Args:
        table: a DataFrame with all values in columns, not in an index.
        columns: see ``frame``.
        index: see ``frame``.
    """
    whole = table.reindex(columns=[*columns])
    whole = whole.astype({name: _dtype(kind) for name, kind in columns.items()})
    return in_order(whole.set_index([*index])) if index else whole


def in_order(table: pd.DataFrame) -> pd.DataFrame:
    """Sort a DataFrame by its index, so that slices of it work; equal rows keep their order."""
    # It may be unsorted because a restart repeats steps.
    return table if table.index.is_monotonic_increasing else table.sort_index(kind="stable")


def _dtype(kind: Kind | pd.CategoricalDtype) -> str | pd.CategoricalDtype:
    return kind if isinstance(kind, pd.CategoricalDtype) else _DTYPES[kind]


def column(values: Sequence[Any], kind: Kind | pd.CategoricalDtype) -> pd.Series[Any]:
    """Make a column of values in which None is missing."""
    if kind == "number":
        return pd.Series(
            np.array([np.nan if value is None else value for value in values], np.float64)
        )
    if kind == "moment":
        moments = pd.to_datetime(pd.Series(values, dtype="object"), utc=True, format="ISO8601")
        return moments.dt.as_unit("ns")
    if kind == "name":
        # If all text is missing, pandas would make a category of numbers.
        return pd.Series(values, dtype="string").astype("category")
    return pd.Series(values, dtype=_dtype(kind))


def interval(mean: Mean | None, name: str, unit: str = "") -> dict[str, float | None]:
    """Return a mean and the ends of its 95 % interval as cells.

    Args:
        mean: None if it is not known.
        name: the name of the mean, without its unit.
        unit: the end of all three names: ``_ms``.
    """
    value, ends = (None, None) if mean is None else (mean.value, mean.ci95)
    low, high = ends or (None, None)
    return {f"{name}{unit}": value, f"{name}_ci_low{unit}": low, f"{name}_ci_high{unit}": high}


def interval_columns(name: str, unit: str = "") -> dict[str, Kind]:
    """Return the columns that ``interval`` fills."""
    return dict.fromkeys(interval(None, name, unit), "number")


# -- Draw charts as Plotly figures with a background, so that they are readable anywhere ----------


def figures_of(charts: Mapping[str, Chart | None], *, dark: bool) -> dict[str, go.Figure]:
    """Draw charts by name.

    Args:
        charts: the charts; None if there is nothing to draw.
        dark: whether the page is dark.
    """
    background = _BACKGROUND.dark if dark else _BACKGROUND.light
    return {
        name: figure(chart, dark=dark).update_layout(paper_bgcolor=background)
        for name, chart in charts.items()
        if chart is not None
    }
