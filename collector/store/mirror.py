"""Mirror a store at a URL in a local folder while a command runs.

    URL/<run id>/manifest.json                      uploaded last: lists exactly the run's files
                 steps/epochs-….<token>.parquet     names that no other collection uses
                 intervals.<token>.parquet
                 series.<token>.parquet
                 summary.json                       a summary of the analysis
    URL/.fetched/<place>/seen.json                  the runs that a source's files became

Object stores cannot rename, but they upload one object atomically. So a run exists when its manifest
does, and a new manifest replaces the old state of a run; then files that only the old manifest lists are
removed. A collector locks the store while it saves a run (``StoreLock``); the next starts from there.

Manifests are downloaded first, Parquet files on demand. A copy of such a store in a folder, or of a
folder at a URL, is a store, too.
"""

from __future__ import annotations

import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from glob import has_magic
from pathlib import Path
from typing import Any, TypeVar

from stallscope.arrays.memory import folder_for_files
from stallscope.errors import UnreadableError, UnwritableError

from ..sources.source import announced_wait
from .layout import ADDRESS, CATALOGUE, MANIFEST, SUMMARY, checksum, written_whole
from .manifests import (
    NOT_A_MANIFEST,
    ListedFile,
    is_collected,
    is_inside,
    parse_manifest,
    read_manifest,
)
from .remote_folder import RemoteFolder, StoreLock

T = TypeVar("T")
R = TypeVar("R")

_AT_ONCE = 16
# The folder names that collecting creates; others are ignored.
_FOLDER = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")
# The token that makes a file name unique.
_TOKEN = re.compile(r"\.[0-9a-f]{8}(?=\.parquet$)")
# Older files without a manifest are left from killed collectors, or from tasks that ran twice.
_LEFTOVER_AGE = timedelta(days=1)


@dataclass(frozen=True)
class _State:
    """A run's manifest at the URL: its bytes, and the file system's metadata of the file."""

    data: bytes
    info: Mapping[str, Any]


