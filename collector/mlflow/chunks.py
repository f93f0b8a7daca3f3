"""One log on its way to a run: what the run lacks of it, as chunks."""

from __future__ import annotations

from typing import Callable

from ..sources.chunk_names import ChunkName, chunk_name, fingerprint, length, log_folder
from .client import MlflowRun

# Small enough to be sent and read again in seconds.
_LARGEST_CHUNK = 4 << 20
# A first line is facts of a few kilobytes; other files may have no lines at all.
_LONGEST_FIRST_LINE = 64 << 10
# A run that more logs of one name were uploaded to is looping, not training.
_MOST_OF_A_NAME = 1_000

#: Bytes of a log from a position to another one.
Read = Callable[[int, int], bytes]


class LogUpload:
    """A log and how much of it the run has; what grows meanwhile is for the next time."""

    def __init__(self, name: str, read: Read) -> None:
        self.name = name
        self._read = read
        self._folder: str | None = None
        self._fingerprint = ""
        #: Bytes of the log that the run has.
        self.done = 0

    def upload_new(self, run: MlflowRun, whole_lines: bool) -> int:
        """Upload what the run lacks; how many bytes that was.

        Args:
            whole_lines: leave out a last line that has no end yet.

        Raises:
            StallscopeError: if the run does not take it; what it took is known.
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
            # What is written from here on comes with the next upload.
            if len(read) < _LARGEST_CHUNK or not data:
                return self.done - before

    def _find_folder(self, run: MlflowRun, whole_lines: bool) -> bool:
        """The folder that this log is in, otherwise a new one; false where it has no beginning yet."""
        first_line = self._read(0, _LONGEST_FIRST_LINE).partition(b"\n")
        if not first_line[1] and whole_lines:
            return False
        own = fingerprint(first_line[0])
        for again in range(_MOST_OF_A_NAME):
            folder = log_folder(self.name, again)
            there = _chunks_in(run, folder)
            if own in there or not there:
                self._folder, self._fingerprint = folder, own
                self.done = length(there.get(own, []))
                return True
        return False


def _chunks_in(run: MlflowRun, folder: str) -> dict[str, list[tuple[int, int]]]:
    """Offsets and sizes of the chunks in a folder, by the fingerprint of their log."""
    found: dict[str, list[tuple[int, int]]] = {}
    for artifact in run.artifacts(folder):
        name = chunk_name(artifact.path.rpartition("/")[2])
        if name is not None:
            found.setdefault(name.fingerprint, []).append((name.offset, artifact.size))
    return found
