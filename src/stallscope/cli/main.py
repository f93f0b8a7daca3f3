"""The ``stallscope`` command: run the sub-command, and turn errors into exit statuses."""

from __future__ import annotations

import argparse
import errno
import gc
import importlib
import os
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType, ModuleType

from stallscope import __version__
from stallscope.errors import MissingExtraError, StallscopeError, TerminatedError, UsageError
from stallscope.formatting.plain import plain
from stallscope.formatting.suggestions import did_you_mean

from .examples import examples_of

#: Sub-commands, each a module of this package, with their descriptions in the overview.
COMMANDS = {
    "report": "show where a run's time goes: in the terminal, or as HTML, Markdown, JSON, CSV",
    "summary": "print a run in six lines, as training does at its end",
    "compare": "show what changed between two runs, or when it changed over many",
    "scaling": "show throughput and efficiency over numbers of ranks, and where efficiency is lost",
    "tune": "recommend Horovod settings, from autotune logs, Timelines and step logs",
    "inspect": "list what is in logs, file by file, and which runs they make up",
    "export": "export a run for Perfetto, TensorBoard, W&B, MLflow, or as Parquet or CSV",
    "watch": "follow runs, and report when a job hangs or another condition holds",
    "netcheck": "measure this network's performance, under the launcher of the training",
    "dashboard": "show runs in the browser",
    "collect": "copy logs from where they are into a store",
    "runs": "list the runs of a store, with their throughput and their slow ranks",
    "rm": "remove collected runs from their store",
    "verify": "check collected runs against their checksums",
    "demo": "report on the bundled sample runs, and serve them",
    "completion": "print a script that completes commands in bash, zsh or fish",
}

_DOES = "Show where the time of every step of distributed training goes."
_START = f"""{_DOES}

Start here:
  stallscope demo                         look at recorded sample runs in the browser
  stallscope report FOLDER                summarise the logs of a job in the terminal
  stallscope report FOLDER --format html  write a report with charts
  stallscope dashboard FOLDER             look at a run in the browser, also while it trains
  stallscope inspect FILE                 find out what a log has

FOLDER has the logs that the recorder wrote, or the output, Timelines and traces of a job without it.
stallscope --help lists all commands, stallscope COMMAND --help has examples."""

#: Commands that also read options from a file.
CONFIGURED = ("report",)

