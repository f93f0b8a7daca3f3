"""Sinks of a step log: a file, or records through Python's logging."""

import base64
import hashlib
import logging
import os
import sys
import zlib
from typing import Iterator, List

#: The three values of ``StepLogger(sink=…)``.
SINKS = ("file", "logging", "both")
record_logger = logging.getLogger("stallscope.steps")

#: The longest record in characters: a logging system's prefix must fit into 4,096 bytes with it.
LONGEST = 3900
_MOST_COMPRESSED = 2700
_FIRST_TRY = 16384
#: A pattern that finds records in bytes: key, name, offset, checksum, payload. Only readers compile it.
RECORD = (
    rb"stallscope:1:([0-9a-f]{16}):(rank-\d{5,}\.\d+\.\d+):(\d{1,15}):([0-9a-f]{8}):"
    rb"([A-Za-z0-9+/]+={0,2})"
)


class FileSink:
    """A file that only grows, by whole lines."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        # Some mounts do not count names.
        self._has_name = os.fstat(descriptor).st_nlink > 0

    def write(self, data: bytes) -> None:
        """Write all of the data.

        Raises:
            OSError: if writing fails, or if the file was removed: the system would accept data that
                no one can read.
        """
        while data:
            data = data[os.write(self._descriptor, data) :]
        if self._has_name and os.fstat(self._descriptor).st_nlink == 0:
            raise OSError("the file was removed")

    def close(self) -> None:
        os.close(self._descriptor)


class LoggingSink:
    """Records of the logger ``stallscope.steps``; any log that keeps them contains the step log."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._key = ""
        self._written = 0
        _let_records_through()

    def write(self, data: bytes) -> None:
        if not self._key:
            self._key = key_of(data.split(b"\n", 1)[0])
        for record in records(self._key, self._name, self._written, data):
            record_logger.info("%s", record)
        self._written += len(data)

    def close(self) -> None:
        pass


def check_sink(sink: str) -> str:
    """Return the sink's name.

    Raises:
        ValueError: if there is no such sink. StepLogger's constructor may still stop the program.
    """
    if sink not in SINKS:
        names: List[str] = [repr(name) for name in SINKS]
        raise ValueError("sink=%r: use one of %s" % (sink, ", ".join(names)))
    return sink


def _let_records_through() -> None:
    """Let INFO records through: a program that does not configure logging would drop them.

    A handler of ``stallscope`` alone does not count: it is for warnings.
    """
    if record_logger.level == logging.NOTSET:
        record_logger.setLevel(logging.INFO)
    if not record_logger.handlers and not logging.getLogger().handlers:
        record_logger.addHandler(logging.StreamHandler(sys.stderr))


# -- A step log as records in any text log, for workers that share no disk ------------------------
#
# A record is a piece of the log's bytes. It is short enough for any logging system to write whole
# (pipes guarantee up to 4,096 bytes) and contains no character that such systems change:
#
#     stallscope:1:KEY:NAME:OFFSET:CHECKSUM:PAYLOAD
#
# KEY identifies the process (a hash of the log's first line), NAME is the log's name
# (``rank-00003.0.0``), OFFSET is the position of the piece in the log, CHECKSUM its CRC-32 in hex,
# PAYLOAD its zlib-compressed bytes in base64. Pieces may come in any order, twice, and from several
# files.


def key_of(first_line: bytes) -> str:
    """Return what identifies this log: its first line contains host, process and clocks."""
    return hashlib.sha256(first_line).hexdigest()[:16]


def records(key: str, name: str, offset: int, data: bytes) -> Iterator[str]:
    """Encode a piece of a log as records of at most ``LONGEST`` characters.

    Args:
        key: see ``key_of``.
        name: ``rank-00003.0.0``.
        offset: the position of the piece in the log.
        data: its bytes.
    """
    at = 0
    while at < len(data):
        size = min(len(data) - at, _FIRST_TRY)
        packed = zlib.compress(data[at : at + size], 6)
        while len(packed) > _MOST_COMPRESSED:
            size //= 2
            packed = zlib.compress(data[at : at + size], 6)
        piece = data[at : at + size]
        payload = base64.b64encode(packed).decode("ascii")
        yield f"stallscope:1:{key}:{name}:{offset + at}:{zlib.crc32(piece):08x}:{payload}"
        at += size
