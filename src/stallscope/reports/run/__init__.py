"""Reports on one run."""

from functools import partial

from stallscope.analysis import Analysis

from ..report_formats import Content, ReportParts
from .run_document import document
from .run_records import metrics, records


def parts(analysis: Analysis) -> ReportParts:
    """Return the parts of the report on a run."""
    return ReportParts(
        partial(document, analysis),
        partial(_json_content, analysis),
        partial(records, analysis),
        partial(metrics, analysis),
    )


def _json_content(analysis: Analysis) -> Content:
    # Terminals and pages show nothing of it.
    from .json_content import json_content

    return json_content(analysis)
