"""The recorder for MXNet: ``from stallscope.mxnet import StepLogger``."""

from stallscope.collector.recorder.mxnet.logger import StepLogger

__all__ = ["StepLogger"]
