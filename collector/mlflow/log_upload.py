"""Upload one log to an MLflow run, in chunks of new bytes."""

from __future__ import annotations

from typing import Callable

from ..sources.chunk_names import ChunkName, chunk_name, fingerprint, joined_length, log_folder
from .client import MlflowRun

# Small enough to upload and read in seconds.
_LARGEST_CHUNK = 4 << 20
# The first line has a few kilobytes of facts; other files may have no lines.
_LONGEST_FIRST_LINE = 64 << 10
# More logs of one name in a run mean an endless loop.
_MOST_OF_A_NAME = 1_000
#: Reads the bytes of a log from a position to another.
Read = Callable[[int, int], bytes]


class LogUpload:
    """Uploads a log; bytes that are written during an upload come with the next one."""

    def __init__(self, name: str, read: Read) -> None:
        self.name = name
        self._read = read
        self._folder: str | None = None
        self._fingerprint = ""
        #: The number of bytes of the log that the run has.
        self.done = 0

    def upload_new(self, run: MlflowRun, whole_lines: bool) -> int:
        """Upload the bytes that the run lacks; return their number.

        Args:
            whole_lines: leave out an incomplete last line.

        Raises:
            StallscopeError: if the upload fails; the next one continues from there.
            OSError: if the log cannot be read.
        """
        if self._folder is None and not self._find_folder(run, whole_lines):
            return 0
        assert self._folder is not None
        before = self.done
        while True:
            read = self._read(self.done, self.done + _LARGEST_CHUNK)
            data = read[: read.rfind(b"\n") + 1] if whole_lines else read
            if data:
                name = str(ChunkName(self.done, self._fingerprint))
                run.upload_bytes(data, self._folder, name)
                self.done += len(data)
            # Bytes that are written from now on come with the next upload.
            if len(read) < _LARGEST_CHUNK or not data:
                return self.done - before

    def _find_folder(self, run: MlflowRun, whole_lines: bool) -> bool:
        """Find the folder of this log, or a new one; return False if its first line is incomplete."""
        first_line = self._read(0, _LONGEST_FIRST_LINE).partition(b"\n")
        if not first_line[1] and whole_lines:
            return False
        log_fingerprint = fingerprint(first_line[0])
        for again in range(_MOST_OF_A_NAME):
            folder = log_folder(self.name, again)
            chunks = _chunks_in(run, folder)
            if log_fingerprint in chunks or not chunks:
                self._folder, self._fingerprint = folder, log_fingerprint
                self.done = joined_length(chunks.get(log_fingerprint, []))
                return True
        return False


def _chunks_in(run: MlflowRun, folder: str) -> dict[str, list[tuple[int, int]]]:
    """Return offset and size of the chunks in a folder, by the fingerprint of their log."""
    chunks: dict[str, list[tuple[int, int]]] = {}
    for artifact in run.artifacts(folder):
        name = chunk_name(artifact.path.rpartition("/")[2])
        if name is not None:
            chunks.setdefault(name.fingerprint, []).append((name.offset, artifact.size))
    return chunks
