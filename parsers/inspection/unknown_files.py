"""Name the likely content of files that no parser knows."""

from __future__ import annotations

import re

TEXT = "text"

_BY_START = (
    (b"PAR1", "Parquet"),
    (b"\x89HDF\r\n", "HDF5: weights of a model, most likely"),
    (b"PK\x03\x04", "a zip archive: a checkpoint, most likely"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"\x89PNG", "a picture"),
    (b"\xff\xd8\xff", "a picture"),
    (b"%PDF", "a PDF"),
    (b"\x7fELF", "a program"),
    (b"\x80\x02", "a pickle"),
    (b"\x80\x04", "a pickle"),
    (b"\x80\x05", "a pickle"),
)
_BY_NAME = (
    (re.compile(r"events\.out\.tfevents\."), "TensorBoard's events"),
    (re.compile(r"\.nsys-rep$|\.qdrep$"), "a report of Nsight Systems"),
    (re.compile(r"\.ckpt|\.data-\d+-of-\d+$|\.index$"), "a checkpoint"),
    (re.compile(r"\.trace\.json$"), "a trace of a profiler"),
)
_TRACE = re.compile(rb'"traceEvents"|"deviceProperties"')


def likely_content(file_name: str, head: bytes) -> str:
    """Name the likely content of a file that no parser knows, in a few words."""
    if not head:
        return "empty"
    for form, title in _BY_NAME:
        if form.search(file_name):
            return title
    for start, title in _BY_START:
        if head.startswith(start):
            return title
    if _TRACE.search(head):
        return "a trace of a profiler"
    return "binary" if b"\0" in head else TEXT
