"""Files in stores that speak S3. Keys, region and endpoint are those that every client of S3 finds."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import fsspec

from .files import SILENT, Files

_FROM = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE and ~/.aws, or the machine's role"


class S3Files(Files):
    """Files of one bucket."""

    meanings = MappingProxyType(
        {
            **SILENT,
            "PermissionError": (
                "access is refused ({said}): the keys are wrong, have expired or may not do that there; "
                f"they come from {_FROM}"
            ),
            "NoCredentialsError": f"there are no keys; they come from {_FROM}",
        }
    )

    def _kind(self) -> type[fsspec.AbstractFileSystem]:
        return _buckets()

    def only_over(self, info: Mapping[str, Any] | None) -> dict[str, Any]:
        if info is None:
            return {"IfNoneMatch": "*"}
        return {"IfMatch": info["ETag"]} if info.get("ETag") else {}

    def _options(self) -> dict[str, Any]:
        return {**super()._options(), "config_kwargs": {"read_timeout": self.patience_seconds}}


@cache
def _buckets() -> type[fsspec.AbstractFileSystem]:
    from s3fs import S3FileSystem

    class Buckets(S3FileSystem):  # type: ignore[misc]  # s3fs ships no types
        # botocore tries again as often as AWS_MAX_ATTEMPTS says; a silent store outlasts the product.
        retries = 1

    return Buckets
