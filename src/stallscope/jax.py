"""The recorder for JAX, with Flax, Optax or neither: ``from stallscope.jax import StepLogger``."""

from stallscope.collector.recorder.jax.loader import measure_input
from stallscope.collector.recorder.jax.logger import StepLogger
from stallscope.collector.recorder.jax.synthetic import synthetic_like

__all__ = ["StepLogger", "measure_input", "synthetic_like"]
