"""Files of web servers. Many do not say how long a file is, and many give files as wholes only.

A file of unknown length is downloaded when it is listed, and so is one that comes as a whole where a
part of it was asked for: to this machine's disk, as far as a log can be long.
"""

from __future__ import annotations

import io
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import fsspec

from stallscope.errors import StallscopeError, UnreadableError

from .base import SourceFile
from .copies import Copies
from .files import SILENT, Files, without_credentials

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

# Of nothing longer one file of logs is made; what a server computes may never end.
_MOST_BYTES = 8 << 30
_PART, _BEYOND = 206, 416
_GONE = (404, 410)
# Sizes and parts are of the file, and not of what was made of it on the way.
_AS_IT_IS = {"Accept-Encoding": "identity"}


class WebFiles(Files):
    """A file of one server, or all that a pattern matches among the links of its pages."""

    meanings = MappingProxyType(
        {**SILENT, "ClientPayloadError": "the connection broke off before all of it had come"}
    )

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._copies = Copies("web")

    def _kind(self) -> type[fsspec.AbstractFileSystem]:
        return _web()

    def _options(self) -> dict[str, Any]:
        from aiohttp import ClientTimeout

        patience = ClientTimeout(
            total=None, sock_connect=self.patience_seconds, sock_read=self.patience_seconds
        )
        return {
            **super()._options(),
            "headers": _AS_IT_IS,
            "client_kwargs": {"timeout": patience},
        }

    def _file(
        self, file_system: fsspec.AbstractFileSystem, name: str, path: str, info: dict[str, Any]
    ) -> SourceFile:
        # What follows may be a key.
        name = name.partition("?")[0]
        self._copies.forget(path)
        # Pages tell names and nothing else.
        known = info if info.get("size") else self._asked(file_system, path, info)
        size = known.get("size") or self._counted(file_system, path)
        return super()._file(file_system, name, path, {**known, "size": size})

    def _asked(
        self, file_system: fsspec.AbstractFileSystem, path: str, info: dict[str, Any]
    ) -> dict[str, Any]:
        with suppress(Exception):
            return dict(file_system.info(path))
        return info  # reported where it is read

    def _counted(self, file_system: fsspec.AbstractFileSystem, path: str) -> int:
        """The size of a file whose server does not tell it."""
        try:
            return self._copies.size(path, partial(_download, file_system, path))
        except StallscopeError:
            raise
        except Exception:
            # Not none: so it is read, and that says what is wrong with it.
            return 1

    def _bytes(
        self, file_system: fsspec.AbstractFileSystem, path: str, start: int, end: int | None
    ) -> bytes:
        if end is not None and end <= start:
            return b""
        if not self._copies.has(path):
            if start == 0 and end is None:
                return super()._bytes(file_system, path, start, end)
            part = file_system.part(path, start, end)
            if part is not None:
                return bytes(part)
        return self._copies.read(path, partial(_download, file_system, path), start, end)


def _download(file_system: fsspec.AbstractFileSystem, path: str, to: Path) -> None:
    with _Bounded(path, to) as out:
        file_system.get_file(path, out)


class _Bounded(io.FileIO):
    """A file on this machine's disk that does not become longer than logs do."""

    def __init__(self, url: str, path: Path) -> None:
        super().__init__(path, "wb")
        self._url = url

    def write(self, data: Buffer, /) -> int:
        if self.tell() + len(memoryview(data)) > _MOST_BYTES:
            raise UnreadableError(
                f"{without_credentials(self._url)}: the server sends more than {_MOST_BYTES >> 20:,} "
                "MiB and does not say how much there is: this is no log; if it is, download it"
            )
        return super().write(data)


@cache
def _web() -> type[fsspec.AbstractFileSystem]:
    from fsspec.asyn import sync_wrapper
    from fsspec.implementations.http import HTTPFileSystem

    class Web(HTTPFileSystem):  # type: ignore[misc]  # fsspec ships no types
        async def _info(self, url: str, **options: Any) -> dict[str, Any]:
            try:
                return dict(await super()._info(url, **options))
            except FileNotFoundError as error:
                # It says so of every error, also without an answer.
                cause = error.__cause__
                if cause is None or getattr(cause, "status", None) in _GONE:
                    raise
                raise cause from None

        async def _part(self, url: str, start: int, end: int | None) -> bytes | None:
            """A part of a file; None where the server has begun to send all of it."""
            asked = {**_AS_IT_IS, "Range": f"bytes={start}-{'' if end is None else end - 1}"}
            session = await self.set_session()
            async with session.get(self.encode_url(url), headers=asked) as answer:
                if answer.status == _BEYOND:
                    return b""
                self._raise_not_found_for_status(answer, url)
                told = answer.headers.get("Content-Range", "")
                is_part = answer.status == _PART and told.startswith(f"bytes {start}-")
                return bytes(await answer.read()) if is_part else None

        part = sync_wrapper(_part)

    return Web
