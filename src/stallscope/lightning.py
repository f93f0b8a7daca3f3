"""The recorder for Lightning: ``from stallscope.lightning import StepLogger``."""

from stallscope.collector.recorder.lightning.callback import StepLogger
from stallscope.collector.recorder.pytorch.loader import measure_input
from stallscope.collector.recorder.pytorch.synthetic import synthetic_like

__all__ = ["StepLogger", "measure_input", "synthetic_like"]
