"""Find collected runs by their folders, without opening their tables."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from stallscope.errors import NotFoundError, UnreadableError

from ..address import where_is
from ..run_names import NamedRun, index_of
from .layout import MANIFEST
from .manifests import Manifest, read_manifest


def is_collected(path: Path) -> bool:
    """Whether a folder is a collected run."""
    return (path / MANIFEST).is_file()


def collected_runs(store: Path) -> list[Path]:
    """Return the folders of the runs in a store."""
    if not store.is_dir():
        return []
    return sorted(path for path in store.iterdir() if path.name[0] != "." and is_collected(path))


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
    known.sort(key=lambda one: one[1].collected_at or "", reverse=True)
    runs = [NamedRun(manifest.run_id, manifest.run_name) for _, manifest in known]
    return known[index_of(wanted, runs, where_is(store))][0]
