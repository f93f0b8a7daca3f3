"""Read files of web servers, many of which send no sizes or ranges.

A file of unknown size is downloaded to a local disk when it is listed. A file that the server only sends
completely is downloaded when a part of it is read. Downloads have a maximum size.
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

from .files import TIMEOUTS, Files
from .source import LocalCopies, SourceFile, without_credentials

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

# No log is larger; a generated response may never end.
_MOST_BYTES = 8 << 30
_PARTIAL_CONTENT, _RANGE_NOT_SATISFIABLE = 206, 416
_GONE = (404, 410)
# Sizes and ranges must be those of the uncompressed file.
_UNCOMPRESSED = {"Accept-Encoding": "identity"}


class WebFiles(Files):
    """A file of a server, or all links on its pages that match a pattern."""

    error_messages = MappingProxyType(
        {**TIMEOUTS, "ClientPayloadError": "the connection was lost during the transfer"}
    )

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._copies = LocalCopies("web")

    def _kind(self) -> type[fsspec.AbstractFileSystem]:
        return _web()

    def _first_request(self) -> None:
        # ``info`` would wait twice, for HEAD and for GET.
        file_system, path = self.open_file_system()
        file_system.request_head(path)

    def _options(self) -> dict[str, Any]:
        return {
            **super()._options(),
            "headers": _UNCOMPRESSED,
            "client_kwargs": {"timeout": self._client_timeout()},
        }

    def _file(
        self, file_system: fsspec.AbstractFileSystem, name: str, path: str, info: dict[str, Any]
    ) -> SourceFile:
        # The query may be a key.
        name = name.partition("?")[0]
        self._copies.forget(path)
        # Pages only have names.
        known = info if info.get("size") else self._request_info(file_system, path, info)
        size = known.get("size") or self._measure_size(file_system, path)
        return super()._file(file_system, name, path, {**known, "size": size})

    def _request_info(
        self, file_system: fsspec.AbstractFileSystem, path: str, info: dict[str, Any]
    ) -> dict[str, Any]:
        with suppress(Exception):
            return dict(file_system.info(path))
        return info  # reading the file reports the error

    def _measure_size(self, file_system: fsspec.AbstractFileSystem, path: str) -> int:
        """Download a file to measure its size."""
        try:
            return self._copies.size(path, partial(_download, file_system, path))
        except StallscopeError:
            raise
        except Exception:
            # A size above zero makes the file be read, which reports the error.
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
    """A local file with a maximum size."""

    def __init__(self, url: str, path: Path) -> None:
        super().__init__(path, "wb")
        self._url = url

    def write(self, data: Buffer, /) -> int:
        if self.tell() + len(memoryview(data)) > _MOST_BYTES:
            raise UnreadableError(
                f"{without_credentials(self._url)}: the server sends more than {_MOST_BYTES >> 20:,} "
                "MiB without a size, so this is probably not a log; if it is, download it first"
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
                # It raises this for every error, even without a response.
                cause = error.__cause__
                if cause is None or getattr(cause, "status", None) in _GONE:
                    raise
                raise cause from None

        async def _request_head(self, url: str) -> None:
            """Request a file's metadata; any status will do."""
            session = await self.set_session()
            async with session.head(self.encode_url(url), headers=_UNCOMPRESSED):
                pass

        request_head = sync_wrapper(_request_head)

        async def _part(self, url: str, start: int, end: int | None) -> bytes | None:
            """Read a part of a file; return None if the server sends all of it."""
            headers = {**_UNCOMPRESSED, "Range": f"bytes={start}-{'' if end is None else end - 1}"}
            session = await self.set_session()
            async with session.get(self.encode_url(url), headers=headers) as answer:
                if answer.status == _RANGE_NOT_SATISFIABLE:
                    return b""
                self._raise_not_found_for_status(answer, url)
                content_range = answer.headers.get("Content-Range", "")
                is_part = answer.status == _PARTIAL_CONTENT and content_range.startswith(
                    f"bytes {start}-"
                )
                return bytes(await answer.read()) if is_part else None

        part = sync_wrapper(_part)

    return Web
