"""All formats; the first one that recognises a file reads it."""

from __future__ import annotations

from collections.abc import Sequence

from .autotune import AutotuneFormat
from .base import EmbeddedFormat, Format, Parser
from .dftracer.parser import DftracerParser
from .ehealth import EhealthParser
from .flight_recorder import FlightRecorderFormat
from .horovod_log import HorovodLogFormat
from .horovod_runner import HorovodRunnerParser
from .horovod_timeline import HorovodTimelineFormat
from .input_times import InputTimesFormat
from .keras_output import KerasOutputParser
from .kineto import KinetoParser
from .log_records import LogRecordsFormat
from .mlflow_metrics import MlflowMetricsParser
from .mlperf.parser import MlperfParser
from .network_check import NetworkCheckFormat
from .printed_steps.detectron2 import Detectron2Parser
from .printed_steps.maskrcnn_benchmark import MaskrcnnBenchmarkParser
from .printed_steps.mxnet_speedometer import MxnetSpeedometerParser
from .printed_steps.nvidia_bert import NvidiaBertParser
from .printed_steps.openmmlab import OpenmmlabParser
from .printed_steps.pytorch_meters import PytorchMetersParser
from .printed_steps.tensorflow_steps import TensorflowStepsParser
from .printed_steps.tf_cnn_benchmarks import TfCnnBenchmarksParser
from .spark_events import SparkEventsFormat
from .spark_output import SparkOutputFormat
from .step_log import StepLogParser
from .tensorboard import TensorboardParser
from .time_history import TimeHistoryParser

#: Formats of logs, which ``--read-as`` can name.
PARSERS: tuple[Parser, ...] = (
    StepLogParser(),
    MlflowMetricsParser(),
    KinetoParser(),
    DftracerParser(),
    TensorboardParser(),
    EhealthParser(),
    HorovodRunnerParser(),
    TimeHistoryParser(),
    MxnetSpeedometerParser(),
    TensorflowStepsParser(),
    TfCnnBenchmarksParser(),
    PytorchMetersParser(),
    MaskrcnnBenchmarkParser(),
    Detectron2Parser(),
    OpenmmlabParser(),
    NvidiaBertParser(),
    MlperfParser(),
    KerasOutputParser(),
)

#: Formats whose lines occur in any output, and in logs without steps. They are read in this order, and
#: the last one with contents names the file.
EMBEDDED: tuple[EmbeddedFormat, ...] = (
    HorovodLogFormat(),
    SparkEventsFormat(),
    LogRecordsFormat(),
)

FORMATS: tuple[Format, ...] = (
    InputTimesFormat(),
    NetworkCheckFormat(),
    FlightRecorderFormat(),
    *PARSERS,
    *EMBEDDED,
    HorovodTimelineFormat(),
    AutotuneFormat(),
    SparkOutputFormat(),
)

#: How much of a file's start formats may look at to recognise it. Before the first epoch, programs
#: print what they have found, and the summary of a model has hundreds of lines.
START_BYTES = 256 << 10
#: The same for formats that look further: each of a thousand ranks may have printed its settings.
HEAD_BYTES = 4 << 20


def recognise(file_name: str, head: bytes) -> Format | None:
    """Find the format of a whole file by its name and first bytes, None if it is unknown."""
    whole_files = [one for one in FORMATS if one not in EMBEDDED]
    found = _first_of(whole_files, file_name, head[:START_BYTES])
    if found is None and len(head) > START_BYTES:
        further = [one for one in whole_files if one.looks_further]
        found = _first_of(further, file_name, head[:HEAD_BYTES])
    return found


def _first_of(formats: Sequence[Format], file_name: str, head: bytes) -> Format | None:
    return next((one for one in formats if one.recognises(file_name, head)), None)
