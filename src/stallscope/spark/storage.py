"""Files that driver and executors see: in a folder that they share, or below a URL.

URLs are opened as those of logs are, with the credentials that each machine finds for itself.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from stallscope.errors import StallscopeError, UnreadableError, UnwritableError, UsageError

_AT_ONCE = 16
# What of a file's end is fetched at a time.
_END = 64 << 10


def is_url(place: str) -> bool:
    """Whether a place is no folder of this machine."""
    return "://" in place


def check_place(place: str) -> None:
    """See that files can be put to this kind of place, which is not contacted.

    Raises:
        UsageError: if they cannot.
        MissingExtraError: if what opens it is not installed.
    """
    if is_url(place) or place.startswith(("mlflow:", "databricks:", "dbfs:")):
        _opened(place)


@contextmanager
def new_file(path: str) -> Iterator[Any]:
    """A new file to write bytes to.

    Raises:
        UnwritableError: if a URL does not take it.
    """
    if not is_url(path):
        with Path(path).open("wb") as file:
            yield file
        return
    from stallscope.collector.sources.files import has_folders

    file_system, own = _opened(path)
    try:
        if has_folders(file_system):
            file_system.makedirs(own.rpartition("/")[0], exist_ok=True)
        with file_system.open(own, "wb") as file:
            yield file
    except StallscopeError:
        raise
    except Exception as error:  # of whatever library opens such places
        raise UnwritableError(
            f"{_shown(path)}: an executor of Spark cannot write there: {_said(error)}"
        ) from error


def read_part(path: str, begin: int, end: int) -> bytes:
    """The bytes of a URL's file from one position to another.

    Raises:
        UnreadableError: if they cannot be had.
    """
    with _reading(path):
        file_system, own = _opened(path)
        return bytes(file_system.cat_file(own, start=begin, end=end))


def rows_of(
    paths: Sequence[str],
    columns: Sequence[str] | None = None,
    wanted: ds.Expression | None = None,
    schema: pa.Schema | None = None,
) -> pa.Table:
    """The rows of files of Parquet, all of them in one place; as a dataset of pyarrow's gives them.

    Raises:
        UnreadableError: if they are at a URL, and cannot be had.
    """
    if not is_url(paths[0]):
        found = ds.dataset(list(paths), format="parquet", schema=schema)
        return found.to_table(columns, filter=wanted)
    with _reading(paths[0]):
        file_system, _ = _opened(paths[0])
        own = [_opened(path)[1] for path in paths]
        found = ds.dataset(own, format="parquet", filesystem=file_system, schema=schema)
        return found.to_table(columns, filter=wanted)


def metadata_of(paths: Sequence[str]) -> list[pq.FileMetaData]:
    """What the ends of files of Parquet tell of their row groups.

    Raises:
        UnreadableError: as ``rows_of``.
    """
    if not paths or not is_url(paths[0]):
        return [pq.read_metadata(path) for path in paths]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(_metadata, paths))


def _metadata(path: str) -> pq.FileMetaData:
    with _reading(path):
        file_system, own = _opened(path)
        with file_system.open(own, "rb", cache_type="readahead", block_size=_END) as file:
            return pq.read_metadata(file)


def remove(folder: str) -> None:
    """Remove a folder with all in it, as far as it can be removed."""
    if not is_url(folder):
        shutil.rmtree(folder, ignore_errors=True)
        return
    # Nothing may have been written; and the report is there, whatever becomes of this.
    with suppress(Exception):
        file_system, own = _opened(folder)
        file_system.rm(own, recursive=True)


def _opened(path: str) -> tuple[Any, str]:
    # Executors need what opens URLs only where there are URLs.
    from stallscope.collector.registry import open_source
    from stallscope.collector.sources.files import Files

    place = open_source(path)
    if not isinstance(place, Files):
        raise UsageError(
            f"{path}: executors cannot write there; name a folder that all machines share, like "
            "/dbfs or /Volumes, or a URL"
        )
    return place.open_file_system()


@contextmanager
def _reading(path: str) -> Iterator[None]:
    try:
        yield
    except StallscopeError:
        raise
    except Exception as error:  # as above
        raise UnreadableError(
            f"{_shown(path)}: an executor of Spark cannot read there: {_said(error)}"
        ) from error


def _said(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _shown(path: str) -> str:
    from stallscope.collector.sources.files import without_credentials

    return without_credentials(path).rpartition("/")[0]
