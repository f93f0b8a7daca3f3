"""Read options from a file: ``[report]`` of stallscope.toml, or a table of pyproject.toml."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomllib

from .errors import UsageError

#: The files with tables of options, and the parents of the tables; the first file with a table counts.
PLACES = (("stallscope.toml", ()), ("pyproject.toml", ("tool", "stallscope")))


@dataclass(frozen=True)
class OptionsWithNotice:
    """Options, and a line about those that came from a file; empty if none did."""

    options: argparse.Namespace
    notice: str


def with_config(
    parser: argparse.ArgumentParser,
    command: str,
    arguments: Sequence[str],
    folder: Path,
    commands: Collection[str],
) -> OptionsWithNotice:
    """Parse a command line; take options that it lacks from the folder's file, if there is one.

    Args:
        parser: the command's parser.
        command: the command's name.
        arguments: the command line after that name.
        folder: the folder that may have the file.
        commands: all commands that may have a table in the file.

    Raises:
        UsageError: if the file cannot be read, or has an unknown table or option, or a value of the
            wrong type.
    """
    place, table = _table(folder, command, commands)
    values = {name: _value(parser, place, name, value) for name, value in table.items()}
    for name in values:
        # Without a default, an option that the command line lacks has no attribute.
        _action(parser, place, name).default = argparse.SUPPRESS
    options = parser.parse_intermixed_args(arguments)
    used = []
    for name, value in values.items():
        target = _action(parser, place, name).dest
        if not hasattr(options, target):
            setattr(options, target, value)
            used.append(f"{name} = {_format(value)}")
    return OptionsWithNotice(options, f"from {place}: {', '.join(used)}" if used else "")


def _table(folder: Path, command: str, commands: Collection[str]) -> tuple[str, Mapping[str, Any]]:
    """Return the location and the content of the first table; empty ones if there is no table."""
    for file, above in PLACES:
        path = folder / file
        if not path.is_file():
            continue
        try:
            table: Any = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UsageError(f"{file}: cannot be read: {error}") from error
        for part in above:
            table = table.get(part, {}) if isinstance(table, dict) else {}
        for name in table:
            _check_name(f"{file}: there is no table {'.'.join((*above, name))}", name, commands)
        name = ".".join((*above, command))
        if command not in table:
            continue
        if not isinstance(table[command], dict):
            raise UsageError(f"{file}: [{name}] must be a table of options")
        return f"[{name}] of {file}", table[command]
    return "", {}


def _check_name(message: str, name: str, names: Collection[str]) -> None:
    """Check that the name is one of ``names``.

    Raises:
        UsageError: if it is not; the message suggests the closest name.
    """
    if name not in names:
        closest = difflib.get_close_matches(name, names, n=1, cutoff=0.0)
        raise UsageError(f"{message}; did you mean {closest[0]}?")


def _action(parser: argparse.ArgumentParser, place: str, name: str) -> argparse.Action:
    known = {
        option.removeprefix("--"): action
        for action in parser._actions
        for option in action.option_strings
        if option.startswith("--") and action.dest != "help"
    }
    _check_name(f"{place}: there is no option {name}", name, known)
    return known[name]


def _value(parser: argparse.ArgumentParser, place: str, name: str, value: Any) -> Any:
    """Convert a value of the file to what the command line would give."""
    action = _action(parser, place, name)
    if action.nargs == 0:
        if not isinstance(value, bool):
            raise UsageError(f"{place}: {name} must be true or false")
        return value
    several = isinstance(value, list)
    texts = [_text(place, name, item) for item in (value if several else [value])]
    if isinstance(action, argparse._AppendAction):
        return [_convert(action, place, name, text) for text in texts]
    # Options that take a list separate its items by commas.
    return _convert(action, place, name, ",".join(texts))


def _text(place: str, name: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise UsageError(f"{place}: {name} must be a string, a number, or a list of those")
    return str(value)


def _convert(action: argparse.Action, place: str, name: str, text: str) -> Any:
    if not callable(action.type):
        return text
    try:
        return action.type(text)
    except (ValueError, TypeError, argparse.ArgumentTypeError):
        raise UsageError(f"{place}: {name} = {text} is not a valid value") from None


def _format(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
