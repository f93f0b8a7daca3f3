"""The recorder for JAX, with Flax, Optax or neither: ``from stallscope.jax import StepLogger``."""

from stallscope.collector.recorder.jax.jax_logger import StepLogger, measure_input, synthetic_like

__all__ = ["StepLogger", "measure_input", "synthetic_like"]
