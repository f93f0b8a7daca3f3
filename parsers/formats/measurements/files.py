"""Read the JSON files of ``measure_input`` and ``netcheck``."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from stallscope.errors import UnknownVersionError, UnreadableError

from ...files.unpacking import ENDING

T = TypeVar("T")

_KNOWN_VERSION = 1
_PACKED = re.compile(f"{ENDING}$")


def has_suffix(file_name: str, suffix: str) -> bool:
    """Whether a file, compressed or not, has this suffix."""
    return _PACKED.sub("", file_name).endswith(suffix)


def parse_measurement(
    path: str, data: bytes, kind: str, of: str, parse: Callable[[str, Mapping[str, Any]], T]
) -> T:
    """Parse a file.

    Args:
        path: the file.
        data: its content.
        kind: the key of the version.
        of: the measured thing, for messages.
        parse: makes the result of the path and the content.

    Raises:
        UnreadableError: if it is not such a file, or incomplete.
        UnknownVersionError: if it was written by a newer Stallscope.
    """
    try:
        content = json.loads(data)
        version = content[kind]
        if version > _KNOWN_VERSION:
            raise UnknownVersionError(
                f"{path}: measured by a newer Stallscope (format {version}, this one knows "
                f"{_KNOWN_VERSION}): upgrade it with pip install --upgrade stallscope"
            )
        return parse(path, content)
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise UnreadableError(
            f"{path}: not a measurement of {of}, or incomplete; measure it again"
        ) from error


def finite(value: Any) -> float:
    """Convert a number.

    Raises:
        ValueError: if it is infinite or not a number.
    """
    number = float(value)
    if not math.isfinite(number):
        raise ValueError("no number")
    return number


def text_or_none(value: Any) -> str | None:
    return None if value is None else str(value)