class Mirror:
    """A store at a URL and its local mirror.

    All methods raise ``UnreadableError`` or ``UnwritableError`` if the URL cannot be read or written.

    Args:
        folder: the local folder.
        url: the URL of the store.
    """

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self._remote = RemoteFolder(url)
        self._lock = StoreLock(self._remote)
        #: By run; None if the URL had no manifest.
        self._states: dict[str, _State | None] = {}

    @classmethod
    def of(cls, store: Path) -> Mirror | None:
        """Return the mirror of a folder; None if the folder is a local store."""
        return _cached(store) if (store / ADDRESS).is_file() else None

    @classmethod
    def create(cls, folder: Path, url: str) -> Mirror:
        """Create a mirror in a new folder, still without runs.

        Raises:
            UsageError, MissingExtraError: if stores at such URLs are not supported.
            UnansweredError: if the server answers nothing.
        """
        mirror = cls(folder, url)
        folder.mkdir(parents=True, mode=0o700)
        (folder / ADDRESS).write_text(url.rstrip("/"))
        return mirror

    def update(self, run: str) -> None:
        """Download a run's current manifest and summary; remove its folder if the run is gone."""
        if not _FOLDER.fullmatch(run):
            return
        with self._remote.errors(run), announced_wait(self._remote.where):
            self._states[run] = state = self._state(run)
            summary = None if state is None else self._remote.read(f"{run}/{SUMMARY}")
        self._write_local(run, None if state is None else state.data, summary)

    def update_all(self, but: Iterable[str] = ()) -> None:
        """Update all runs, except some."""
        skipped = {*but, CATALOGUE}
        with self._remote.errors(), announced_wait(self._remote.where):
            runs = set(filter(_FOLDER.fullmatch, self._remote.folders())) - skipped
            manifests = self._all_of(MANIFEST, runs)
            summaries = self._all_of(SUMMARY, manifests)
        here = {path.name for path in self.folder.iterdir() if _FOLDER.fullmatch(path.name)}
        for name in manifests.keys() | here - skipped:
            self._write_local(name, manifests.get(name), summaries.get(name))
        # The catalogue is rebuilt from the manifests.
        (self.folder / CATALOGUE).unlink(missing_ok=True)

    def download(self, run: str, files: Mapping[str, ListedFile]) -> None:
        """Download files of a run that the mirror lacks."""
        lacking = {name: file for name, file in files.items() if not self._has(run, name, file)}
        with self._remote.errors(run):
            _in_parallel(lambda item: self._get(run, *item), lacking.items())

    def rename_new_files(
        self, run: str, folder: Path, files: Mapping[str, ListedFile]
    ) -> dict[str, ListedFile]:
        """Give the files of a run's new state unique names.

        Args:
            folder: the folder of the files. Files that it lacks are at the URL with unique names.

        Returns:
            The files, by name. Files that are also in the old state get their old names.
        """
        old = _files_of(self._states[run])
        old_names = {(_TOKEN.sub("", name), file.sha256): name for name, file in old.items()}
        token = secrets.token_hex(4)
        renamed = {}
        for name, file in files.items():
            new_name = name
            if (folder / name).exists():
                stem, _, ending = name.rpartition(".")
                new_name = old_names.get((name, file.sha256), f"{stem}.{token}.{ending}")
                (folder / name).rename(folder / new_name)
            renamed[new_name] = file
        return renamed

    def locked(self, run: str) -> AbstractContextManager[None]:
        """Lock the store for a block that writes a run; see ``StoreLock.held``."""
        return self._lock.held(run)

    def upload(self, run: str) -> None:
        """Upload a run's new state, to replace the state that ``update`` has found.

        Raises:
            UnwritableError: if it cannot be uploaded, or the state has changed; then nothing changes.
        """
        data = (self.folder / run / MANIFEST).read_bytes()
        old, new = _files_of(self._states[run]), read_manifest(self.folder / run).files
        added, removed = new.keys() - old.keys(), old.keys() - new.keys()
        try:
            here = [name for name in sorted(added) if (self.folder / run / name).exists()]
            with self._remote.errors(run, UnwritableError):
                _in_parallel(
                    lambda name: self._remote.put(f"{run}/{name}", self.folder / run / name), here
                )
                self._put_manifest(run, data)
        except BaseException:
            if not self._may_be_uploaded(run, data):
                self._remove(run, added)
            raise
        self._remove(run, [*removed, *self._leftovers(run, new)])

    def remove(self, run: str) -> None:
        """Remove a run from the URL, its manifest first; files of others stay."""
        files = read_manifest(self.folder / run).files
        with self.locked(run):
            with self._remote.errors(run, UnwritableError):
                self._remote.remove(f"{run}/{MANIFEST}")
            self._remove(run, [SUMMARY, *files])

    def upload_file(self, name: str) -> None:
        """Upload a small file, such as a run's summary; replace an existing one."""
        with self._remote.errors("", UnwritableError):
            self._remote.write(name, (self.folder / name).read_bytes())

    def download_file(self, name: str) -> None:
        """Download a small file; remove the local one if the URL has none."""
        with self._remote.errors():
            data = self._remote.read(name)
        _write(self.folder / name, data)

    def has(self, name: str) -> bool:
        """Whether the store has a file of this relative name."""
        with self._remote.errors():
            return self._remote.read(name) is not None

    def _state(self, run: str) -> _State | None:
        # Metadata first: if the manifest changes in between, the upload detects it.
        info = self._remote.info(f"{run}/{MANIFEST}")
        data = None if info is None else self._remote.read(f"{run}/{MANIFEST}")
        return None if info is None or data is None else _State(data, info)

    def _all_of(self, file: str, runs: Iterable[str]) -> dict[str, bytes]:
        """Download the file of this name of each run; skip runs without it."""
        names = list(runs)
        contents = _in_parallel(self._remote.read, [f"{name}/{file}" for name in names])
        return {name: data for name, data in zip(names, contents, strict=True) if data is not None}

    def _write_local(self, run: str, manifest: bytes | None, summary: bytes | None) -> None:
        if manifest is None:
            shutil.rmtree(self.folder / run, ignore_errors=True)
            return
        _write(self.folder / run / SUMMARY, summary)
        _write(self.folder / run / MANIFEST, manifest)

    def _has(self, run: str, name: str, file: ListedFile) -> bool:
        if not is_inside(name):
            raise self._damage_error(run, f"{name}: the manifest names a file outside of the run")
        path = self.folder / run / name
        return path.is_file() and path.stat().st_size == file.size

    def _get(self, run: str, name: str, file: ListedFile) -> None:
        path = self.folder / run / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # Several processes may download the same file.
        try:
            with written_whole(path) as draft:
                self._remote.get(f"{run}/{name}", draft)
                if checksum(draft) != file.sha256:
                    raise self._damage_error(run, f"{name}: the checksum differs")
        except FileNotFoundError as error:
            raise self._missing_error(run, name) from error

    def _missing_error(self, run: str, name: str) -> UnreadableError:
        """Return the error for a listed file that is missing."""
        if self._remote.read(f"{run}/{MANIFEST}") == (self.folder / run / MANIFEST).read_bytes():
            return self._damage_error(run, f"{name}: missing")
        return UnreadableError(
            f"{self._remote.where}/{run}: this run was collected again meanwhile; run the command again"
        )

    def _damage_error(self, run: str, what: str) -> UnreadableError:
        return UnreadableError(
            f"{self._remote.where}/{run}: the collected run is damaged ({what}); collect it again"
        )

    def _put_manifest(self, run: str, data: bytes) -> None:
        """Upload a manifest, once, if the current one is the known one."""
        state, name = self._states[run], f"{run}/{MANIFEST}"
        before = None if state is None else state.data
        self._lock.check()
        self._require_state(name, before)
        try:
            conditions = self._lock.conditions(None if state is None else state.info)
            self._remote.write(name, data, **conditions)
        except Exception:
            if self._remote.read(name) == data:
                return  # only the response was lost
            self._require_state(name, before)
            raise

    def _require_state(self, name: str, known: bytes | None) -> None:
        if self._remote.read(name) != known:
            raise UnwritableError(
                f"{self._remote.where}/{name}: another collector has replaced it meanwhile; collect "
                "again, with one collector at a time"
            )

    def _may_be_uploaded(self, run: str, manifest: bytes) -> bool:
        """Whether a manifest may be uploaded; true if that is unknown."""
        try:
            return self._remote.read(f"{run}/{MANIFEST}") == manifest
        except Exception:
            return True

    def _leftovers(self, run: str, kept: Iterable[str]) -> list[str]:
        """Return files that interrupted or outdated collections have left."""
        leftovers: list[str] = []
        # The run is saved, even if cleaning up fails.
        with suppress(Exception):
            for name in self._remote.files_below(run) - {*kept}:
                if _TOKEN.search(name) and self._remote.age(f"{run}/{name}") > _LEFTOVER_AGE:
                    leftovers.append(name)
        return leftovers

    def _remove(self, run: str, names: Iterable[str]) -> None:
        for name in names:
            # Files that no manifest lists are harmless.
            with suppress(Exception):
                if is_inside(name):
                    self._remote.remove(f"{run}/{name}")


