"""Offer runs and their analyses to analysts as DataFrames and Plotly figures.

``import stallscope as ss`` has these names, and loads this package when the first of them is used.
"""

from .analysis import Analysis, Scaling, analyse, scaling
from .job_history import Comparison, History, compare, history, runs
from .opened_run import Run, open_run

__all__ = [
    "Analysis",
    "Comparison",
    "History",
    "Run",
    "Scaling",
    "analyse",
    "compare",
    "history",
    "open_run",
    "runs",
    "scaling",
]
