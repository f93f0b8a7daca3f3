"""Print a script that completes commands, options and paths in a shell."""

from __future__ import annotations

import argparse
import importlib

import shtab

from .main import COMMANDS, SUCCESS

SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS)


def run(options: argparse.Namespace) -> int:
    print(shtab.complete(_whole_parser(), options.shell))
    return SUCCESS


def _whole_parser() -> argparse.ArgumentParser:
    """Return one parser with all commands; they are parsed one at a time otherwise."""
    parser = argparse.ArgumentParser(prog="stallscope")
    parser.add_argument("--version", action="store_true", help="print the version")
    commands = parser.add_subparsers()
    for name, description in COMMANDS.items():
        command = commands.add_parser(name, help=description)
        importlib.import_module(f"stallscope.cli.{name}").add_arguments(command)
        for action in command._actions:
            if action.nargs != 0 and not action.choices:
                # Most values are paths; shtab reads this attribute.
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    return parser
