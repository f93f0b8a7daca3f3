"""The recorder for Keras: ``from stallscope.keras import StepLogger``."""

from stallscope.collector.recorder.tf_keras.callback import StepLogger
from stallscope.collector.recorder.tf_keras.loader import measure_input
from stallscope.collector.recorder.tf_keras.synthetic import synthetic_like

__all__ = ["StepLogger", "measure_input", "synthetic_like"]
