"""Files in Google Cloud Storage. The login is the one that every client of Google's finds."""

from __future__ import annotations

import logging
import os
from functools import cache
from types import MappingProxyType
from typing import Any

import fsspec

from .files import SILENT, Files

_FROM = (
    "GOOGLE_APPLICATION_CREDENTIALS, 'gcloud auth application-default login', or the machine's "
    "service account"
)
_REFUSED = (
    "access is refused ({said}): the login is wrong, has ended or may not do that there; it comes from "
    + _FROM
)
_FORBIDDEN = "Forbidden: "
# What goes wrong is said here, and not a second time, with a traceback, by the client.
logging.getLogger("gcsfs").addHandler(logging.NullHandler())


class GcsFiles(Files):
    """Files of one bucket."""

    meanings = MappingProxyType(
        {
            **SILENT,
            "RefreshError": _REFUSED,
            "GoogleAuthError": f"the login cannot be used ({{said}}); it comes from {_FROM}",
        }
    )

    def _kind(self) -> type[fsspec.AbstractFileSystem]:
        return _buckets(self.attempts)

    def _options(self) -> dict[str, Any]:
        from aiohttp import ClientTimeout

        silence = ClientTimeout(
            total=None, sock_connect=self.patience_seconds, sock_read=self.patience_seconds
        )
        named = os.environ.get("GOOGLE_APPLICATION_CREDENTIALS")
        return {
            **super()._options(),
            "requests_timeout": silence,
            # A mistake in what the user has named would otherwise be no login at all.
            **({"token": "google_default"} if named else {}),
        }

    def _said(self, error: BaseException) -> str:
        said = super()._said(error)
        if said.startswith(_FORBIDDEN):
            # The reason is in the second line, the first one is the address of the API.
            return _REFUSED.replace("{said}", str(error).partition("\n")[2].strip() or "Forbidden")
        return _REFUSED.replace("{said}", said) if getattr(error, "code", None) == 401 else said


@cache
def _buckets(attempts: int) -> type[fsspec.AbstractFileSystem]:
    from gcsfs.core import GCSFileSystem
    from gcsfs.retry import retry_request

    class Buckets(GCSFileSystem):  # type: ignore[misc]  # gcsfs ships no types
        """Without what gcsfs puts on top: that asks over gRPC what kind of bucket each one is, which
        needs another permission, and does not come through every proxy.
        """

        # Its own six attempts keep a user with a wrong login waiting for more than half a minute.
        _request = retry_request(retries=attempts)(GCSFileSystem._request.__wrapped__)

    return Buckets
