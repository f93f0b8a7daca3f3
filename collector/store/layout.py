"""The names of the files in a store, and how a file of a run is written and checked."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

#: In each run's folder: what the run is, its logs with their facts, checksums.
MANIFEST = "manifest.json"
#: Next to the manifest: what the analysis found, from which the catalogue can be made again.
SUMMARY = "summary.json"
#: Next to it, for large runs: everything that the analysis found.
ANALYSIS = "analysis.parquet"
#: In the store's folder: the list of its runs.
CATALOGUE = "catalogue.sqlite"
#: What Stallscope writes into a run's folder in addition to the files of the manifest.
OWN_FILES = frozenset({MANIFEST, SUMMARY, ANALYSIS})

#: Called with the number of bytes read since the last call.
BytesRead = Callable[[int], None]

_BLOCK = 1 << 20


def checksum(path: Path, on_read: BytesRead = lambda _: None) -> str:
    """Compute the SHA-256 of a file, as manifests have it."""
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
