"""Reads whatever is at a place into runs."""

from __future__ import annotations

import re

from stallscope.collector.sources.files import SourceFile, find_files
from stallscope.errors import NotFoundError, StallscopeError, UnreadableError
from stallscope.run import Problem, Run, newest_first

from .base import Parsed, Parser
from .grouping import group
from .registry import HEAD_BYTES, PARSERS, by_name, recognise

# What the recorder writes beside its logs, and what people write about them.
_NO_LOG = re.compile(r"run(-\d+)?\.json|README(\.\w+)?")


def read(source: str, *, read_as: str | None = None) -> list[Run]:
    """The runs at a place, the newest first.

    Args:
        source: a folder, a file, or a URL that fsspec can open.
        read_as: the name of a parser that is to read every file, whatever it looks like.

    Raises:
        NotFoundError: if nothing is there, or no file of a kind that a parser knows.
        UnreadableError: if something is there and none of it can be read.
    """
    files = find_files(source)
    forced = by_name(read_as) if read_as else None
    parsed: list[Parsed] = []
    problems: list[Problem] = []
    failures: list[StallscopeError] = []
    for file in files:
        if _NO_LOG.fullmatch(file.name.rsplit("/", 1)[-1]):
            continue
        try:
            parser, data = _choose(file, forced)
            if parser is None:
                problems.append(Problem(file.name, "no log that Stallscope knows; left alone"))
            else:
                parsed.append(parser.parse(file.name, data))
        except UnreadableError as error:
            failures.append(error)
            problems.append(Problem(file.name, str(error).removeprefix(f"{file.name}: ")))
    if not parsed:
        if failures:
            raise failures[0]
        known = ", ".join(f"{parser.title} (*{parser.suffix})" for parser in PARSERS)
        looked = f"{len(files)} file(s)" if files else "an empty folder"
        raise NotFoundError(f"{source}: no logs in {looked}; looked for: {known}")
    return newest_first(group(source, parsed, problems))


def _choose(file: SourceFile, forced: Parser | None) -> tuple[Parser | None, bytes]:
    data = file.read()
    return forced or recognise(file.name, data[:HEAD_BYTES]), data
