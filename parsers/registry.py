"""The parsers there are; the first that recognises a file reads it."""

from __future__ import annotations

from stallscope.errors import UsageError

from .base import Parser
from .keras_output import KerasOutputParser
from .mlflow_metrics import MlflowMetricsParser
from .step_log import StepLogParser

PARSERS: tuple[Parser, ...] = (StepLogParser(), MlflowMetricsParser(), KerasOutputParser())

#: Bytes from a file's beginning that parsers may look at to recognise it. Before the first epoch
#: programs print what they have found, and a model has hundreds of lines.
HEAD_BYTES = 256 << 10


def by_name(name: str) -> Parser:
    """The parser of that name.

    Raises:
        UsageError: if there is none; the message lists those there are.
    """
    for parser in PARSERS:
        if parser.name == name:
            return parser
    raise UsageError(f"no parser {name!r}: there are {', '.join(p.name for p in PARSERS)}")


def recognise(file_name: str, head: bytes) -> Parser | None:
    """The parser for a file, by its first bytes; None where no parser knows it."""
    for parser in PARSERS:
        if parser.recognises(file_name, head[:HEAD_BYTES]):
            return parser
    return None
