"""All formats; the first one that recognises a file reads it.

The formats of the recorder's files are always imported, the others only for other files.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any

from .base import EmbeddedFormat, Format, Parser
from .formats.measurements.input_times import InputTimesFormat
from .formats.measurements.network_check import NetworkCheckFormat
from .formats.step_log.parser import StepLogParser

#: The formats of the recorder's files, which no other format recognises.
STEP_LOG = StepLogParser()
_RECORDED: tuple[Format, ...] = (InputTimesFormat(), NetworkCheckFormat(), STEP_LOG)

# Other formats of logs, which ``--read-as`` can name.
_PARSERS = (
    "mlflow.parser:MlflowMetricsParser",
    "kineto:KinetoParser",
    "dftracer.parser:DftracerParser",
    "tensorboard:TensorboardParser",
    "ehealth:EhealthParser",
    "horovod_runner:HorovodRunnerParser",
    "printed_steps.time_history:TimeHistoryParser",
    "printed_steps.mxnet_speedometer:MxnetSpeedometerParser",
    "printed_steps.tensorflow_steps:TensorflowStepsParser",
    "printed_steps.tf_cnn_benchmarks:TfCnnBenchmarksParser",
    "printed_steps.pytorch_meters:PytorchMetersParser",
    "printed_steps.torchvision:TorchvisionParser",
    "printed_steps.maskrcnn_benchmark:MaskrcnnBenchmarkParser",
    "printed_steps.detectron2:Detectron2Parser",
    "printed_steps.openmmlab:OpenmmlabParser",
    "printed_steps.nvidia_bert:NvidiaBertParser",
    "mlperf.parser:MlperfParser",
    "keras_output.parser:KerasOutputParser",
)
# Formats with lines in any output, and in logs without steps. They are read in this order, and the last
# one with contents names the file.
_EMBEDDED = (
    "horovod_log:HorovodLogFormat",
    "spark.events:SparkEventsFormat",
    "log_records:LogRecordsFormat",
)
# Formats of files next to logs: some are tried before the logs' formats, the others after all.
_COMPANIONS_FIRST = ("flight_recorder:FlightRecorderFormat",)
_COMPANIONS_LAST = (
    "horovod_timeline:HorovodTimelineFormat",
    "autotune:AutotuneFormat",
    "spark.output:SparkOutputFormat",
)

#: The start of a file by which it is recognised. Before the first epoch, programs print their settings,
#: and the summary of a model has hundreds of lines.
START_BYTES = 256 << 10
#: The same for formats that look further: each of a thousand ranks may print its settings.
HEAD_BYTES = 4 << 20


@cache
def parsers() -> tuple[Parser, ...]:
    """Return the formats of logs."""
    return STEP_LOG, *map(_new_format, _PARSERS)


@cache
def embedded() -> tuple[EmbeddedFormat, ...]:
    """Return the formats with lines anywhere."""
    return tuple(map(_new_format, _EMBEDDED))


@cache
def formats() -> tuple[Format, ...]:
    """Return all formats."""
    return *_RECORDED, *_others(), *embedded()


@cache
def _others() -> tuple[Format, ...]:
    """Return the formats of whole files other than the recorder's, in the order to try them."""
    before, after = (map(_new_format, names) for names in (_COMPANIONS_FIRST, _COMPANIONS_LAST))
    return *before, *parsers()[1:], *after


def _new_format(name: str) -> Any:
    """Import a format, ``module:Class`` in ``formats``, and make it."""
    module, _, kind = name.partition(":")
    return getattr(import_module(f".formats.{module}", __package__), kind)()


def recognise(file_name: str, head: bytes) -> Format | None:
    """Find the format of a whole file by its name and first bytes; None if it is unknown."""
    recorded = _first_of(_RECORDED, file_name, head[:START_BYTES])
    if recorded is not None:
        return recorded
    whole_files = _others()
    file_format = _first_of(whole_files, file_name, head[:START_BYTES])
    if len(head) > START_BYTES and (file_format is None or file_format.gives_way):
        further = [candidate for candidate in whole_files if candidate.looks_further]
        file_format = _first_of(further, file_name, head[:HEAD_BYTES]) or file_format
    return file_format


def _first_of(formats: Sequence[Format], file_name: str, head: bytes) -> Format | None:
    return next((candidate for candidate in formats if candidate.recognises(file_name, head)), None)
