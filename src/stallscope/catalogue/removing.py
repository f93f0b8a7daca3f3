"""Remove collected runs, without removing other files."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from stallscope.collector.address import where_is
from stallscope.collector.run_names import RunAddress
from stallscope.collector.store.layout import CATALOGUE, OWN_FILES
from stallscope.collector.store.manifests import Manifest, is_inside, read_manifest
from stallscope.errors import (
    NotFoundError,
    StallscopeError,
    UnreadableError,
    UnwritableError,
    UsageError,
)

from .checking import files_below
from .index import Catalogue, is_store

_MOST_NAMED = 3


@dataclass(frozen=True)
class Removable:
    """A collected run that may be removed."""

    folder: Path
    manifest: Manifest


def removable(address: RunAddress) -> Removable:
    """Return the run of ``STORE#RUN_ID`` or of a folder.

    Raises:
        UsageError: if the address is a whole store or several runs.
        NotFoundError: if there is no such collected run.
        UnreadableError: if the folder has files of others, or its manifest is damaged.
    """
    if not address.place:
        # An empty variable of a script must not mean the current folder.
        raise UsageError("'': name the store: STORE#RUN_ID")
    run_id, folder = "", Path(address.place)
    if address.run:
        run_id, folder = _named_run(folder, address.run)
    if not folder.name:  # this folder, as a dot
        folder = folder.absolute()
    if folder.is_symlink():
        raise UsageError(f"{folder}: this is a link; name the folder that it points to")
    try:
        manifest = read_manifest(folder)
    except NotFoundError:
        if not run_id and is_store(folder):
            store = where_is(folder)
            raise UsageError(
                f"{store}: this is a whole store; name a run: {store}#RUN_ID"
            ) from None
        raise
    if run_id and manifest.run_id != run_id:
        raise NotFoundError(f"{folder}: this is the run {manifest.run_id}, not {run_id}")
    _refuse_foreign_files(folder, manifest)
    return Removable(folder, manifest)


def remove(run: Removable) -> None:
    """Remove the run's folder and its row.

    Raises:
        UnwritableError: if the store does not allow it.
    """
    folder, store = run.folder, run.folder.parent
    try:
        # Rename the folder first, so that the store never has half of a run.
        hidden = Path(tempfile.mkdtemp(prefix=f".{folder.name}-removed-", dir=store))
        try:
            folder.rename(hidden / folder.name)
        except OSError:
            hidden.rmdir()
            raise
    except OSError as error:
        raise UnwritableError(f"{folder}: cannot be removed: {error.strerror}") from error
    _remove_row(store, run)
    try:
        shutil.rmtree(hidden)
    except OSError as error:
        raise UnwritableError(
            f"{folder}: removed, except for the files in {hidden}: {error.strerror}"
        ) from error


def _remove_row(store: Path, run: Removable) -> None:
    if not (store / CATALOGUE).exists():
        return
    # If the row cannot be removed, opening the catalogue removes it, because its folder is gone.
    with suppress(StallscopeError), Catalogue.open(store, follow=False) as catalogue:
        catalogue.remove(run.manifest.run_id, run.folder.name)


def _named_run(store: Path, wanted: str) -> tuple[str, Path]:
    """Return the id and the folder of the run that a user names."""
    if not store.is_dir():
        raise NotFoundError(f"{store}: no such folder")
    with Catalogue.open(store) as catalogue:
        entries = catalogue.choose(wanted)
    if len(entries) > 1:
        folders = ", ".join(where_is(store / entry.folder) for entry in entries)
        raise UsageError(
            f"{where_is(store)}: several runs have the id {entries[0].id}; name a folder: {folders}"
        )
    # The content of the catalogue is untrusted.
    return entries[0].id, store / Path(entries[0].folder).name


def _refuse_foreign_files(folder: Path, manifest: Manifest) -> None:
    """Check that the folder only has files of the run.

    Raises:
        UnreadableError: if it has other files.
    """
    run_files = {name for name in manifest.files if is_inside(name)} | OWN_FILES
    try:
        others = [name for name in files_below(folder) if name not in run_files]
    except OSError as error:
        raise UnreadableError(f"{folder}: cannot be read: {error.strerror}") from error
    if others:
        named = ", ".join(others[:_MOST_NAMED])
        more = f" and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
        raise UnreadableError(
            f"{folder}: has files that were not collected with the run: {named}{more}; move them first"
        )
