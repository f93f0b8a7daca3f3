"""Step logs concatenated into one file, as ``cat rank-*.csv`` does it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from stallscope.errors import UnreadableError
from stallscope.run import Problem

from .base import Parsed, Parser
from .step_log import MAGIC

# The quote would have a backslash before it where a name holds such words.
_HEADER = re.compile(rb'#stallscope \d{1,9} \{"')


def parse_each(parser: Parser, path: str, data: bytes) -> Parsed:
    """The step logs in a file; the first one with the others as its ``more``.

    Args:
        parser: of step logs.
        path: of the file.
        data: its bytes.

    Raises:
        UnreadableError: if none of them can be read.
    """
    found: list[Parsed] = []
    failures: list[UnreadableError] = []
    for part in _parts(data):
        try:
            found.append(parser.parse(path, part))
        except UnreadableError as error:
            failures.append(error)
    if not found:
        raise failures[0]
    problems = [Problem(path, str(error).removeprefix(f"{path}: ")) for error in failures]
    first = replace(found[0], problems=(*found[0].problems, *problems))
    return replace(first, more=tuple(found[1:])) if len(found) > 1 else first


def is_joined(data: bytes) -> bool:
    """Whether there is more than one step log in bytes."""
    return len(list(islice(_headers(data), 2))) > 1


def _headers(data: bytes) -> Iterator[int]:
    """Where step logs begin, also after a line that was torn."""
    at = data.find(MAGIC)
    while at >= 0:
        if _HEADER.match(data, at):
            yield at
        at = data.find(MAGIC, at + 1)


def _parts(data: bytes) -> Iterator[bytes]:
    """Pieces that begin with a header; most files are one."""
    begin = 0
    for at in _headers(data):
        if at:
            yield data[begin:at]
            begin = at
    yield data[begin:] if begin else data
