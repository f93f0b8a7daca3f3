"""Parsers: any log format in, one table of steps out."""

from typing import TYPE_CHECKING, Any

from .base import Parsed, Parser
from .reader import read

if TYPE_CHECKING:
    PARSERS: tuple[Parser, ...]

__all__ = ["PARSERS", "Parsed", "Parser", "read"]


def __getattr__(name: str) -> Any:
    """Import the parsers of all formats on first use; see ``registry``."""
    if name != "PARSERS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .registry import parsers

    return parsers()
