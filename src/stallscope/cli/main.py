"""The ``stallscope`` command: finds the sub-command, and turns errors into exit statuses."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from stallscope import __version__
from stallscope.errors import MissingExtraError, StallscopeError

#: Sub-commands, one module of this package each, with their lines in the overview.
COMMANDS = {
    "report": "where a run's time goes: in the terminal, or as HTML, Markdown, JSON, CSV",
    "compare": "what changed between two runs, or over many of them, and since when",
    "scaling": "throughput and efficiency over numbers of ranks, and where efficiency is lost",
    "tune": "which of Horovod's settings to fix: from autotune logs, Timelines and step logs",
    "inspect": "what is in these logs, file by file, and which runs they make up",
    "export": "a run as a trace for Perfetto or chrome://tracing, or as Parquet or CSV",
    "dashboard": "look at runs in the browser",
    "collect": "bring logs from where they are into a store",
    "runs": "the runs of a store: who is slow, how fast, since when",
    "rm": "remove collected runs from their store",
    "verify": "check collected runs against their checksums",
    "demo": "the bundled sample runs, reported and served",
}

#: Commands whose options may stand in a file, too.
CONFIGURED = ("report",)

FINE = 0
FAILED = 2
_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line.

    Returns:
        The exit status: 0 done, 1 a condition held that was to fail, 2 bad usage or unreadable input.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        command = importlib.import_module(f"stallscope.cli.{_command_of(words)}")
        parser = argparse.ArgumentParser(prog=f"stallscope {words[0]}", description=command.__doc__)
        command.add_arguments(parser)
        return int(command.run(_options(parser, words)))
    except StallscopeError as error:
        return _say(str(error))
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("stallscope"):
            return _defect(error)
        return _say(str(MissingExtraError("app", error.name or "a package")))
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone (| head): nothing is left to say, and nothing to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FINE
    except Exception as error:
        return _defect(error)


def _options(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    """Return the command line's options, for some commands with those of a file in this folder."""
    command, *rest = words
    if command not in CONFIGURED:
        return parser.parse_intermixed_args(rest)
    from stallscope.config import with_config

    found = with_config(parser, command, rest, Path.cwd(), CONFIGURED)
    if found.said:
        print(f"stallscope: {found.said}", file=sys.stderr)
    return found.options


def _command_of(words: list[str]) -> str:
    """The sub-command; help, version and mistakes end here."""
    overview = argparse.ArgumentParser(
        prog="stallscope",
        description="Where the time of every step of distributed training goes.",
        epilog="commands:\n" + "\n".join(f"  {name:<12}{text}" for name, text in COMMANDS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    overview.add_argument("--version", action="version", version=f"stallscope {__version__}")
    overview.add_argument("command", choices=COMMANDS, metavar="command")
    return str(overview.parse_args(words[:1]).command)


def _defect(error: Exception) -> int:
    if os.environ.get("STALLSCOPE_DEBUG"):
        raise error
    return _say(
        f"a defect of Stallscope: {type(error).__name__}: {error}. "
        "STALLSCOPE_DEBUG=1 shows where; please report it."
    )


def _say(message: str) -> int:
    print(f"stallscope: {message}", file=sys.stderr)
    return FAILED


if __name__ == "__main__":
    sys.exit(main())
