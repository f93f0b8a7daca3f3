"""Places that executors write to, until a run is whole or its report is there."""

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

# Of a driver that was killed: whether it still runs on another machine that shares the store cannot be
# asked, but one that is at work writes more often than once a day.
_LEFT_SECONDS = 24 * 3600
# As ``mkdtemp`` ends names, so that other folders are not taken for ours.
_OURS = ".stallscope-spark-" + "[a-z0-9_]" * 8


def scratch_at(place: str) -> str:
    """A new place of its own in a folder or below a URL, for executors to write to.

    Raises:
        UnwritableError: if nothing may be written into the folder.
    """
    if is_url(place):
        # What executors write there makes it.
        return f"{place.rstrip('/')}/.stallscope-spark-{secrets.token_hex(4)}"
    return str(scratch_in(Path(place)))


def scratch_in(store: Path) -> Path:
    """A new folder in a store, for executors to write to; those that dead drivers have left go.

    Raises:
        UnwritableError: if nothing may be written there.
    """
    with writing(store):
        store.mkdir(parents=True, exist_ok=True)
        _remove_left(store)
        # Not what a link leads to: executors may have it elsewhere.
        made = Path(tempfile.mkdtemp(prefix=".stallscope-spark-", dir=store)).absolute()
        # Executors may run as another user.
        made.chmod(store.stat().st_mode)
    return made


def keep(places: Iterable[str]) -> None:
    """Show that folders are not left, though nothing is written to them."""
    for place in places:
        with suppress(OSError):  # it is no folder, or another process has removed it
            os.utime(place)


def _remove_left(store: Path) -> None:
    for folder in store.glob(_OURS):
        with suppress(OSError):  # its driver has removed it meanwhile
            if folder.stat().st_mtime < time.time() - _LEFT_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)
