"""Reads whatever is at a place into runs."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from stallscope.collector.sources.base import Source, SourceFile, lies_beside_logs
from stallscope.collector.sources.registry import open_source
from stallscope.collector.sources.spark_layout import is_event_log, is_sparks_own
from stallscope.errors import NotFoundError, StallscopeError, UnreadableError
from stallscope.run import Run

from .horovod_timeline import is_timeline
from .named import by_name
from .packed import unpacked, unpacked_up_to
from .reading import Reading
from .registry import HEAD_BYTES, PARSERS
from .unpacking import is_packed

_TIMELINE_HEAD = 4096
_TIMELINE_NAME = re.compile(r"\.json(\.(gz|bz2|xz|zst))?$")
# Far files that are on their way while one is read.
_AT_ONCE = 8


def read(source: str | Source, *, read_as: str | None = None) -> list[Run]:
    """The runs at a place, the newest first.

    Args:
        source: a folder, a file, a URL that fsspec can open, an MLflow run, or a place that is open.
        read_as: the name of a parser that is to read every file, whatever it looks like, or where
            to import it from.

    Raises:
        NotFoundError: if nothing is there, or no file of a kind that a parser knows.
        UnreadableError: if something is there and none of it can be read.
    """
    place = open_source(source) if isinstance(source, str) else source
    files = place.files()
    logs = [file for file in files if not is_no_log(file.name)]
    reading = Reading(by_name(read_as) if read_as else None)
    if reading.forced is None and place.local:
        logs = [file for file in logs if not is_long_timeline(file)]
    for file, read_ahead in _in_turn(logs, 1 if place.local else _AT_ONCE):
        try:
            reading.take(file.name, file.where, unpacked(file.where, read_ahead()))
        except (UnreadableError, NotFoundError) as error:
            reading.failed(file.name, error)
    runs = reading.runs(place.where, reading.records_logs())
    if runs:
        return runs
    if reading.failures:
        raise reading.failures[0]
    raise NotFoundError(_nothing_in(place.where, files))


def _nothing_in(where: str, files: Sequence[SourceFile]) -> str:
    looked = f"{len(files)} file(s)" if files else "an empty folder"
    if any(is_sparks_own(file.name, b"") for file in files):
        return (
            f"{where}: Spark's own logs and no step logs in {looked}; with "
            "StepLogger(None, sink='logging') they are in what executors print"
        )
    known = ", ".join(f"{parser.title} (*{parser.suffix})" for parser in PARSERS)
    return f"{where}: no logs in {looked}; looked for: {known}"


def is_no_log(name: str) -> bool:
    """Whether a file of this name is none, and is not even opened."""
    return is_event_log(name) or lies_beside_logs(name)


def is_long_timeline(file: SourceFile) -> bool:
    """Whether it is a Horovod Timeline; those have gigabytes, and are not read to be left alone."""
    if not _TIMELINE_NAME.search(file.name) or file.size <= HEAD_BYTES:
        return False
    try:
        head = file.read(0, HEAD_BYTES)
        if is_packed(head):
            head = unpacked_up_to(file.where, head, _TIMELINE_HEAD)
        return is_timeline(head)
    except StallscopeError:
        return False  # said where it is read


def _in_turn(
    files: list[SourceFile], at_once: int
) -> Iterator[tuple[SourceFile, Callable[[], bytes]]]:
    """Files with what gives their bytes; of far ones the next few are already on their way."""
    if at_once == 1:
        yield from ((file, file.read) for file in files)
        return
    with ThreadPoolExecutor(at_once) as pool:
        waiting: deque[tuple[SourceFile, Future[bytes]]] = deque()
        for file in files:
            waiting.append((file, pool.submit(file.read)))
            if len(waiting) == at_once:
                first, future = waiting.popleft()
                yield first, future.result
        for first, future in waiting:
            yield first, future.result
