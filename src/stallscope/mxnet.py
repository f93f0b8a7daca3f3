"""The recorder for MXNet: ``from stallscope.mxnet import StepLogger``."""

from stallscope.collector.recorder.mxnet.mxnet_recording import StepLogger

__all__ = ["StepLogger"]
