"""Sinks of a step log: a file, or records through Python's logging."""

import logging
import os
import sys
from typing import List

from .records import key_of, records

#: The three values of ``StepLogger(sink=…)``.
SINKS = ("file", "logging", "both")

record_logger = logging.getLogger("stallscope.steps")


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
