"""Files in stores that speak S3. Keys, region and endpoint are those that every client of S3 finds."""

from __future__ import annotations

from types import MappingProxyType

from .files import Files

_FROM = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE and ~/.aws, or the machine's role"


class S3Files(Files):
    """Files of one bucket."""

    meanings = MappingProxyType(
        {
            "PermissionError": (
                "access is refused ({said}): the keys are wrong, have expired or may not read there; "
                f"they come from {_FROM}"
            ),
            "NoCredentialsError": f"there are no keys; they come from {_FROM}",
        }
    )
