"""Create temporary places for executors to write to."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from stallscope.collector.store.fetch import writing

from .storage import is_url

# Older folders are leftovers of killed drivers: a running driver, on any machine, writes at least daily.
_LEFTOVER_SECONDS = 24 * 3600
# The pattern of ``mkdtemp``, so that other folders do not match.
_SCRATCH_PATTERN = ".stallscope-spark-" + "[a-z0-9_]" * 8


def scratch_at(place: str) -> str:
    """Return a new place for executors to write to, in a folder or at a URL.

    Raises:
        UnwritableError: if the folder is not writable.
    """
    if is_url(place):
        # Writing the first file creates the place.
        return f"{place.rstrip('/')}/.stallscope-spark-{secrets.token_hex(4)}"
    return str(scratch_in(Path(place)))


def scratch_in(store: Path) -> Path:
    """Create a folder in a store for executors to write to; remove those of killed drivers.

    Raises:
        UnwritableError: if the store is not writable.
    """
    with writing(store):
        store.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(store)
        # Do not resolve links, because executors may have the target elsewhere.
        folder = Path(tempfile.mkdtemp(prefix=".stallscope-spark-", dir=store)).absolute()
        # Executors may run as another user.
        folder.chmod(store.stat().st_mode)
    return folder


def keep(places: Iterable[str]) -> None:
    """Update the modification times of folders, to show that they are in use."""
    for place in places:
        with suppress(OSError):  # the place is a URL, or another process has removed it
            os.utime(place)


def _remove_leftovers(store: Path) -> None:
    for folder in store.glob(_SCRATCH_PATTERN):
        with suppress(OSError):  # the driver has removed it meanwhile
            if folder.stat().st_mtime < time.time() - _LEFTOVER_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)
