"""Files in Azure's Blob Storage and Data Lake Storage. The login is the one that Azure's clients find.

az://container/path, abfs://container/path               in the account that the environment names
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

from .files import SILENT, Files

_FROM = (
    "AZURE_STORAGE_CONNECTION_STRING, AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN, 'az login', "
    "or the machine's identity"
)
_CODE = re.compile(r"ErrorCode:(\w+)")
# What goes wrong is said here, and not a second time by the clients.
logging.getLogger("azure").addHandler(logging.NullHandler())


class AzureFiles(Files):
    """Files of one container."""

    meanings = MappingProxyType(
        {
            **SILENT,
            "ClientAuthenticationError": (
                f"the key or login cannot be used ({{said}}); it comes from {_FROM}"
            ),
            "ValueError": (
                "no storage account is named, or not as Azure writes it; set AZURE_STORAGE_ACCOUNT_NAME "
                "or AZURE_STORAGE_CONNECTION_STRING, or write "
                "abfss://container@account.dfs.core.windows.net/path"
            ),
        }
    )

    def _kind(self) -> type[fsspec.AbstractFileSystem]:
        return _account(self.attempts, self.patience_seconds)

    def _options(self) -> dict[str, Any]:
        # Older versions of adlfs ask anonymously by default.
        own = {} if "AZURE_STORAGE_ANON" in os.environ else {"anon": False}
        return {**super()._options(), **own}

    def only_over(self, info: Mapping[str, Any] | None) -> dict[str, Any]:
        from azure.core import MatchConditions

        if info is None:
            return {"overwrite": False}
        return {"etag": info.get("etag"), "match_condition": MatchConditions.IfNotModified}

    def _said(self, error: BaseException) -> str:
        if getattr(error, "status_code", None) not in (401, 403):
            # What happened on the way is inside what the client makes of it.
            return super()._said(getattr(error, "inner_exception", None) or error)
        code = _CODE.search(str(error))
        return (
            f"access is refused ({code[1] if code else 'Forbidden'}): the key or login is wrong, has "
            f"ended or may not do that there; it comes from {_FROM}"
        )


@cache
def _account(attempts: int, patience_seconds: float) -> type[fsspec.AbstractFileSystem]:
    from adlfs import AzureBlobFileSystem
    from azure.storage.blob.aio import BlobServiceClient, ExponentialRetry

    class Account(AzureBlobFileSystem):  # type: ignore[misc]  # adlfs ships no types
        service_client: Any

        def do_connect(self) -> None:
            super().do_connect()
            found = self.service_client
            # Its own pauses between attempts are 15 s and more.
            retries = ExponentialRetry(
                initial_backoff=1, increment_base=2, retry_total=attempts - 1, random_jitter_range=1
            )
            self.service_client = BlobServiceClient(
                found.url,
                credential=found.credential,
                retry_policy=retries,
                connection_timeout=patience_seconds,
                read_timeout=patience_seconds,
            )

    return Account
