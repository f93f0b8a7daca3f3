"""All formats, by name and in order; the first one that recognises a file reads it.

The formats of the recorder's files are always imported, the others only for other files.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

from stallscope.errors import StallscopeError, UnreadableError, UsageError
from stallscope.plugins import plugins

from .base import PATTERN, EmbeddedFormat, Format, Parsed, Parser
from .formats.measurements import InputTimesFormat, NetworkCheckFormat
from .formats.step_log.step_log_parser import StepLogParser

#: The formats of the recorder's files, which no other format recognises.
STEP_LOG = StepLogParser()
_RECORDED: tuple[Format, ...] = (InputTimesFormat(), NetworkCheckFormat(), STEP_LOG)
# Other formats of logs, which ``--read-as`` can name.
_PARSERS = (
    "mlflow:MlflowMetricsParser",
    "kineto:KinetoParser",
    "dftracer:DftracerParser",
    "tensorboard:TensorboardParser",
    "horovod_runner:EhealthParser",
    "horovod_runner:HorovodRunnerParser",
    "printed_steps.step_lines_parser:known_trainers",
    "mlperf.mlperf_parser:MlperfParser",
    "keras_output:KerasOutputParser",
)
# Any lines about steps, in files that no other format recognises.
_ANY_STEPS = "printed_steps.step_lines_parser:StepLinesParser"
# Formats with lines in any output, and in logs without steps. They are read in this order, and the last
# one with contents names the file.
_EMBEDDED = (
    "job_messages:JobMessagesFormat",
    "spark:SparkEventsFormat",
    "step_log.step_log_parser:LogRecordsFormat",
)
# Formats of files next to logs: some are tried before the logs' formats, the others after all.
_COMPANIONS_FIRST = ("flight_recorder:FlightRecorderFormat",)
_COMPANIONS_LAST = (
    "horovod_timeline:HorovodTimelineFormat",
    "autotune:AutotuneFormat",
    "spark:SparkOutputFormat",
)
#: The start of a file by which it is recognised. Before the first epoch, programs print their settings,
#: and the summary of a model has hundreds of lines.
START_BYTES = 256 << 10
#: The same for formats that look further: each of a thousand ranks may print its settings.
HEAD_BYTES = 4 << 20


@cache
def parsers() -> tuple[Parser, ...]:
    """Return the formats of logs; those of other packages are tried before those of other trainers."""
    brought = (parser for parser, _ in _of_packages())
    return STEP_LOG, *brought, *_built_in(), _any_steps()


@cache
def _any_steps() -> Parser:
    parser: Parser = _new_format(_ANY_STEPS)
    return parser


@cache
def _built_in() -> tuple[Parser, ...]:
    # Known trainers are several.
    entries = map(_new_format, _PARSERS)
    return tuple(chain(*(entry if isinstance(entry, tuple) else (entry,) for entry in entries)))


@cache
def _of_packages() -> tuple[tuple[Parser, str], ...]:
    """Return the parsers that other packages bring, each with its package."""
    parts = plugins(
        "parsers", Parser, lambda: [parser.name for parser in (STEP_LOG, *_built_in())], calls=True
    )
    return tuple((_Guarded(plugin.part, plugin.name), plugin.package) for plugin in parts)


def names_of_plugins() -> list[str]:
    """Return the names of the parsers that other packages bring, each with its package."""
    return [f"{parser.name} ({package})" for parser, package in _of_packages()]


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
    return *before, *parsers()[1:-1], *after, _any_steps()


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


# -- Find the parser that a user names: by its name, by a pattern, or by its import path ----------


def by_name(name: str) -> Parser:
    """Return the parser with a name, ``pattern:…``, or ``mypackage.module:Class``.

    Raises:
        UsageError: if there is none; the message lists the known names, or has the error.
    """
    for parser in parsers():
        if parser.name == name:
            return parser.named()
    if name.startswith(PATTERN):
        # It needs the readers of epochs, and only some commands have a pattern.
        from .formats.line_pattern import LinePatternParser

        return LinePatternParser(name.removeprefix(PATTERN))
    if ":" in name:
        return _Guarded(_imported(name))
    known = ", ".join(parser.name for parser in parsers())
    raise UsageError(
        f"no parser {name!r}: there are {known}, {PATTERN}PATTERN, and your own as "
        "mypackage.module:Class"
    )


def _imported(name: str) -> Parser:
    module_name, _, class_name = name.partition(":")
    try:
        with _current_folder_first():
            module = importlib.import_module(module_name)
    except Exception as error:  # a user's module may raise anything
        raise UsageError(
            f"--read-as {name}: {module_name!r} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    parser_class = getattr(module, class_name, None)
    if parser_class is None:
        raise UsageError(f"--read-as {name}: {module_name} has no {class_name!r}")
    if not isinstance(parser_class, type) or not issubclass(parser_class, Parser):
        raise UsageError(
            f"--read-as {name}: {class_name} is not a class derived from stallscope.parsers.Parser"
        )
    try:
        return parser_class()
    except Exception as error:
        raise UsageError(
            f"--read-as {name}: {class_name}() failed: {type(error).__name__}: {error}"
        ) from error


@contextmanager
def _current_folder_first() -> Iterator[None]:
    """Import from the current folder first in this block; the path has the environment's folder.

    Afterwards the folder is last: the user's module may import others later, and none of them replaces
    a module of Python or of a library.
    """
    here = str(Path.cwd())
    if here in sys.path:
        yield
        return
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)
        sys.path.append(here)


# What every format says of itself, beside its names.
_OF_FORMATS = (
    *("note", "has_steps", "certain", "replaces_epochs"),
    *("reads_stated_ranks", "looks_further", "gives_way"),
)


class _Guarded(Parser):
    """A user's parser, with its errors as errors of the file, so that other files are still read.

    Args:
        parser: the parser.
        name: the name of a plug-in's entry point; the parser's own by default.
    """

    def __init__(self, parser: Parser, name: str = "") -> None:
        self._parser = parser
        kind = type(parser)
        # These attributes may be missing.
        self.name = name or getattr(parser, "name", kind.__name__)  # type: ignore[misc]
        self.title = getattr(parser, "title", kind.__name__)  # type: ignore[misc]
        self.suffix = getattr(parser, "suffix", "")  # type: ignore[misc]
        for attribute in _OF_FORMATS:
            setattr(self, attribute, getattr(parser, attribute))

    def recognises(self, file_name: str, head: bytes) -> bool:
        try:
            return bool(self._parser.recognises(file_name, head))
        except Exception:  # a file that it cannot even look at is not its own
            return False

    def parse(self, path: str, data: bytes) -> Parsed:
        try:
            parsed = self._parser.parse(path, data)
        except StallscopeError:
            raise
        except Exception as error:
            raise UnreadableError(
                f"{path}: the parser {self.name} failed: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(parsed, Parsed):
            raise UnreadableError(f"{path}: the parser {self.name} did not return a Parsed")
        return parsed
