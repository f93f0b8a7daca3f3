"""Read and write the files of a store at a URL, and lock it: one collector at a time writes there."""

from __future__ import annotations

import errno
import getpass
import json
import os
import platform
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from stallscope.errors import StallscopeError, UnreadableError, UnwritableError, UsageError, causes
from stallscope.formatting.plain import plain

from ..source_kinds import open_source
from ..sources.files import Files, has_folders
from ..sources.source import logger

#: The file that names the collector that writes into the store.
LOCK = ".collector.json"
# A lock that was not renewed for this long is a killed collector's.
_LEASE_SECONDS = 60.0
_RENEWED_EVERY_SECONDS = 15.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.05, 2.0
# Errors of clients for options that they, or the store, do not know. S3's "NotImplemented" is ENOSYS.
_UNSUPPORTED = {"ParamValidationError", "TypeError", "NotImplementedError"}
# S3's error while another conditional write of the same object is under way.
_CONFLICT = "ConditionalRequestConflict"


class RemoteFolder:
    """A folder at a URL; names of files are relative to it.

    Methods raise the errors of the place's client, which ``errors`` converts.

    Args:
        url: the URL of the folder.

    Raises:
        UsageError: if such URLs cannot be written to.
        MissingExtraError: if the library for the protocol is not installed.
        UnansweredError: if the server answers nothing.
        UnreadableError: if the place cannot be opened.
    """

    def __init__(self, url: str) -> None:
        # Most commands open no URL.
        from ..sources.web import WebFiles

        place = open_source(url)
        if not isinstance(place, Files) or isinstance(place, WebFiles):
            raise UsageError(
                f"{place.where}: a store must be a folder or a URL that can be written to"
            )
        self.where = place.where.rstrip("/")
        self._place = place
        place.require_answer()
        with self.errors():
            self._system, root = place.open_file_system()
        self._root = root.rstrip("/")
        self._has_folders = has_folders(self._system)

    @contextmanager
    def errors(
        self, name: str = "", kind: type[StallscopeError] = UnreadableError
    ) -> Iterator[None]:
        """Convert errors to one of this kind that names a file or folder."""
        try:
            yield
        except StallscopeError:
            raise
        except Exception as error:  # any library may raise its own errors
            what = "read" if kind is UnreadableError else "written"
            message = self._place.describe_error(error)
            raise kind(
                f"{self.where}/{name}".rstrip("/") + f": cannot be {what}: {message}"
            ) from error

    def folders(self) -> Iterator[str]:
        """Yield the names of the folders in this one."""
        self._system.invalidate_cache()
        try:
            listed = self._system.ls(self._root, detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return
        for info in listed:
            if info["type"] == "directory":
                yield str(info["name"]).rstrip("/").rpartition("/")[2]

    def files_below(self, folder: str) -> set[str]:
        """Return the names of all files below a folder, relative to it."""
        root = self._path(folder)
        return {path.removeprefix(root + "/") for path in self._system.find(root)}

    def info(self, name: str) -> dict[str, Any] | None:
        """Return the metadata of a file; None if there is none."""
        self._system.invalidate_cache()
        try:
            return dict(self._system.info(self._path(name)))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def read(self, name: str) -> bytes | None:
        """Return the content of a file; None if there is none."""
        try:
            return bytes(self._system.cat_file(self._path(name)))
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def age(self, name: str) -> timedelta:
        """Return the time since a file was changed."""
        changed: datetime = self._system.modified(self._path(name))
        return datetime.now(UTC) - changed.astimezone(UTC)

    def get(self, name: str, local: Path) -> None:
        """Download a file."""
        self._system.get_file(self._path(name), str(local))

    def put(self, name: str, local: Path) -> None:
        """Upload a file."""
        self._make_folder_of(name)
        self._system.put_file(str(local), self._path(name))

    def write(self, name: str, data: bytes, **conditions: Any) -> None:
        """Write a file, so that readers see its old content or the new one.

        Args:
            conditions: the result of ``conditional_options``.
        """
        path = self._path(name)
        if not self._has_folders:
            self._system.pipe_file(path, data, **conditions)
            return
        self._make_folder_of(name)
        folder, _, file = path.rpartition("/")
        draft = f"{folder}/.{file}.{secrets.token_hex(4)}"
        self._system.pipe_file(draft, data)
        self._system.mv(draft, path)

    def create(self, name: str, data: bytes) -> None:
        """Write a file that must not exist.

        Raises:
            NotImplementedError: if the place cannot refuse an existing file.
        """
        conditions = self.conditional_options(None)
        if conditions:
            self.write(name, data, **conditions)
        elif self._has_folders:
            self._make_folder_of(name)
            with self._system.open(self._path(name), "xb") as file:
                file.write(data)
        elif self._place.local:
            self.write(name, data)  # no other process sees this one's memory
        else:
            raise NotImplementedError("conditional writes")

    def conditional_options(self, info: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the options of ``write`` that make it fail if the file no longer has this metadata."""
        return self._place.conditional_options(info)

    def remove(self, name: str) -> None:
        """Remove a file."""
        self._system.rm_file(self._path(name))

    def _make_folder_of(self, name: str) -> None:
        if self._has_folders:
            self._system.makedirs(self._path(name).rpartition("/")[0], exist_ok=True)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"


class StoreLock:
    """The lock of a store at a URL: a file that names the collector that writes there.

    The collector renews the lock. If it was killed, the next one takes the lock over after the lease,
    for which it watches the lock: clocks of different hosts are not compared.

    Args:
        folder: the store.
    """

    def __init__(self, folder: RemoteFolder) -> None:
        self._folder = folder
        self._token = secrets.token_hex(8)
        self._since = datetime.now(UTC).isoformat(timespec="seconds")
        self._renewals = 0
        # Unknown until the first lock tries them.
        self._creates, self._replaces = True, True
        self._is_tried = False
        self._is_held = False
        self._announced: set[str] = set()

    @contextmanager
    def held(self, run: str) -> Iterator[None]:
        """Hold the lock in a block; wait for another collector's.

        Without conditional writes, a store has no lock; a warning says so once.

        Args:
            run: the run to write, for error messages.

        Raises:
            UnwritableError: if the lock cannot be written.
        """
        ended = threading.Event()
        renewing = threading.Thread(target=self._keep_renewing, args=(ended,), daemon=True)
        try:
            with self._folder.errors(run, UnwritableError):
                self._acquire()
            if self._is_held:
                renewing.start()
            yield
        finally:
            ended.set()
            if renewing.is_alive():
                renewing.join()
            self._release()

    def check(self) -> None:
        """Check that no collector has taken the lock over, as after a long pause of this process.

        Raises:
            UnwritableError: if one has.
        """
        if self._is_held and not self._is_mine(self._folder.read(LOCK)):
            raise UnwritableError(
                f"{self._folder.where}: another collector has taken over, because this one did not "
                "renew its lock; collect again"
            )

    def conditions(self, info: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return ``conditional_options``; empty if the store does not support them."""
        supported = self._creates if info is None else self._replaces
        return self._folder.conditional_options(info) if supported else {}

    def _acquire(self) -> None:
        watched: bytes | None = None
        since, pause = 0.0, _FIRST_PAUSE_SECONDS
        while self._creates:
            # Metadata first: if the lock changes in between, a conditional write fails.
            info = self._folder.info(LOCK)
            current = None if info is None else self._folder.read(LOCK)
            if current is None:
                if self._create():
                    return
            elif current != watched:
                watched, since = current, time.monotonic()
                self._announce(current)
            elif time.monotonic() - since > _LEASE_SECONDS:
                logger.warning(
                    "stallscope: %s: %s has not renewed its lock for %g s; this collector takes over",
                    self._folder.where,
                    _collector(current),
                    _LEASE_SECONDS,
                )
                if self._take_over(info):
                    return
                watched = None
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _create(self) -> bool:
        """Create the lock; return whether this collector has it, or no collector can have one."""
        data = self._new_data()
        self._is_held = True
        try:
            self._folder.create(LOCK, data)
        except Exception as error:
            if refuses_conditions(error):
                self._do_without()
                return True
            current = self._folder.read(LOCK)
            if current is None and not _is_conflict(error):
                raise
        # The response may have been lost, and some stores ignore conditions.
        self._is_held = self._is_mine(self._folder.read(LOCK))
        if self._is_held and not self._is_tried:
            # Try the condition of replacing on the lock, so that no run's manifest meets it first.
            self._is_tried = True
            self._renew()
        return self._is_held

    def _take_over(self, info: Mapping[str, Any] | None) -> bool:
        """Replace a killed collector's lock; return whether this collector has it."""
        conditions = self.conditions(info)
        if not conditions:
            self._folder.remove(LOCK)
            return self._create()
        self._is_held = True
        # Whether it was written or not: the lock itself tells whose it is.
        with suppress(Exception):
            self._folder.write(LOCK, self._new_data(), **conditions)
        self._is_held = self._is_mine(self._folder.read(LOCK))
        return self._is_held

    def _keep_renewing(self, ended: threading.Event) -> None:
        while not ended.wait(_RENEWED_EVERY_SECONDS):
            # The next attempt is soon enough, and ``check`` finds a lock that was taken over.
            with suppress(Exception):
                self._renew()

    def _renew(self) -> None:
        info = self._folder.info(LOCK)
        if info is None or not self._is_mine(self._folder.read(LOCK)):
            return
        try:
            self._folder.write(LOCK, self._new_data(), **self.conditions(info))
        except Exception as error:
            if not refuses_conditions(error):
                raise
            self._replaces = False

    def _release(self) -> None:
        # A lock that stays ends with its lease.
        with suppress(Exception):
            if self._is_held and self._is_mine(self._folder.read(LOCK)):
                self._folder.remove(LOCK)
        self._is_held = False

    def _do_without(self) -> None:
        self._creates = self._replaces = self._is_held = False
        logger.warning(
            "stallscope: %s: this store has no conditional writes, so it cannot be locked: run one "
            "collector at a time",
            self._folder.where,
        )

    def _announce(self, lock: bytes) -> None:
        """Say once per collector that this one waits for it."""
        collector = _collector(lock)
        if collector not in self._announced:
            self._announced.add(collector)
            logger.warning(
                "stallscope: %s: waiting for %s, which writes there", self._folder.where, collector
            )

    def _new_data(self) -> bytes:
        """Return the lock's content, which each renewal changes."""
        self._renewals += 1
        user = "an unknown user"
        # In a container, the user may have no name.
        with suppress(Exception):
            user = getpass.getuser()
        content = {
            "stallscope_collector": self._token,
            "user": user,
            "host": platform.node(),
            "pid": os.getpid(),
            "since": self._since,
            "renewals": self._renewals,
        }
        return json.dumps(content).encode()

    def _is_mine(self, lock: bytes | None) -> bool:
        return lock is not None and _content(lock).get("stallscope_collector") == self._token


def _content(lock: bytes) -> Mapping[str, Any]:
    """Return the content of a lock; empty if it is being written or damaged."""
    try:
        content = json.loads(lock)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _collector(lock: bytes) -> str:
    """Describe the collector that a lock names."""
    content = _content(lock)
    if not content:
        return "another collector"
    user, host, pid, since = (content.get(name) for name in ("user", "host", "pid", "since"))
    return plain(f"the collector of {user} on {host} (process {pid}, since {since})")


def refuses_conditions(error: BaseException | None) -> bool:
    """Whether a store or its client rejected a write because it knows no conditions."""
    for cause in causes(error):
        names = {kind.__name__ for kind in type(cause).__mro__}
        if names & _UNSUPPORTED or getattr(cause, "errno", None) == errno.ENOSYS:
            return True
    return False


def _is_conflict(error: BaseException | None) -> bool:
    """Whether S3 rejected a write because another collector writes at the same time."""
    for cause in causes(error):
        response = getattr(cause, "response", None)
        if isinstance(response, dict) and response.get("Error", {}).get("Code") == _CONFLICT:
            return True
    return False