SUCCESS = 0
FAILED = 2
_INTERRUPTED, _TERMINATED = 130, 143
_MOST_WARNINGS = 20
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line.

    Returns:
        The exit status: 0 for success, 1 if a condition of ``--fail-if`` or ``--when`` held, 2 for bad
        usage or unreadable input, 3 if a figure of ``--fail-if`` is missing, 130 after Ctrl-C, 143 after
        SIGTERM.
    """
    if arguments is None:
        # Stallscope's own process, still without threads: MLflow sends no statistics for its user.
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    argv = list(sys.argv[1:] if arguments is None else arguments)
    with _termination_raised():
        return _run(argv)


def _run(argv: list[str]) -> int:
    try:
        if not argv:
            print(_START)
            return SUCCESS
        command = _imported(f"stallscope.cli.{_command_of(argv)}")
        parser = argparse.ArgumentParser(
            prog=f"stallscope {argv[0]}",
            description=command.__doc__,
            epilog=examples_of(argv[0]),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_arguments(parser)
        return int(command.run(_options(parser, argv)))
    except StallscopeError as error:
        return _fail(str(error))
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("stallscope"):
            return _fail_by_defect(error)
        return _fail(str(MissingExtraError("app", error.name or "a package")))
    except KeyboardInterrupt as error:
        # Another one while Python ends would print a traceback. Only the main thread may set this.
        with suppress(ValueError):
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        return _TERMINATED if isinstance(error, TerminatedError) else _INTERRUPTED
    except SystemExit as error:
        # Rich exits if the reader of the output has closed the pipe.
        if isinstance(error.__context__, BrokenPipeError):
            return SUCCESS
        raise
    except BrokenPipeError:
        # The reader of the output has closed the pipe (| head): flush nothing.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return SUCCESS
    except OSError as error:
        if error.errno in _NO_SPACE:
            return _fail(f"{error.filename or 'the output'} cannot be written: {error.strerror}")
        if isinstance(error, PermissionError) and error.filename is not None:
            return _fail(f"{error.filename}: {error.strerror}; choose a place that you may use")
        return _fail_by_defect(error)
    except Exception as error:
        return _fail_by_defect(error)


@contextmanager
def _termination_raised() -> Iterator[None]:
    """Let SIGTERM raise an error in the block, so that processes and temporary files are removed."""

    def terminate(_signal: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise TerminatedError

    try:
        before = signal.signal(signal.SIGTERM, terminate)
    except ValueError:  # not in the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _imported(name: str) -> ModuleType:
    """Import the module of a command."""
    if name in sys.modules or not gc.isenabled():
        return importlib.import_module(name)
    # Modules stay in memory: searching them for garbage takes a tenth of the time of a small report.
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        gc.freeze()
        gc.enable()


def _options(parser: argparse.ArgumentParser, argv: list[str]) -> argparse.Namespace:
    """Return the command line's options; some commands add those of a file in this folder."""
    command, *rest = argv
    if command not in CONFIGURED:
        return parser.parse_intermixed_args(rest)
    from stallscope.config import with_config

    parsed = with_config(parser, command, rest, Path.cwd(), CONFIGURED)
    if parsed.notice:
        print(f"stallscope: {parsed.notice}", file=sys.stderr)
    return parsed.options


def _command_of(argv: list[str]) -> str:
    """Return the sub-command; exit for help and the version.

    Raises:
        UsageError: if there is no such command.
    """
    overview = argparse.ArgumentParser(
        prog="stallscope",
        description=_DOES,
        epilog="commands:\n" + "\n".join(f"  {name:<12}{text}" for name, text in COMMANDS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    overview.add_argument("--version", action="version", version=f"stallscope {__version__}")
    overview.add_argument("command", metavar="command")
    command = str(overview.parse_args(argv[:1]).command)
    if command not in COMMANDS:
        hint = did_you_mean(command, COMMANDS, "stallscope --help lists the commands")
        raise UsageError(f'no such command: "{command}"; {hint}')
    return command


def _fail_by_defect(error: Exception) -> int:
    if os.environ.get("STALLSCOPE_DEBUG"):
        raise error
    return _fail(
        f"a defect of Stallscope: {type(error).__name__}: {error}. "
        "STALLSCOPE_DEBUG=1 shows where; please report it."
    )


def print_failures(failures: Iterable[str]) -> int:
    """Print error messages; return the exit status."""
    status = SUCCESS
    for failure in failures:
        status = _fail(failure)
    return status


def print_warnings(warnings: Sequence[str]) -> None:
    """Print a line for each warning; of very many, the first ones and how many more there are."""
    for warning in warnings[:_MOST_WARNINGS]:
        print(f"stallscope: warning: {plain(warning)}", file=sys.stderr)
    if len(warnings) > _MOST_WARNINGS:
        more = len(warnings) - _MOST_WARNINGS
        print(
            f"stallscope: … and {more:,} more warnings; stallscope inspect lists all files",
            file=sys.stderr,
        )


def add_read_as(parser: argparse.ArgumentParser) -> None:
    """Add ``--read-as``."""
    parser.add_argument(
        "--read-as",
        metavar="NAME",
        help="the parser for all files: a format's name, pattern:…, or mypackage.module:Class",
    )


def _fail(message: str) -> int:
    print(f"stallscope: {message}", file=sys.stderr)
    return FAILED


if __name__ == "__main__":
    sys.exit(main())
