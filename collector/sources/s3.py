"""Read files in S3 stores, with the keys, region and endpoint that S3 clients find."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import fsspec

from .files import TIMEOUTS, Files

_FROM = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE and ~/.aws, or the machine's role"


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
