"""Reports on how jobs scale."""

from collections.abc import Sequence
from functools import partial

from stallscope.analysis.scaling import ScalingSeries

from ..base import Parts
from .document import document
from .records import json_content, records

__all__ = ["parts"]


def parts(series: Sequence[ScalingSeries]) -> Parts:
    """Return what formats write of the series."""
    return Parts(partial(document, series), partial(json_content, series), partial(records, series))
