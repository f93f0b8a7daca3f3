"""Find the address of a store or a run: its folder, or the URL that the folder mirrors."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from .sources.source import without_credentials

#: The file in a mirror's folder with the URL of its store (``mirror.py``).
ADDRESS = ".url"


def address(path: Path) -> str:
    """Return the URL of a store or of a run's folder; the path itself if it is local."""
    for folder, name in ((path, ""), (path.parent, f"/{path.name}")):
        with suppress(OSError):
            return (folder / ADDRESS).read_text() + name
    return str(path)


def where_is(path: Path) -> str:
    """Return the address without credentials, for messages."""
    return without_credentials(address(path))
