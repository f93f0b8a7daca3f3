"""Simulated jobs, analysed."""

from __future__ import annotations

from simulator import Job, simulate

from stallscope.analysis import Analysis, analyse


def analysis_of_job(job: Job) -> Analysis:
    """Simulate a job and analyse its run, without writing logs."""
    return analyse(simulate(job).run)
