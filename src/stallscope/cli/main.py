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
from stallscope.formatting.plain import did_you_mean, plain

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
    "mcp": "let an assistant read runs, by the Model Context Protocol",
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

#: By command: command lines, and what they do.
EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "report": (
        ("stallscope report logs/run-42", "a summary in the terminal"),
        (
            "stallscope report logs/run-42 --baseline logs/synthetic --format html",
            "a page, with a baseline",
        ),
        ("stallscope report runs#clean", "one run of a store, by its name or the start of its id"),
        (
            "stallscope report runs --format html,json --out nightly",
            "all runs of a store, with an index",
        ),
        ("stallscope report logs/run-42 --fail-if 'input.share>20%'", "a gate for a pipeline"),
    ),
    "summary": (("stallscope summary logs/run-42", "verdict, stragglers and gain in six lines"),),
    "compare": (
        ("stallscope compare logs/before logs/after", "what changed, in the terminal"),
        ("stallscope compare runs#7a7d runs#9c55 --format html", "two runs of a store, as a page"),
    ),
    "scaling": (
        (
            "stallscope scaling logs/ranks-1 logs/ranks-4 logs/ranks-8",
            "efficiency over 1, 4, 8 ranks",
        ),
    ),
    "tune": (
        ("stallscope tune autotune.csv logs/run-42", "settings that suit this job's gradients"),
    ),
    "inspect": (
        ("stallscope inspect logs/", "which files have logs, of which runs"),
        ("stallscope inspect train.log", "a pattern for lines that no parser knows"),
    ),
    "export": (
        (
            "stallscope export logs/run-42 --format perfetto --out run-42.pftrace",
            "for ui.perfetto.dev",
        ),
        (
            "stallscope export logs/run-42 --format parquet --out steps.parquet",
            "steps and ranks, for pandas",
        ),
    ),
    "watch": (
        ("stallscope watch logs/run-42", "report when the job hangs, and which rank is missing"),
        (
            "stallscope watch ssh://node-1/logs/run-42 --notify https://example.com/hooks/training",
            "POST each event",
        ),
        (
            "stallscope watch logs --when 'stopped.seconds>60' --notify 'mail -s hangs ada@example.com'",
            "send mail once a job hangs for a minute",
        ),
        ("stallscope watch runs --once --format json", "look once, for a script"),
    ),
    "netcheck": (
        ("horovodrun -np 4 stallscope netcheck logs/run-42", "under horovodrun"),
        ("torchrun --nproc-per-node 4 -m stallscope netcheck logs/run-42", "under torchrun"),
    ),
    "dashboard": (
        ("stallscope dashboard logs/run-42", "one run, also while it trains"),
        ("stallscope dashboard runs --port 8080", "all runs of a store"),
    ),
    "collect": (
        ("stallscope collect logs/run-42 --to runs", "copy logs into a store"),
        (
            "stallscope collect s3://bucket/logs --to runs --follow",
            "and continue while the job writes them",
        ),
    ),
    "runs": (
        (
            "stallscope runs runs --where 'verdict=input and ranks>=8'",
            "runs that wait for their input",
        ),
        ("stallscope runs runs --sort step_ms --json", "all of them, for a script"),
    ),
    "rm": (("stallscope rm runs#7a7d --yes", "remove one run"),),
    "verify": (("stallscope verify runs", "read every file of a store"),),
    "mcp": (("stallscope mcp runs logs/run-42", "what an assistant starts, with what it may see"),),
    "demo": (("stallscope demo --no-serve", "only the reports on the sample runs"),),
    "completion": (
        (
            "stallscope completion bash > ~/.local/share/bash-completion/completions/stallscope",
            "for bash",
        ),
        ("stallscope completion zsh > ~/.zfunc/_stallscope", "for zsh, with ~/.zfunc in its fpath"),
        ("stallscope completion fish > ~/.config/fish/completions/stallscope.fish", "for fish"),
    ),
}


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
        command = _import_command(f"stallscope.cli.{_command_of(argv)}")
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


def _import_command(name: str) -> ModuleType:
    if name in sys.modules:
        return sys.modules[name]
    with importing():
        return importlib.import_module(name)


@contextmanager
def importing() -> Iterator[None]:
    """Import modules within the block, faster.

    Modules stay in memory: searching them for garbage takes a tenth of the time of a small report.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
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

# -- Examples of every command, which its ``--help`` shows ----------------------------------------


def examples_of(command: str) -> str:
    """Return the examples of a command as text for the end of its help."""
    lines = [f"  {line}\n      {does}" for line, does in EXAMPLES[command]]
    return "examples:\n" + "\n".join(lines)
