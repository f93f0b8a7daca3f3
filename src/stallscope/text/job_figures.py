"""Round the whole job's time once, for tables, charts and sentences."""

from __future__ import annotations

from dataclasses import fields

from stallscope.analysis import Analysis
from stallscope.analysis.ledger.job_time import JobTime
from stallscope.formatting.numbers import NOT_MEASURED
from stallscope.formatting.sums import SumColumn

#: Parts of the job's time.
JOB_PARTS = tuple(field.name for field in fields(JobTime) if field.name != "total")


def job_column(analysis: Analysis) -> SumColumn:
    """Round the parts of the job so that they add up to it: a part per name of JOB_PARTS.

    Where parts are known, they have one digit more than the total alone: the small ones matter.
    """
    job, finer = analysis.job, int(analysis.ledger is not None)
    parts = [getattr(job, name) for name in JOB_PARTS]
    return SumColumn.of(parts, job.total, unit="s", finer=finer)


def job_texts(analysis: Analysis) -> dict[str, str]:
    """Write the parts of the job's time by name; not measured if steps have no stages."""
    if analysis.ledger is None:
        return dict.fromkeys(JOB_PARTS, NOT_MEASURED)
    printed = job_column(analysis)
    return dict(zip(JOB_PARTS, map(printed.amount, printed.parts), strict=True))
