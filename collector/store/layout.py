"""Define the file names of a store, and its address; write files atomically, compute checksums."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from ..sources.source import without_credentials

#: In each run's folder: the run's id, its logs with their facts, checksums.
MANIFEST = "manifest.json"
#: Next to the manifest: a summary of the analysis, from which the catalogue can be rebuilt.
SUMMARY = "summary.json"
#: Next to it, for large runs: the complete analysis.
ANALYSIS = "analysis.parquet"
#: In the store's folder: the list of its runs.
CATALOGUE = "catalogue.sqlite"
#: The file in a mirror's folder with the URL of its store (``mirror.py``).
ADDRESS = ".url"
#: Files of a run's folder that its manifest does not list.
OWN_FILES = frozenset({MANIFEST, SUMMARY, ANALYSIS})

#: Called with the number of bytes read since the last call.
BytesRead = Callable[[int], None]

_BLOCK = 1 << 20


def checksum(path: Path, on_read: BytesRead = lambda _: None) -> str:
    """Compute the SHA-256 of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(partial(file.read, _BLOCK), b""):
            digest.update(block)
            on_read(len(block))
    return digest.hexdigest()


@contextmanager
def written_whole(path: Path, draft_folder: Path | None = None) -> Iterator[Path]:
    """Yield a draft to write to, and give it the file's name when it is complete.

    Readers see the old file or the new one, and a failure leaves the old one. Several processes may
    write the same file.

    Args:
        path: the file.
        draft_folder: where the draft lies, on the same file system; by default next to the file.
    """
    draft = (draft_folder or path.parent) / f".{path.name}.{secrets.token_hex(4)}.tmp"
    try:
        yield draft
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def address(path: Path) -> str:
    """Return the URL of a store or of a run's folder; the path itself if it is local."""
    for folder, name in ((path, ""), (path.parent, f"/{path.name}")):
        with suppress(OSError):
            return (folder / ADDRESS).read_text() + name
    return str(path)


def where_is(path: Path) -> str:
    """Return the address without credentials, for messages."""
    return without_credentials(address(path))
