"""Removing collected runs, and nothing else."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from stallscope.collector.address import where_is
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


def removable(text: str) -> Removable:
    """The run that ``STORE#RUN_ID`` or the path of its folder means.

    Raises:
        UsageError: if it is a whole store, or several runs are meant.
        NotFoundError: if there is no such collected run.
        UnreadableError: if it cannot be told what in the folder is of the run.
    """
    place, has_id, run_id = text.partition("#")
    if not place:
        # An empty variable of a script is not the folder that it happens to run in.
        raise UsageError(f"{text!r}: say which store: STORE#RUN_ID")
    folder = _folder_with_id(Path(place), run_id) if has_id else Path(place)
    if not folder.name:  # this folder, as a dot
        folder = folder.absolute()
    if folder.is_symlink():
        raise UsageError(f"{folder}: this is a link; name the folder that it leads to")
    try:
        manifest = read_manifest(folder)
    except NotFoundError:
        if not has_id and is_store(folder):
            store = where_is(folder)
            raise UsageError(
                f"{store}: this is a whole store; name a run: {store}#RUN_ID"
            ) from None
        raise
    if has_id and manifest.run_id != run_id:
        raise NotFoundError(f"{folder}: this is the run {manifest.run_id} and not {run_id}")
    _refuse_what_is_not_of_the_run(folder, manifest)
    return Removable(folder, manifest)


def remove(run: Removable) -> None:
    """Remove the run's folder and its row.

    Raises:
        UnwritableError: if the store does not allow it.
    """
    folder, store = run.folder, run.folder.parent
    try:
        # Gone at once and as a whole: no half of a run is ever in the store.
        aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-removed-", dir=store))
        try:
            folder.rename(aside / folder.name)
        except OSError:
            aside.rmdir()
            raise
    except OSError as error:
        raise UnwritableError(f"{folder}: cannot be removed: {error.strerror}") from error
    _remove_row(store, run)
    try:
        shutil.rmtree(aside)
    except OSError as error:
        raise UnwritableError(
            f"{folder}: removed, but for what is left in {aside}: {error.strerror}"
        ) from error


def _remove_row(store: Path, run: Removable) -> None:
    if not (store / CATALOGUE).exists():
        return
    # Where the row cannot be removed, the next one that opens the catalogue finds no folder for it.
    with suppress(StallscopeError), Catalogue.open(store, follow=False) as catalogue:
        catalogue.remove(run.manifest.run_id, run.folder.name)


def _folder_with_id(store: Path, run_id: str) -> Path:
    if not store.is_dir():
        raise NotFoundError(f"{store}: there is no such folder")
    with Catalogue.open(store) as catalogue:
        found = [entry.folder for entry in catalogue.find_all(run_id)]
    if not found:
        raise NotFoundError(
            f"{where_is(store)}: there is no run {run_id}; stallscope runs {where_is(store)} lists them"
        )
    if len(found) > 1:
        folders = ", ".join(where_is(store / name) for name in found)
        raise UsageError(
            f"{where_is(store)}: several runs have the id {run_id}; name a folder: {folders}"
        )
    # The catalogue is a file that anybody may have written.
    return store / Path(found[0]).name


def _refuse_what_is_not_of_the_run(folder: Path, manifest: Manifest) -> None:
    """Nothing goes that was not collected.

    Raises:
        UnreadableError: if there is something else in the folder.
    """
    own = {name for name in manifest.files if is_inside(name)} | OWN_FILES
    try:
        others = [name for name in files_below(folder) if name not in own]
    except OSError as error:
        raise UnreadableError(f"{folder}: cannot be read: {error.strerror}") from error
    if others:
        named = ", ".join(others[:_MOST_NAMED])
        more = f" and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
        raise UnreadableError(
            f"{folder}: holds what was not collected with the run: {named}{more}; move it away first"
        )
