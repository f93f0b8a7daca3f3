"""A store at a URL, through a folder of this machine that looks like it as long as a command runs.

    URL/<run id>/manifest.json                      put last: what it lists is the run, and nothing else
                 steps/epochs-….<token>.parquet     names that no other collection uses
                 intervals.<token>.parquet
                 series.<token>.parquet
                 summary.json                       what the analysis found, in short
    URL/.fetched/<place>/seen.json                  what became of a source's files

Object stores move nothing, but put one object at once. So a run is there when its manifest is, and a
new state of it takes the place of the old one with its manifest; then the files go that only the old one
has. Of two collectors that save one run at once the later one finds another manifest than the one that
it has started from, and begins again with that.

The folder has manifests from the beginning; files of Parquet come on demand. A store that
is copied from a URL into a folder, or the other way round, is one there, too.
"""

from __future__ import annotations

import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from fsspec.core import has_magic

from stallscope.arrays.memory import folder_for_files
from stallscope.errors import StallscopeError, UnreadableError, UnwritableError, UsageError

from ..address import ADDRESS
from ..registry import open_source
from ..sources.files import Files, has_folders
from ..sources.web import WebFiles
from .layout import CATALOGUE, MANIFEST, SUMMARY, checksum, written_whole
from .manifests import NOT_A_MANIFEST, ListedFile, is_inside, parsed, read_manifest

T = TypeVar("T")
R = TypeVar("R")

_AT_ONCE = 16
# Names that collecting gives to folders; no others become names here.
_FOLDER = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")
# What makes a name one of its own, before the ending.
_TOKEN = re.compile(r"\.[0-9a-f]{8}(?=\.parquet$)")
# Of collectors that were killed, and of tasks that ran twice: no live collector takes that long to
# put a manifest.
_LEFT = timedelta(days=1)


@dataclass(frozen=True)
class _State:
    """A run's manifest as it was found: its bytes, and what the place tells of the file."""

    data: bytes
    info: Mapping[str, Any]


