"""The recorder for Lightning: ``from stallscope.lightning import StepLogger``."""

from stallscope.collector.recorder.pytorch.batches import synthetic_like
from stallscope.collector.recorder.pytorch.lightning_callback import StepLogger
from stallscope.collector.recorder.pytorch.loader_pipeline import measure_input

__all__ = ["StepLogger", "measure_input", "synthetic_like"]
