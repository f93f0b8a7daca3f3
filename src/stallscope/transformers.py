"""The recorder for Hugging Face's Trainer: ``from stallscope.transformers import StepLogger``."""

from stallscope.collector.recorder.gathering import gather_logs
from stallscope.collector.recorder.pytorch.batches import synthetic_like
from stallscope.collector.recorder.pytorch.loader_pipeline import measure_input
from stallscope.collector.recorder.pytorch.trainer_callback import StepLogger

__all__ = ["StepLogger", "gather_logs", "measure_input", "synthetic_like"]
