"""Find the parser that a user names: by its name, by a pattern, or by its import path."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stallscope.errors import StallscopeError, UnreadableError, UsageError

from .base import Parsed, Parser
from .formats.line_pattern import LinePatternParser
from .patterns.pattern import PREFIX
from .registry import parsers


def by_name(name: str) -> Parser:
    """Return the parser with a name, ``pattern:…``, or ``mypackage.module:Class``.

    Raises:
        UsageError: if there is none; the message lists the known names, or has the error.
    """
    for parser in parsers():
        if parser.name == name:
            return parser
    if name.startswith(PREFIX):
        return LinePatternParser(name.removeprefix(PREFIX))
    if ":" in name:
        return _Guarded(_imported(name))
    known = ", ".join(parser.name for parser in parsers())
    raise UsageError(
        f"no parser {name!r}: there are {known}, {PREFIX}PATTERN, and your own as mypackage.module:Class"
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


class _Guarded(Parser):
    """A user's parser, with its errors as errors of the file, so that other files are still read."""

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        kind = type(parser)
        # These attributes may be missing.
        self.name = getattr(parser, "name", kind.__name__)  # type: ignore[misc]
        self.title = getattr(parser, "title", kind.__name__)  # type: ignore[misc]
        self.suffix = getattr(parser, "suffix", "")  # type: ignore[misc]
        self.has_steps = parser.has_steps  # type: ignore[misc]

    def recognises(self, file_name: str, head: bytes) -> bool:
        return True

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
