"""Reads whatever is at a place into runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from stallscope.collector.sources.base import Source, SourceFile, lies_beside_logs
from stallscope.collector.sources.registry import open_source
from stallscope.collector.sources.spark_layout import is_event_log, is_sparks_own
from stallscope.errors import NotFoundError, StallscopeError, UnreadableError
from stallscope.run import Problem, Run, newest_first

from .autotune import is_autotune_log
from .base import Parsed
from .epochs_only import as_runs, beside_steps
from .grouping import group
from .horovod_timeline import is_timeline
from .log_records import LogRecords
from .packed import unpacked
from .registry import HEAD_BYTES, PARSERS, by_name, recognise
from .step_log import StepLogParser

_TIMELINE_HEAD = 4096
# Far files that are on their way while one is read.
_AT_ONCE = 8


def read(source: str | Source, *, read_as: str | None = None) -> list[Run]:
    """The runs at a place, the newest first.

    Args:
        source: a folder, a file, a URL that fsspec can open, an MLflow run, or a place that is open.
        read_as: the name of a parser that is to read every file, whatever it looks like.

    Raises:
        NotFoundError: if nothing is there, or no file of a kind that a parser knows.
        UnreadableError: if something is there and none of it can be read.
    """
    place = open_source(source) if isinstance(source, str) else source
    files = place.files()
    logs = [file for file in files if not _is_no_log(file.name)]
    forced = by_name(read_as) if read_as else None
    if forced is None and place.local:
        logs = [file for file in logs if not _is_long_timeline(file)]
    parsed: list[Parsed] = []
    epochs_only: list[tuple[str, Parsed]] = []
    problems: list[Problem] = []
    failures: list[StallscopeError] = []
    records = LogRecords()
    for file, read_ahead in _in_turn(logs, 1 if place.local else _AT_ONCE):
        try:
            data = unpacked(file.where, read_ahead())
            parser = forced or recognise(file.name, data[:HEAD_BYTES])
            # Step logs' records in what a program printed know more than the rest of it.
            coarse = parser is None or not parser.has_steps
            if forced is None and coarse and records.add(file.name, data):
                continue
            if parser is not None:
                one = parser.parse(file.name, data)
                if coarse:
                    epochs_only += [(file.where, log) for log in (one, *one.more)]
                else:
                    parsed += [one, *one.more]
            elif not _lies_beside(file.name, data[:HEAD_BYTES]):
                problems.append(Problem(file.name, "no log that Stallscope knows; left alone"))
        except (UnreadableError, NotFoundError) as error:
            # Damaged, or gone since the files were listed: the others are read all the same.
            failures.append(error)
            problems.append(Problem(file.name, str(error).removeprefix(f"{file.name}: ")))
    for name, data in records.logs():
        try:
            parsed.append(StepLogParser().parse(name, data))
        except UnreadableError as error:
            failures.append(error)
            problems.append(Problem(name, str(error).removeprefix(f"{name}: ")))
    problems += records.problems
    if parsed:
        problems += beside_steps(epochs_only)
    elif epochs_only:
        try:
            parsed = as_runs(epochs_only)
        except NotFoundError as error:
            failures.append(error)
    if not parsed:
        if failures:
            raise failures[0]
        looked = f"{len(files)} file(s)" if files else "an empty folder"
        if any(is_sparks_own(file.name, b"") for file in files):
            raise NotFoundError(
                f"{place.where}: Spark's own logs and no step logs in {looked}; with "
                "StepLogger(None, sink='logging') they are in what executors print"
            )
        known = ", ".join(f"{parser.title} (*{parser.suffix})" for parser in PARSERS)
        raise NotFoundError(f"{place.where}: no logs in {looked}; looked for: {known}")
    return newest_first(group(place.where, parsed, problems))


def _is_no_log(name: str) -> bool:
    return is_event_log(name) or lies_beside_logs(name)


def _lies_beside(name: str, head: bytes) -> bool:
    """Whether a file that no parser knows is meant to lie where logs are."""
    return is_sparks_own(name, head) or is_timeline(head) or is_autotune_log(head)


def _is_long_timeline(file: SourceFile) -> bool:
    """Whether it is a Horovod Timeline; those have gigabytes, and are not read to be left alone."""
    if not file.name.endswith(".json") or file.size <= HEAD_BYTES:
        return False
    try:
        return is_timeline(file.read(0, _TIMELINE_HEAD))
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
