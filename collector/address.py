"""Where a store or a run is, whether a folder here or one that mirrors a URL."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

#: In the folder of a mirror: the URL of the store that it shows (``mirror.py``).
ADDRESS = ".url"


def address(path: Path) -> str:
    """Where a store, or a run's folder, is for others than this process: its URL, or the path itself."""
    for folder, name in ((path, ""), (path.parent, f"/{path.name}")):
        with suppress(OSError):
            return (folder / ADDRESS).read_text() + name
    return str(path)


def where_is(path: Path) -> str:
    """The same for messages, without credentials."""
    place = address(path)
    if "://" not in place:
        return place
    from .sources.files import without_credentials

    return without_credentials(place)
