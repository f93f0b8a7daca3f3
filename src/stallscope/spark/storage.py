"""Read and write files that driver and executors share: in a folder or at a URL.

URLs are opened like those of logs, with the credentials that each machine finds.
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

from stallscope.collector.sources.source import reason
from stallscope.errors import StallscopeError, UnreadableError, UnwritableError, UsageError

_AT_ONCE = 16
# The block size for reading a file's footer.
_END = 64 << 10


def is_url(place: str) -> bool:
    """Whether a place is a URL."""
    return "://" in place


def check_place(place: str) -> None:
    """Check that this kind of place can be written, without connecting to it.

    Raises:
        UsageError: if it cannot.
        MissingExtraError: if the library for it is not installed.
    """
    if is_url(place) or place.startswith(("mlflow:", "databricks:", "dbfs:")):
        _open(place)


@contextmanager
def new_file(path: str) -> Iterator[Any]:
    """Open a new file for writing.

    Raises:
        UnwritableError: if a URL cannot be written.
    """
    if not is_url(path):
        with Path(path).open("wb") as file:
            yield file
        return
    from stallscope.collector.sources.files import has_folders

    with _translated(path, UnwritableError, "write"):
        file_system, inner_path = _open(path)
        if has_folders(file_system):
            file_system.makedirs(inner_path.rpartition("/")[0], exist_ok=True)
        with file_system.open(inner_path, "wb") as file:
            yield file


def read_part(path: str, start: int, end: int) -> bytes:
    """Read the bytes of a file at a URL from one position to another.

    Raises:
        UnreadableError: if they cannot be read.
    """
    with _translated(path):
        file_system, inner_path = _open(path)
        return bytes(file_system.cat_file(inner_path, start=start, end=end))


def rows_of(
    paths: Sequence[str],
    columns: Sequence[str] | None = None,
    row_filter: ds.Expression | None = None,
    schema: pa.Schema | None = None,
) -> pa.Table:
    """Read rows of Parquet files of one place.

    Raises:
        UnreadableError: if files at a URL cannot be read.
    """
    if not is_url(paths[0]):
        dataset = ds.dataset(list(paths), format="parquet", schema=schema)
        return dataset.to_table(columns, filter=row_filter)
    with _translated(paths[0]):
        file_system, _ = _open(paths[0])
        inner_paths = [_open(path)[1] for path in paths]
        dataset = ds.dataset(inner_paths, format="parquet", filesystem=file_system, schema=schema)
        return dataset.to_table(columns, filter=row_filter)


def metadata_of(paths: Sequence[str]) -> list[pq.FileMetaData]:
    """Read the metadata of Parquet files.

    Raises:
        UnreadableError: see ``rows_of``.
    """
    if not paths or not is_url(paths[0]):
        return [pq.read_metadata(path) for path in paths]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(_metadata, paths))


def _metadata(path: str) -> pq.FileMetaData:
    with _translated(path):
        file_system, inner_path = _open(path)
        with file_system.open(inner_path, "rb", cache_type="readahead", block_size=_END) as file:
            return pq.read_metadata(file)


def remove(folder: str) -> None:
    """Remove a folder and its content, ignoring errors."""
    if not is_url(folder):
        shutil.rmtree(folder, ignore_errors=True)
        return
    # The folder may not exist, and the report is finished in any case.
    with suppress(Exception):
        file_system, inner_path = _open(folder)
        file_system.rm(inner_path, recursive=True)


def _open(path: str) -> tuple[Any, str]:
    # Executors only need the libraries for URLs if there are URLs.
    from stallscope.collector.source_kinds import open_source
    from stallscope.collector.sources.files import Files

    place = open_source(path)
    if not isinstance(place, Files):
        raise UsageError(
            f"{path}: executors cannot write there; name a folder that all machines share, like "
            "/dbfs or /Volumes, or a URL"
        )
    return place.open_file_system()


@contextmanager
def _translated(
    path: str, kind: type[StallscopeError] = UnreadableError, does: str = "read"
) -> Iterator[None]:
    """Raise the errors of libraries for URLs as ``kind``, without credentials in the path."""
    from stallscope.collector.sources.source import without_credentials

    try:
        yield
    except StallscopeError:
        raise
    except Exception as error:  # any library may raise its own errors
        where = without_credentials(path).rpartition("/")[0]
        raise kind(f"{where}: an executor of Spark cannot {does} there: {reason(error)}") from error
