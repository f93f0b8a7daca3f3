"""The recorder for PyTorch: ``from stallscope.torch import StepLogger``."""

from stallscope.collector.recorder.after_training.gathering import gather_logs
from stallscope.collector.recorder.pytorch.loader import measure_input
from stallscope.collector.recorder.pytorch.logger import StepLogger
from stallscope.collector.recorder.pytorch.synthetic import synthetic_like

__all__ = ["StepLogger", "gather_logs", "measure_input", "synthetic_like"]
