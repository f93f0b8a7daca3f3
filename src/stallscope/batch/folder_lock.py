"""One batch at a time in a folder of reports: two would not know of each other's files."""

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
    """Hold the folder, which is made where it is missing; the system lets go of it if the process is
    killed.

    Raises:
        UsageError: if another batch holds it, or the folder cannot be written to.
    """
    lock = FileLock(out / LOCK, timeout=0)
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        try:
            # On a file system without locks, no process can be refused.
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
