"""The JSON of reports: what all families share."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from stallscope.arrays.stats import Mean
from stallscope.formatting.numbers import Interval

#: A JSON object.
Content = dict[str, Any]

#: Of all schemas of reports in docs/.
SCHEMA_VERSION = 1
# No encoding of text can hold them.
_LONE_SURROGATES = re.compile("[\ud800-\udfff]")


def value_of(mean: Mean | None) -> float | None:
    """Return the value of a mean; None if it is not known."""
    return None if mean is None else mean.value


def ci95_of(mean: Mean | None) -> Interval | None:
    """Return the interval of a mean; None if it is not known."""
    return None if mean is None else mean.ci95


def valid(value: Any) -> Any:
    """Return what JSON can hold: no NaN, no infinity, no tuples, no lone surrogates."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return _LONE_SURROGATES.sub("\ufffd", value)
    if isinstance(value, Mapping):
        return {name: valid(own) for name, own in value.items()}
    if isinstance(value, Sequence):
        return [valid(own) for own in value]
    return value
