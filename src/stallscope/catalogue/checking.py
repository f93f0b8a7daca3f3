"""Whether what is in a store is what was collected: every file against its manifest."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from stallscope.collector.store.layout import CATALOGUE, MANIFEST, OWN_FILES, BytesRead, checksum
from stallscope.collector.store.manifests import (
    ListedFile,
    Manifest,
    is_inside,
    read_manifest,
)
from stallscope.errors import NotFoundError, UnreadableError

from .index import Catalogue, folders_of

_AT_ONCE = min(4, os.cpu_count() or 1)
# A collector may replace a run while it is checked; hardly so often.
_ATTEMPTS = 3


@dataclass(frozen=True)
class Checked:
    """What was found of one run, or of one folder that is none."""

    where: str
    files: int = 0
    bytes: int = 0
    #: What is not as it was collected, one sentence each.
    damage: tuple[str, ...] = ()
    #: What else is to be known; nothing is wrong with the run.
    notes: tuple[str, ...] = ()
    #: Which manifest that rests on.
    manifest: str | None = None


def check_run(folder: Path, on_read: BytesRead = lambda _: None) -> Checked:
    """Compute the checksums of a collected run's files anew.

    Raises:
        NotFoundError: if the folder has no manifest.
    """
    for attempt in range(_ATTEMPTS):
        try:
            manifest = read_manifest(folder)
        except UnreadableError as error:
            return Checked(str(folder), damage=(_without(folder, error),))
        found = _check(folder, manifest, on_read)
        if not found.damage or attempt == _ATTEMPTS - 1 or _is_still(folder, manifest):
            return found
    raise AssertionError("unreachable")


def check_store(store: Path, on_read: BytesRead = lambda _: None) -> Iterator[Checked]:
    """Check every run of a store, then what the store and its catalogue hold besides runs.

    Raises:
        UnreadableError: if the store cannot be read.
    """
    listed = _listed(store)
    there = sorted(folders_of(store))
    for name in there:
        try:
            yield _with_row(check_run(store / name, on_read), listed.get(name))
        except NotFoundError:
            yield from _no_run(store / name, name in listed)
    for name in sorted(listed.keys() - set(there)):
        yield Checked(
            str(store / name), damage=(f"the folder has gone, and {CATALOGUE} still lists it",)
        )


def files_below(folder: Path) -> list[str]:
    """The names of all files below a folder, links among them; no link is followed."""
    found = []
    for root, folders, files in os.walk(folder, onerror=_raise):
        links = [name for name in folders if (Path(root) / name).is_symlink()]
        found += [(Path(root) / name).relative_to(folder).as_posix() for name in [*files, *links]]
    return sorted(found)


def bytes_of(folder: Path) -> int:
    """How many bytes checking a run will read, as its manifest says; 0 where it does not."""
    try:
        return read_manifest(folder).bytes
    except (NotFoundError, UnreadableError):
        return 0


def _check(folder: Path, manifest: Manifest, on_read: BytesRead) -> Checked:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = pool.map(
            lambda item: _difference(folder, item[0], item[1], on_read),
            sorted(manifest.files.items()),
        )
        damage = tuple(sentence for sentence in found if sentence is not None)
    try:
        unlisted = [
            name for name in files_below(folder) if name not in {*manifest.files, *OWN_FILES}
        ]
    except OSError as error:
        damage = (*damage, f"the folder cannot be read: {error.strerror}")
        unlisted = []
    notes = tuple(f"{name}: not of this run" for name in unlisted)
    return Checked(str(folder), len(manifest.files), manifest.bytes, damage, notes, manifest.sha256)


def _difference(folder: Path, name: str, listed: ListedFile, on_read: BytesRead) -> str | None:
    """In what a file differs from what the manifest says; None where it does not."""
    if not is_inside(name):
        return f"{name}: the manifest names a file outside of the run"
    path = folder / name
    try:
        # What a link leads to was not collected, and may be anything.
        if folder.resolve() not in path.resolve().parents or not stat.S_ISREG(path.lstat().st_mode):
            return f"{name}: a link, or no file"
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


def _is_still(folder: Path, manifest: Manifest) -> bool:
    try:
        return read_manifest(folder).sha256 == manifest.sha256
    except (NotFoundError, UnreadableError):
        return False


def _listed(store: Path) -> dict[str, str]:
    """The manifests that the catalogue is about, by folder; none where there is no catalogue."""
    if not (store / CATALOGUE).is_file():
        return {}
    with Catalogue.open(store, follow=False) as catalogue:
        return {entry.folder: entry.manifest for entry in catalogue.entries()}


def _with_row(checked: Checked, listed: str | None) -> Checked:
    if listed is None or checked.manifest in (None, listed):
        return checked
    note = (
        f"{CATALOGUE} describes another state of it; collect it again, or remove {CATALOGUE}, which "
        "is then made anew"
    )
    return replace(checked, notes=(*checked.notes, note))


def _no_run(folder: Path, is_listed: bool) -> Iterator[Checked]:
    """A folder without a manifest: what is left of a run, or something of the user's."""
    try:
        names = files_below(folder)
    except OSError as error:
        names = []
        yield Checked(str(folder), damage=(f"cannot be read: {error.strerror}",))
    if is_listed or any(name in OWN_FILES or name.endswith(".parquet") for name in names):
        yield Checked(
            str(folder), damage=(f"no {MANIFEST}: what is left of a run; collect it again",)
        )
    else:
        yield Checked(str(folder), notes=(f"no {MANIFEST}: not a collected run",))


def _without(folder: Path, error: UnreadableError) -> str:
    """The error's sentence without the folder, which stands before it."""
    return str(error).removeprefix(f"{folder}: ")


def _raise(error: OSError) -> None:
    raise error