class Mirror:
    """A store at a URL, and the folder that shows it.

    All methods raise ``UnreadableError`` or ``UnwritableError`` where the URL does not give or take
    something.

    Args:
        folder: on this machine.
        url: of the store.
    """

    def __init__(self, folder: Path, url: str) -> None:
        place = open_source(url)
        if not isinstance(place, Files) or isinstance(place, WebFiles):
            raise UsageError(f"{place.where}: stores are folders, or at URLs that take files")
        self.folder, self.where = folder, place.where.rstrip("/")
        self._place = place
        with self._reading(""):
            self._system, root = place.opened()
        self._root = root.rstrip("/")
        #: By run; None where there was none.
        self._known: dict[str, _State | None] = {}

    @classmethod
    def of(cls, store: Path) -> Mirror | None:
        """The mirror that a folder is; None of a store that is here."""
        return _opened(store) if (store / ADDRESS).is_file() else None

    @classmethod
    def made(cls, folder: Path, url: str) -> Mirror:
        """A new mirror in a folder, which is made; nothing is contacted yet.

        Raises:
            UsageError, MissingExtraError: if there can be no store at such a URL.
        """
        mirror = cls(folder, url)
        folder.mkdir(parents=True, mode=0o700)
        (folder / ADDRESS).write_text(url.rstrip("/"))
        return mirror

    def update(self, run: str) -> None:
        """Have the newest manifest of a run, with its summary; no folder where it has gone."""
        if not _FOLDER.fullmatch(run):
            return
        with self._reading(run):
            self._known[run] = state = self._state(run)
            summary = None if state is None else self._bytes(f"{run}/{SUMMARY}")
        self._show(run, None if state is None else state.data, summary)

    def update_all(self, but: Iterable[str] = ()) -> None:
        """The same for all runs, except some."""
        left_out = {*but, CATALOGUE}
        with self._reading(""):
            manifests = self._all_of(MANIFEST, {*self._folders()} - left_out)
            summaries = self._all_of(SUMMARY, manifests)
        here = {path.name for path in self.folder.iterdir() if _FOLDER.fullmatch(path.name)}
        for name in manifests.keys() | here - left_out:
            self._show(name, manifests.get(name), summaries.get(name))
        # Made anew from the manifests.
        (self.folder / CATALOGUE).unlink(missing_ok=True)

    def bring(self, run: str, files: Mapping[str, ListedFile]) -> None:
        """Have files of a run, as they are listed."""
        lacking = {name: file for name, file in files.items() if not self._has(run, name, file)}
        with self._reading(run):
            _side_by_side(lambda item: self._get(run, *item), lacking.items())

    def named(
        self, run: str, folder: Path, files: Mapping[str, ListedFile]
    ) -> dict[str, ListedFile]:
        """Give the files of a run's new state the names that they are to have beside those of the state
        that ``update`` has found.

        Args:
            folder: where they are. What is not here is at the URL already, under a name of its own.

        Returns:
            The files, by name. Those that the old state has, too, are called as they are there.
        """
        old = _listed(self._known[run])
        known = {(_TOKEN.sub("", name), file.sha256): name for name, file in old.items()}
        token = secrets.token_hex(4)
        found = {}
        for name, file in files.items():
            own = name
            if (folder / name).exists():
                stem, _, ending = name.rpartition(".")
                own = known.get((name, file.sha256), f"{stem}.{token}.{ending}")
                (folder / name).rename(folder / own)
            found[own] = file
        return found

    def put(self, run: str) -> bool:
        """Put a run's new state to the URL, in the place of the one that ``update`` has found.

        Returns:
            False if another collector has put one since: then nothing has changed.
        """
        data = (self.folder / run / MANIFEST).read_bytes()
        old, new = _listed(self._known[run]), read_manifest(self.folder / run).files
        added, gone = new.keys() - old.keys(), old.keys() - new.keys()
        try:
            here = [name for name in sorted(added) if (self.folder / run / name).exists()]
            with self._writing(run):
                _side_by_side(lambda name: self._put_file(f"{run}/{name}"), here)
                done = self._put_manifest(run, data)
        except BaseException:
            if not self._is_there(run, data):
                self._remove(run, added)
            raise
        self._remove(run, gone if done else added)
        if done:
            self._remove(run, self._left(run, new))
        return done

    def remove(self, run: str) -> None:
        """Remove a run from the URL, its manifest first; files that are not of Stallscope stay."""
        files = read_manifest(self.folder / run).files
        with self._writing(run):
            self._system.rm_file(self._path(f"{run}/{MANIFEST}"))
        self._remove(run, [SUMMARY, *files])

    def put_beside(self, name: str) -> None:
        """Put a small file to the URL, such as a run's summary: all of it, and whatever is there."""
        with self._writing(""):
            self._put_whole(name, (self.folder / name).read_bytes())

    def bring_beside(self, name: str) -> None:
        """Have a small file as it is at the URL, or none."""
        with self._reading(""):
            data = self._bytes(name)
        _write(self.folder / name, data)

    def has(self, name: str) -> bool:
        """Whether there is a file of this name, relative to the store."""
        with self._reading(""):
            return self._bytes(name) is not None

    def _state(self, run: str) -> _State | None:
        try:
            # In this order: what is put in between is noticed by its state.
            info = self._system.info(self._path(f"{run}/{MANIFEST}"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        data = self._bytes(f"{run}/{MANIFEST}")
        return None if data is None else _State(data, dict(info))

    def _folders(self) -> Iterator[str]:
        self._system.invalidate_cache()
        try:
            listed = self._system.ls(self._root, detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return
        for info in listed:
            name = str(info["name"]).rstrip("/").rpartition("/")[2]
            if info["type"] == "directory" and _FOLDER.fullmatch(name):
                yield name

    def _all_of(self, file: str, runs: Iterable[str]) -> dict[str, bytes]:
        """What some runs have in a file of this name, without those that have none."""
        names = list(runs)
        found = _side_by_side(self._bytes, [f"{name}/{file}" for name in names])
        return {name: data for name, data in zip(names, found, strict=True) if data is not None}

    def _show(self, run: str, manifest: bytes | None, summary: bytes | None) -> None:
        if manifest is None:
            shutil.rmtree(self.folder / run, ignore_errors=True)
            return
        _write(self.folder / run / SUMMARY, summary)
        _write(self.folder / run / MANIFEST, manifest)

    def _has(self, run: str, name: str, file: ListedFile) -> bool:
        if not is_inside(name):
            raise self._damaged(run, f"{name}: the manifest names a file outside of the run")
        path = self.folder / run / name
        return path.is_file() and path.stat().st_size == file.size

    def _get(self, run: str, name: str, file: ListedFile) -> None:
        path = self.folder / run / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # Several processes may want the same one.
        try:
            with written_whole(path) as draft:
                self._system.get_file(self._path(f"{run}/{name}"), str(draft))
                if checksum(draft) != file.sha256:
                    raise self._damaged(run, f"{name}: other bytes than were collected")
        except FileNotFoundError as error:
            raise self._missing(run, name) from error

    def _missing(self, run: str, name: str) -> UnreadableError:
        """Why a file that is listed is not there."""
        if self._bytes(f"{run}/{MANIFEST}") == (self.folder / run / MANIFEST).read_bytes():
            return self._damaged(run, f"{name}: missing")
        return UnreadableError(
            f"{self.where}/{run}: this run was collected again meanwhile; do the same once more"
        )

    def _damaged(self, run: str, what: str) -> UnreadableError:
        return UnreadableError(
            f"{self.where}/{run}: the collected run is damaged ({what}); collect it again"
        )

    def _put_file(self, name: str) -> None:
        self._make_room(name)
        self._system.put_file(str(self.folder / name), self._path(name))

    def _put_manifest(self, run: str, data: bytes) -> bool:
        """Put a manifest in the place of the one that is known; whether it was that one."""
        known, name = self._known[run], f"{run}/{MANIFEST}"
        before = None if known is None else known.data
        if self._bytes(name) != before:
            return False
        conditions = self._place.only_over(None if known is None else known.info)
        try:
            self._put_whole(name, data, **conditions)
        except Exception:
            now = self._bytes(name)
            if now not in (before, data):
                return False
            if now == before:
                if not conditions:
                    raise
                # A store, or a client, that does not know conditions.
                self._put_whole(name, data)
        return True

    def _put_whole(self, name: str, data: bytes, **conditions: Any) -> None:
        path = self._path(name)
        if not has_folders(self._system):
            self._system.pipe_file(path, data, **conditions)
            return
        self._make_room(name)
        folder, _, own = path.rpartition("/")
        beside = f"{folder}/.{own}.{secrets.token_hex(4)}"
        self._system.pipe_file(beside, data)
        self._system.mv(beside, path)

    def _make_room(self, name: str) -> None:
        if has_folders(self._system):
            self._system.makedirs(self._path(name).rpartition("/")[0], exist_ok=True)

    def _is_there(self, run: str, manifest: bytes) -> bool:
        """Whether a manifest may have come to its place; yes if it is not known."""
        try:
            return self._bytes(f"{run}/{MANIFEST}") == manifest
        except Exception:
            return True

    def _left(self, run: str, own: Iterable[str]) -> list[str]:
        """Files of collections that did not come to their ends, or that count no longer."""
        found: list[str] = []
        # The run is there, whatever becomes of this.
        with suppress(Exception):
            root = self._path(run) + "/"
            names = {path.removeprefix(root) for path in self._system.find(self._path(run))}
            for name in names - {*own}:
                if _TOKEN.search(name) and self._age(f"{run}/{name}") > _LEFT:
                    found.append(name)
        return found

    def _age(self, name: str) -> timedelta:
        changed: datetime = self._system.modified(self._path(name))
        return datetime.now(UTC) - changed.astimezone(UTC)

    def _remove(self, run: str, names: Iterable[str]) -> None:
        for name in names:
            # Nothing counts that no manifest lists.
            with suppress(Exception):
                if is_inside(name):
                    self._system.rm_file(self._path(f"{run}/{name}"))

    def _bytes(self, name: str) -> bytes | None:
        try:
            return bytes(self._system.cat_file(self._path(name)))
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    @contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        with self._told(name, UnreadableError, "read"):
            yield

    @contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        with self._told(name, UnwritableError, "written"):
            yield

    @contextmanager
    def _told(self, name: str, kind: type[StallscopeError], what: str) -> Iterator[None]:
        try:
            yield
        except StallscopeError:
            raise
        except Exception as error:  # of whatever library opens such places
            said = self._place.means(error)
            raise kind(
                f"{self.where}/{name}".rstrip("/") + f": cannot be {what}: {said}"
            ) from error


@contextmanager
def place_for_mirrors() -> Iterator[Path]:
    """A folder for mirrors; all of them go when the block ends."""
    with tempfile.TemporaryDirectory(prefix="stallscope-", dir=folder_for_files()) as folder:
        yield Path(folder)


def mirrored(url: str, folder: Path) -> Path | None:
    """What is collected at a URL, as a folder of this machine: a store, or a run of one.

    Args:
        url: anything that RUN may be.
        folder: where mirrors are made; it has to outlast what is read of them.

    Returns:
        The mirror, or the run's folder in it; None where nothing is collected at a URL.

    Raises:
        StallscopeError: if it cannot be listed, or nothing that can be listed is at such URLs.
    """
    if "://" not in url or has_magic(url):
        return None
    store = Mirror.made(folder / secrets.token_hex(4), url)
    store.update_all()
    if any(map(_is_ours, store.folder.glob(f"*/{MANIFEST}"))):
        return store.folder
    above, _, name = url.rstrip("/").rpartition("/")
    if "://" not in above or not store.has(MANIFEST):
        return None
    store = Mirror.made(folder / secrets.token_hex(4), above)
    store.update_all()
    run = store.folder / name
    return run if (run / MANIFEST).is_file() else None


@lru_cache(maxsize=8)
def _opened(store: Path) -> Mirror:
    # Over ssh, each one is a connection.
    return Mirror(store, (store / ADDRESS).read_text())


def _listed(state: _State | None) -> dict[str, ListedFile]:
    """The files of a manifest; none of one that is damaged, which collecting again mends."""
    if state is None:
        return {}
    try:
        return dict(parsed(state.data).files)
    except NOT_A_MANIFEST:
        return {}


def _is_ours(manifest: Path) -> bool:
    """Whether a manifest may be one of a collected run: others lie beside logs, too."""
    return b"stallscope_collected" in manifest.read_bytes()


def _write(path: Path, data: bytes | None) -> None:
    """Write a file as a whole, or see that there is none."""
    if data is None:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as draft:
        draft.write_bytes(data)


def _side_by_side(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(function, items))
