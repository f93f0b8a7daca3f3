"""Reports on which of Horovod's settings to pin."""

from collections.abc import Sequence
from functools import partial

from stallscope.analysis.tuning import Tuning

from ..report_formats import ReportParts
from .tuning_document import document, json_content

__all__ = ["FORMATS", "parts"]

#: The formats of these reports.
FORMATS = ("md", "json")


def parts(tuning: Tuning, warnings: Sequence[str] = ()) -> ReportParts:
    """Return the parts of the report on settings.

    Args:
        warnings: about what was not read at the places that were named.
    """
    return ReportParts(partial(document, tuning, warnings), partial(json_content, tuning, warnings))
