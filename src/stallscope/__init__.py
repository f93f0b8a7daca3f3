"""Stallscope: where the time of distributed training goes, who causes it, what fixing it gains."""

__version__ = "0.1.0"