@contextmanager
def temporary_mirrors() -> Iterator[Path]:
    """Create a folder for mirrors; remove it at the end of the block."""
    with tempfile.TemporaryDirectory(prefix="stallscope-", dir=folder_for_files()) as folder:
        yield Path(folder)


def open_mirror(url: str, folder: Path) -> Path | None:
    """Mirror a store or a collected run at a URL.

    Args:
        url: any RUN argument.
        folder: the folder for mirrors; it must exist while they are read.

    Returns:
        The mirror, or the run's folder in it; None if there are no collected runs at the URL.

    Raises:
        StallscopeError: if the URL cannot be listed.
    """
    if "://" not in url or has_magic(url):
        return None
    store = Mirror.create(folder / secrets.token_hex(4), url)
    store.update_all()
    if any(map(_is_manifest, store.folder.glob(f"*/{MANIFEST}"))):
        return store.folder
    parent, _, name = url.rstrip("/").rpartition("/")
    if "://" not in parent or not store.has(MANIFEST):
        return None
    store = Mirror.create(folder / secrets.token_hex(4), parent)
    store.update_all()
    run = store.folder / name
    return run if is_collected(run) else None


@lru_cache(maxsize=8)
def _cached(store: Path) -> Mirror:
    # Over ssh, each mirror is a connection.
    return Mirror(store, (store / ADDRESS).read_text())


def _files_of(state: _State | None) -> dict[str, ListedFile]:
    """Return the files of a manifest; none if it is damaged, because collecting again replaces it."""
    if state is None:
        return {}
    try:
        return dict(parse_manifest(state.data).files)
    except NOT_A_MANIFEST:
        return {}


def _is_manifest(manifest: Path) -> bool:
    """Whether a file may be the manifest of a collected run; other programs use that name, too."""
    return b"stallscope_collected" in manifest.read_bytes()


def _write(path: Path, data: bytes | None) -> None:
    """Write a file atomically; without data, remove it."""
    if data is None:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as draft:
        draft.write_bytes(data)


def _in_parallel(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(function, items))
