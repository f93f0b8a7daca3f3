"""Allow one batch at a time in a folder of reports, because batches do not know each other's files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from stallscope.errors import UsageError
from stallscope.reports.write import writing

LOCK = ".stallscope-reports.lock"


@contextmanager
def lock_folder(out: Path) -> Iterator[None]:
    """Lock the folder, and create it if it is missing. The system releases the lock of a killed process.

    Raises:
        UsageError: if another batch has the lock, or the folder is not writable.
    """
    lock = FileLock(out / LOCK, timeout=0)
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        try:
            # A file system without locks cannot refuse a process.
            with suppress(NotImplementedError):
                lock.acquire()
        except Timeout:
            raise UsageError(
                f"{out}: another batch is writing its reports here; wait until it has ended, or name "
                "another folder with --out"
            ) from None
    try:
        yield
    finally:
        lock.release()
