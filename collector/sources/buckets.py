"""Read files in S3, Google Cloud Storage and Azure, with the login that their own clients find."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import fsspec

from .files import TIMEOUTS, Files

_FROM = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE and ~/.aws, or the machine's role"
_GOOGLE_FROM = (
    "GOOGLE_APPLICATION_CREDENTIALS, 'gcloud auth application-default login', or the machine's "
    "service account"
)
_GOOGLE_REFUSED = (
    "access denied ({error}): the login is wrong, has expired or lacks the permission; it comes from "
    + _GOOGLE_FROM
)
_FORBIDDEN = "Forbidden: "

_AZURE_FROM = (
    "AZURE_STORAGE_CONNECTION_STRING, AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN, 'az login', "
    "or the machine's identity"
)
_CODE = re.compile(r"ErrorCode:(\w+)")


class S3Files(Files):
    """Files of a bucket."""

    error_messages = MappingProxyType(
        {
            **TIMEOUTS,
            "PermissionError": (
                "access denied ({error}): the keys are wrong, have expired or lack the permission; "
                f"they come from {_FROM}"
            ),
            "NoCredentialsError": f"there are no keys; they come from {_FROM}",
        }
    )

    def _kind(self) -> type[fsspec.AbstractFileSystem]:
        return _buckets()

    def conditional_options(self, info: Mapping[str, Any] | None) -> dict[str, Any]:
        if info is None:
            return {"IfNoneMatch": "*"}
        return {"IfMatch": info["ETag"]} if info.get("ETag") else {}

    def _options(self) -> dict[str, Any]:
        config: dict[str, Any] = {"read_timeout": self.timeout_seconds}
        if self.attempts == 1:
            # Otherwise the user's configuration counts, or botocore's default.
            config["retries"] = {"total_max_attempts": 1}
        return {**super()._options(), "config_kwargs": config}


@cache
def _buckets() -> type[fsspec.AbstractFileSystem]:
    from s3fs import S3FileSystem

    class Buckets(S3FileSystem):  # type: ignore[misc]  # s3fs ships no types
        # botocore already retries AWS_MAX_ATTEMPTS times.
        retries = 1

    return Buckets


# -- Read files in Google Cloud Storage, with the login that Google's clients find ----------------


# The errors raised here have messages; the client must not log them again with a traceback.
logging.getLogger("gcsfs").addHandler(logging.NullHandler())


class GcsFiles(Files):
    """Files of a bucket."""

    error_messages = MappingProxyType(
        {
            **TIMEOUTS,
            "RefreshError": _GOOGLE_REFUSED,
            "GoogleAuthError": f"the login is invalid ({{error}}); it comes from {_GOOGLE_FROM}",
        }
    )

    def _kind(self) -> type[fsspec.AbstractFileSystem]:
        return _google_buckets(self.attempts)

    def _options(self) -> dict[str, Any]:
        credentials_file = os.environ.get("GOOGLE_APPLICATION_CREDENTIALS")
        return {
            **super()._options(),
            "requests_timeout": self._client_timeout(),
            # Without this, a wrong credentials file would mean no login at all.
            **({"token": "google_default"} if credentials_file else {}),
        }

    def conditional_options(self, info: Mapping[str, Any] | None) -> dict[str, Any]:
        # gcsfs has no option for replacing.
        return {"mode": "create"} if info is None else {}

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
            return _GOOGLE_REFUSED.replace(
                "{error}", str(error).partition("\n")[2].strip() or "Forbidden"
            )
        return (
            _GOOGLE_REFUSED.replace("{error}", message)
            if getattr(error, "code", None) == 401
            else message
        )


@cache
def _google_buckets(attempts: int) -> type[fsspec.AbstractFileSystem]:
    from gcsfs.core import GCSFileSystem
    from gcsfs.retry import retry_request

    class Buckets(GCSFileSystem):  # type: ignore[misc]  # gcsfs ships no types
        """A file system without gcsfs's request for the kind of bucket.

        That request uses gRPC, which not every proxy passes, and needs another permission.
        """

        # The default of six attempts delays the error of a wrong login by more than half a minute.
        _request = retry_request(retries=attempts)(GCSFileSystem._request.__wrapped__)

    return Buckets


# -- Read files in Azure's Blob Storage and Data Lake Storage -------------------------------------
#
# az://container/path, abfs://container/path               in the account of the environment
# abfss://container@account.dfs.core.windows.net/path      as Spark and Hadoop write it


# The errors raised here have messages; the clients must not log them again.
logging.getLogger("azure").addHandler(logging.NullHandler())


class AzureFiles(Files):
    """Files of a container."""

    error_messages = MappingProxyType(
        {
            **TIMEOUTS,
            "ClientAuthenticationError": (
                f"the key or login is invalid ({{error}}); it comes from {_AZURE_FROM}"
            ),
            "ValueError": (
                "the storage account is missing or invalid; set AZURE_STORAGE_ACCOUNT_NAME "
                "or AZURE_STORAGE_CONNECTION_STRING, or write "
                "abfss://container@account.dfs.core.windows.net/path"
            ),
        }
    )

    def _kind(self) -> type[fsspec.AbstractFileSystem]:
        return _account(self.attempts, self.timeout_seconds)

    def _options(self) -> dict[str, Any]:
        # Older versions of adlfs ask anonymously by default.
        options = {} if "AZURE_STORAGE_ANON" in os.environ else {"anon": False}
        return {**super()._options(), **options}

    def conditional_options(self, info: Mapping[str, Any] | None) -> dict[str, Any]:
        from azure.core import MatchConditions

        if info is None:
            return {"overwrite": False}
        return {"etag": info.get("etag"), "match_condition": MatchConditions.IfNotModified}

    def describe_error(self, error: BaseException) -> str:
        if getattr(error, "status_code", None) not in (401, 403):
            # The client wraps network errors.
            return super().describe_error(getattr(error, "inner_exception", None) or error)
        code = _CODE.search(str(error))
        return (
            f"access denied ({code[1] if code else 'Forbidden'}): the key or login is wrong, has "
            f"expired or lacks the permission; it comes from {_AZURE_FROM}"
        )


@cache
def _account(attempts: int, timeout_seconds: float) -> type[fsspec.AbstractFileSystem]:
    from adlfs import AzureBlobFileSystem
    from azure.storage.blob.aio import BlobServiceClient, ExponentialRetry

    class Account(AzureBlobFileSystem):  # type: ignore[misc]  # adlfs ships no types
        service_client: Any

        def do_connect(self) -> None:
            super().do_connect()
            client = self.service_client
            # By default, the client pauses 15 s or more between attempts.
            retries = ExponentialRetry(
                initial_backoff=1, increment_base=2, retry_total=attempts - 1, random_jitter_range=1
            )
            self.service_client = BlobServiceClient(
                client.url,
                credential=client.credential,
                retry_policy=retries,
                connection_timeout=timeout_seconds,
                read_timeout=timeout_seconds,
            )

    return Account
