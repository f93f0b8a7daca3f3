"""Read files in Azure's Blob Storage and Data Lake Storage, with the login that Azure's clients find.

az://container/path, abfs://container/path               in the account of the environment
abfss://container@account.dfs.core.windows.net/path      as Spark and Hadoop write it
"""

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

_FROM = (
    "AZURE_STORAGE_CONNECTION_STRING, AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN, 'az login', "
    "or the machine's identity"
)
_CODE = re.compile(r"ErrorCode:(\w+)")
# The errors raised here have messages; the clients must not log them again.
logging.getLogger("azure").addHandler(logging.NullHandler())


class AzureFiles(Files):
    """Files of a container."""

    error_messages = MappingProxyType(
        {
            **TIMEOUTS,
            "ClientAuthenticationError": (
                f"the key or login is invalid ({{error}}); it comes from {_FROM}"
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
            f"expired or lacks the permission; it comes from {_FROM}"
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
