"""Find collected runs by their folders, without opening their tables."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from stallscope.errors import NotFoundError, UnreadableError

from ..address import where_is
from ..run_names import NamedRun, index_of
from .layout import MANIFEST
from .manifests import Manifest, read_manifest


def is_collected(path: Path) -> bool:
    """Whether a folder is a collected run."""
    return is_regular_file(path / MANIFEST)


def is_regular_file(path: Path) -> bool:
    """Whether a file exists and is no pipe; False, not an error, if permissions hide it."""
    try:
        return path.is_file()
    except OSError:
        return False


def collected_runs(store: Path) -> list[Path]:
    """Return the folders of the runs in a store; none if it cannot be listed."""
    try:
        items = list(store.iterdir())
    except OSError:
        return []  # reading it as logs reports the error
    return sorted(path for path in items if path.name[0] != "." and is_collected(path))


def may_be_entered(folder: Path) -> bool:
    """Whether permissions let this user see what is in a folder."""
    return os.access(folder, os.R_OK | os.X_OK)


def closed_folders(store: Path) -> list[Path]:
    """Return the folders of a store that permissions do not let this user see into."""
    with suppress(OSError), os.scandir(store) as items:
        folders = [store / item.name for item in items if item.is_dir() and item.name[0] != "."]
        return sorted(folder for folder in folders if not may_be_entered(folder))
    return []


def closed_folder_problem(folder: Path) -> str:
    """Say that permissions keep a folder closed."""
    return f"{folder}: cannot be read: Permission denied"


def collected_folder(store: Path, wanted: str) -> Path:
    """Return the folder of a run in a store, by its id, its name, or the start of either.

    Damaged runs are left out.

    Raises:
        NotFoundError: if no run fits, or several do.
    """
    known: list[tuple[Path, Manifest]] = []
    for folder in collected_runs(store):
        with suppress(NotFoundError, UnreadableError):
            known.append((folder, read_manifest(folder)))
    known.sort(key=lambda collected: collected[1].collected_at or "", reverse=True)
    runs = [NamedRun(manifest.run_id, manifest.run_name) for _, manifest in known]
    return known[index_of(wanted, runs, where_is(store))][0]
