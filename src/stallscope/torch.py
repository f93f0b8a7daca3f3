"""The recorder for PyTorch: ``from stallscope.torch import StepLogger``."""

from stallscope.collector.recorder.gathering import gather_logs
from stallscope.collector.recorder.pytorch.batches import synthetic_like
from stallscope.collector.recorder.pytorch.loader_pipeline import measure_input
from stallscope.collector.recorder.pytorch.pytorch_logger import StepLogger

__all__ = ["StepLogger", "gather_logs", "measure_input", "synthetic_like"]
