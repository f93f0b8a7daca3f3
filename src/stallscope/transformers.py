"""The recorder for Hugging Face's Trainer: ``from stallscope.transformers import StepLogger``."""

from stallscope.collector.recorder.after_training.gathering import gather_logs
from stallscope.collector.recorder.pytorch.loader import measure_input
from stallscope.collector.recorder.pytorch.synthetic import synthetic_like
from stallscope.collector.recorder.transformers.callback import StepLogger

__all__ = ["StepLogger", "gather_logs", "measure_input", "synthetic_like"]
