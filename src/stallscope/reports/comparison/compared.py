"""The subject of the report: two runs side by side, or the runs of jobs over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stallscope.analysis.history.comparison import Comparison
from stallscope.analysis.history.regression import History


@dataclass(frozen=True)
class Compared:
    """Either a pair or histories."""

    pair: Comparison | None = None
    histories: Sequence[History] = ()
