"""The parsers there are; the first that recognises a file reads it."""

from __future__ import annotations

from .base import Parser
from .ehealth import EhealthParser
from .horovod_runner import HorovodRunnerParser
from .keras_output import KerasOutputParser
from .kineto import KinetoParser
from .mlflow_metrics import MlflowMetricsParser
from .step_log import StepLogParser
from .tensorboard import TensorboardParser
from .time_history import TimeHistoryParser

PARSERS: tuple[Parser, ...] = (
    StepLogParser(),
    MlflowMetricsParser(),
    KinetoParser(),
    TensorboardParser(),
    EhealthParser(),
    HorovodRunnerParser(),
    TimeHistoryParser(),
    KerasOutputParser(),
)

#: Bytes from a file's beginning that parsers may look at to recognise it. Before the first epoch
#: programs print what they have found, and a model has hundreds of lines.
HEAD_BYTES = 256 << 10


def recognise(file_name: str, head: bytes) -> Parser | None:
    """The parser for a file, by its first bytes; None where no parser knows it."""
    for parser in PARSERS:
        if parser.recognises(file_name, head[:HEAD_BYTES]):
            return parser
    return None
