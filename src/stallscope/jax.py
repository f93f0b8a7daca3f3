"""The recorder for JAX, with Flax, Optax or neither: ``from stallscope.jax import StepLogger``."""

from stallscope.collector.recorder.jax.logger import StepLogger

__all__ = ["StepLogger"]
