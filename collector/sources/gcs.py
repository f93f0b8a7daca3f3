"""Read files in Google Cloud Storage, with the login that Google's clients find."""

from __future__ import annotations

import logging
import os
from functools import cache
from types import MappingProxyType
from typing import Any

import fsspec

from .files import TIMEOUTS, Files

_FROM = (
    "GOOGLE_APPLICATION_CREDENTIALS, 'gcloud auth application-default login', or the machine's "
    "service account"
)
_REFUSED = (
    "access denied ({error}): the login is wrong, has expired or lacks the permission; it comes from "
    + _FROM
)
_FORBIDDEN = "Forbidden: "
# The errors raised here have messages; the client must not log them again with a traceback.
logging.getLogger("gcsfs").addHandler(logging.NullHandler())


class GcsFiles(Files):
    """Files of a bucket."""

    error_messages = MappingProxyType(
        {
            **TIMEOUTS,
            "RefreshError": _REFUSED,
            "GoogleAuthError": f"the login is invalid ({{error}}); it comes from {_FROM}",
        }
    )

    def _kind(self) -> type[fsspec.AbstractFileSystem]:
        return _buckets(self.attempts)

    def _options(self) -> dict[str, Any]:
        credentials_file = os.environ.get("GOOGLE_APPLICATION_CREDENTIALS")
        return {
            **super()._options(),
            "requests_timeout": self._client_timeout(),
            # Without this, a wrong credentials file would mean no login at all.
            **({"token": "google_default"} if credentials_file else {}),
        }

    def _bytes(
        self, file_system: fsspec.AbstractFileSystem, path: str, start: int, end: int | None
    ) -> bytes:
        try:
            return super()._bytes(file_system, path, start, end)
        except OSError as error:
            if str(error).startswith(_FORBIDDEN):
                raise PermissionError(str(error)) from error
            raise

    def describe_error(self, error: BaseException) -> str:
        message = super().describe_error(error)
        if message.startswith(_FORBIDDEN):
            # The reason is in the second line; the first has the address of the API.
            return _REFUSED.replace("{error}", str(error).partition("\n")[2].strip() or "Forbidden")
        return (
            _REFUSED.replace("{error}", message) if getattr(error, "code", None) == 401 else message
        )


@cache
def _buckets(attempts: int) -> type[fsspec.AbstractFileSystem]:
    from gcsfs.core import GCSFileSystem
    from gcsfs.retry import retry_request

    class Buckets(GCSFileSystem):  # type: ignore[misc]  # gcsfs ships no types
        """A file system without gcsfs's request for the kind of bucket.

        That request uses gRPC, which not every proxy passes, and needs another permission.
        """

        # The default of six attempts delays the error of a wrong login by more than half a minute.
        _request = retry_request(retries=attempts)(GCSFileSystem._request.__wrapped__)

    return Buckets
