"""Options from a file: ``[report]`` of stallscope.toml, or its like in pyproject.toml."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomllib

from .errors import UsageError

#: Where tables of options may stand, and below what there; of several files the first counts.
PLACES = (("stallscope.toml", ()), ("pyproject.toml", ("tool", "stallscope")))


@dataclass(frozen=True)
class Configured:
    """Options, and what came from a file: empty, or one line that says it."""

    options: argparse.Namespace
    said: str


def with_config(
    parser: argparse.ArgumentParser,
    command: str,
    words: Sequence[str],
    folder: Path,
    commands: Collection[str],
) -> Configured:
    """Read a command line; options that it does not have come from the folder's file, if it has one.

    Args:
        parser: the command's.
        command: its name.
        words: of the command line, after that name.
        folder: where the file may be.
        commands: all that may have a table there.

    Raises:
        UsageError: if the file cannot be read, or a table or an option in it is unknown or of the wrong
            kind.
    """
    place, table = _table(folder, command, commands)
    values = {name: _value(parser, place, name, value) for name, value in table.items()}
    for name in values:
        # Left out where the command line has it not: then there is no attribute.
        _action(parser, place, name).default = argparse.SUPPRESS
    options = parser.parse_intermixed_args(words)
    used = []
    for name, value in values.items():
        target = _action(parser, place, name).dest
        if not hasattr(options, target):
            setattr(options, target, value)
            used.append(f"{name} = {_shown(value)}")
    return Configured(options, f"from {place}: {', '.join(used)}" if used else "")


def _table(folder: Path, command: str, commands: Collection[str]) -> tuple[str, Mapping[str, Any]]:
    """The first table that there is, and where; an empty one where there is none."""
    for file, above in PLACES:
        path = folder / file
        if not path.is_file():
            continue
        try:
            found: Any = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UsageError(f"{file}: cannot be read: {error}") from error
        for part in above:
            found = found.get(part, {}) if isinstance(found, dict) else {}
        for name in found:
            _known(f"{file}: there is no table {'.'.join((*above, name))}", name, commands)
        name = ".".join((*above, command))
        if command not in found:
            continue
        if not isinstance(found[command], dict):
            raise UsageError(f"{file}: [{name}] is to be a table of options")
        return f"[{name}] of {file}", found[command]
    return "", {}


def _known(says: str, name: str, names: Collection[str]) -> None:
    """
    Raises:
        UsageError: if the name is none of these; it names the nearest.
    """
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.0)
        raise UsageError(f"{says}; did you mean {near[0]}?")


def _action(parser: argparse.ArgumentParser, place: str, name: str) -> argparse.Action:
    known = {
        option.removeprefix("--"): action
        for action in parser._actions
        for option in action.option_strings
        if option.startswith("--") and action.dest != "help"
    }
    _known(f"{place}: there is no option {name}", name, known)
    return known[name]


def _value(parser: argparse.ArgumentParser, place: str, name: str, value: Any) -> Any:
    """As the command line would have given it."""
    action = _action(parser, place, name)
    if action.nargs == 0:
        if not isinstance(value, bool):
            raise UsageError(f"{place}: {name} is true or false")
        return value
    several = isinstance(value, list)
    texts = [_text(place, name, one) for one in (value if several else [value])]
    if isinstance(action, argparse._AppendAction):
        return [_converted(action, place, name, text) for text in texts]
    # Lists of one option are written with commas.
    return _converted(action, place, name, ",".join(texts))


def _text(place: str, name: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise UsageError(f"{place}: {name} is to be a text, a number, or a list of those")
    return str(value)


def _converted(action: argparse.Action, place: str, name: str, text: str) -> Any:
    if not callable(action.type):
        return text
    try:
        return action.type(text)
    except (ValueError, TypeError, argparse.ArgumentTypeError):
        raise UsageError(f"{place}: {name} = {text} cannot be understood") from None


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
