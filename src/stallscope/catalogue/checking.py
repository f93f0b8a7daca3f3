"""Check the files of collected runs against their manifests, and remove runs."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from stallscope.collector.run_names import RunAddress
from stallscope.collector.store.layout import (
    CATALOGUE,
    MANIFEST,
    OWN_FILES,
    BytesRead,
    checksum,
    where_is,
)
from stallscope.collector.store.manifests import (
    ListedFile,
    Manifest,
    is_inside,
    read_manifest,
)
from stallscope.errors import (
    NotFoundError,
    StallscopeError,
    UnreadableError,
    UnwritableError,
    UsageError,
)

from .index import Catalogue, folders_of, is_store

_AT_ONCE = min(4, os.cpu_count() or 1)
# Attempts to check a run that collectors replace meanwhile.
_ATTEMPTS = 3

_MOST_NAMED = 3


@dataclass(frozen=True)
class CheckResult:
    """The result of checking a run, or a folder that is not a run."""

    where: str
    files: int = 0
    bytes: int = 0
    #: The differences from the collected state, one sentence each.
    damage: tuple[str, ...] = ()
    #: Notes that are not damage.
    notes: tuple[str, ...] = ()
    #: The checksum of the manifest that was used.
    manifest: str | None = None


def check_run(folder: Path, on_read: BytesRead = lambda _: None) -> CheckResult:
    """Check the checksums of a collected run's files.

    Raises:
        NotFoundError: if the folder has no manifest.
    """
    for attempt in range(_ATTEMPTS):
        try:
            manifest = read_manifest(folder)
        except UnreadableError as error:
            return CheckResult(str(folder), damage=(_without_folder(folder, error),))
        outcome = _check(folder, manifest, on_read)
        if not outcome.damage or attempt == _ATTEMPTS - 1 or _is_unchanged(folder, manifest):
            return outcome
    raise AssertionError("unreachable")


def check_store(store: Path, on_read: BytesRead = lambda _: None) -> Iterator[CheckResult]:
    """Check every run of a store, its other folders, and its catalogue.

    Raises:
        UnreadableError: if the store cannot be read.
    """
    listed = _listed_manifests(store)
    existing = sorted(folders_of(store))
    for name in existing:
        try:
            yield _with_row(check_run(store / name, on_read), listed.get(name))
        except NotFoundError:
            yield from _check_foreign_folder(store / name, name in listed)
    for name in sorted(listed.keys() - set(existing)):
        yield CheckResult(
            str(store / name), damage=(f"the folder is gone, and {CATALOGUE} still lists it",)
        )


def files_below(folder: Path) -> list[str]:
    """Return the names of all files below a folder, including links; follow no links."""
    names = []
    for root, folders, files in os.walk(folder, onerror=_raise):
        links = [name for name in folders if (Path(root) / name).is_symlink()]
        names += [(Path(root) / name).relative_to(folder).as_posix() for name in [*files, *links]]
    return sorted(names)


def bytes_of(folder: Path) -> int:
    """Return the number of bytes that checking a run reads; 0 if its manifest is unreadable."""
    try:
        return read_manifest(folder).bytes
    except (NotFoundError, UnreadableError):
        return 0


def _check(folder: Path, manifest: Manifest, on_read: BytesRead) -> CheckResult:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        differences = pool.map(
            lambda item: _difference(folder, item[0], item[1], on_read),
            sorted(manifest.files.items()),
        )
        damage = tuple(sentence for sentence in differences if sentence is not None)
    try:
        unlisted = [
            name for name in files_below(folder) if name not in {*manifest.files, *OWN_FILES}
        ]
    except OSError as error:
        damage = (*damage, f"the folder cannot be read: {error.strerror}")
        unlisted = []
    notes = tuple(f"{name}: not of this run" for name in unlisted)
    return CheckResult(
        str(folder), len(manifest.files), manifest.bytes, damage, notes, manifest.sha256
    )


def _difference(folder: Path, name: str, listed: ListedFile, on_read: BytesRead) -> str | None:
    """Describe how a file differs from its entry in the manifest; None if it does not."""
    if not is_inside(name):
        return f"{name}: the manifest names a file outside of the run"
    path = folder / name
    try:
        # The target of a link was not collected.
        if folder.resolve() not in path.resolve().parents or not stat.S_ISREG(path.lstat().st_mode):
            return f"{name}: a link, or not a file"
        size = path.lstat().st_size
        if size != listed.size:
            return f"{name}: {size:,} bytes, {listed.size:,} were collected"
        if checksum(path, on_read) != listed.sha256:
            return f"{name}: the checksum differs"
    except FileNotFoundError:
        return f"{name}: missing"
    except (OSError, ValueError, RuntimeError) as error:  # names and links may be anything
        return f"{name}: cannot be read: {getattr(error, 'strerror', None) or error}"
    return None


def _is_unchanged(folder: Path, manifest: Manifest) -> bool:
    try:
        return read_manifest(folder).sha256 == manifest.sha256
    except (NotFoundError, UnreadableError):
        return False


def _listed_manifests(store: Path) -> dict[str, str]:
    """Return the checksums of manifests in the catalogue, by folder; empty without a catalogue."""
    if not (store / CATALOGUE).is_file():
        return {}
    with Catalogue.open(store, follow=False) as catalogue:
        return {entry.folder: entry.manifest for entry in catalogue.entries()}


def _with_row(checked: CheckResult, listed: str | None) -> CheckResult:
    if listed is None or checked.manifest in (None, listed):
        return checked
    note = (
        f"{CATALOGUE} describes another state of it; collect it again, or remove {CATALOGUE}, which "
        "is then rebuilt"
    )
    return replace(checked, notes=(*checked.notes, note))


def _check_foreign_folder(folder: Path, is_listed: bool) -> Iterator[CheckResult]:
    """Check a folder without a manifest: the rest of a run, or a folder of the user."""
    try:
        names = files_below(folder)
    except OSError as error:
        names = []
        yield CheckResult(str(folder), damage=(f"cannot be read: {error.strerror}",))
    if is_listed or any(name in OWN_FILES or name.endswith(".parquet") for name in names):
        yield CheckResult(
            str(folder), damage=(f"no {MANIFEST}: an incomplete run; collect it again",)
        )
    else:
        yield CheckResult(str(folder), notes=(f"no {MANIFEST}: not a collected run",))


def _without_folder(folder: Path, error: UnreadableError) -> str:
    """Return an error message without the folder at its start."""
    return str(error).removeprefix(f"{folder}: ")


def _raise(error: OSError) -> None:
    raise error


# -- Remove collected runs, without removing other files ------------------------------------------


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
