"""Where a step log goes: into a file, or as records through Python's logging."""

import logging
import os
import sys
from typing import List

from .records import key_of, records

#: The three values of ``StepLogger(sink=…)``.
SINKS = ("file", "logging", "both")

record_logger = logging.getLogger("stallscope.steps")


class FileSink:
    """A file that only grows, written whole lines at a time."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        # Some mounts count no names at all.
        self._has_name = os.fstat(descriptor).st_nlink > 0

    def write(self, data: bytes) -> None:
        """Write all of it.

        Raises:
            OSError: if that cannot be done, or if the file was removed: the system would go on taking
                what will never be read.
        """
        while data:
            data = data[os.write(self._descriptor, data) :]
        if self._has_name and os.fstat(self._descriptor).st_nlink == 0:
            raise OSError("the file was removed")

    def close(self) -> None:
        os.close(self._descriptor)


class LoggingSink:
    """Records of the log ``stallscope.steps``: wherever that goes, the step log can be had from it."""

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


def checked_sink(sink: str) -> str:
    """The sink, if there is one of that name.

    Raises:
        ValueError: if not, at construction, where a mistake may still stop the program.
    """
    if sink not in SINKS:
        names: List[str] = [repr(name) for name in SINKS]
        raise ValueError("sink=%r: say one of %s" % (sink, ", ".join(names)))
    return sink


def _let_records_through() -> None:
    """Records are no warnings: without a word about logging in the program they would be dropped.

    A handler of ``stallscope`` alone is there for its warnings and prints no records.
    """
    if record_logger.level == logging.NOTSET:
        record_logger.setLevel(logging.INFO)
    if not record_logger.handlers and not logging.getLogger().handlers:
        record_logger.addHandler(logging.StreamHandler(sys.stderr))
