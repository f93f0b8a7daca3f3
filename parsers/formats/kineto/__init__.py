"""Read traces of torch.profiler (Kineto): the ledger of each step, from spans.

    {"schemaVersion": 1, "distributedInfo": {"backend": "gloo", "rank": 0, "world_size": 2, …},
     "host_name": "node-1", "baseTimeNanoseconds": 1790857026000000000, "traceEvents": [
     {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#2", "pid": 8, "tid": 8,
      "ts": 444437816.571, "dur": 2357.380, …

Times are microseconds since the base time, or since 1970 before PyTorch 2.3. A trace may have gigabytes,
and ends anywhere if its process was killed: blocks of bytes are searched for the needed spans.
"""

from __future__ import annotations

import io
import re
from typing import ClassVar

from ...base import Contents, Parsed, Parser, ReadsBlocks
from ...files.unpacking import Readable
from .kineto_log import as_log, events_of, of_one_run, read_trace

__all__ = ["KinetoParser", "of_one_run"]

_SCHEMA = re.compile(rb'"schemaVersion"\s*:\s*\d')
_KINETO = re.compile(rb'"deviceProperties"|"baseTimeNanoseconds"|"distributedInfo"')
_HEAD = 64 << 10


class KinetoParser(Parser, ReadsBlocks):
    name: ClassVar[str] = "kineto"
    title: ClassVar[str] = "traces of torch.profiler"
    suffix: ClassVar[str] = ".pt.trace.json"

    def recognises(self, file_name: str, head: bytes) -> bool:
        start = head[:_HEAD]
        return _SCHEMA.search(start) is not None and _KINETO.search(start) is not None

    def parse(self, path: str, data: bytes) -> Parsed:
        return as_log(read_trace(path, io.BytesIO(data)))

    def read(self, path: str, data: bytes) -> Contents:
        return self.read_blocks(path, io.BytesIO(data))

    def read_blocks(self, path: str, file: Readable) -> Contents:
        trace = read_trace(path, file)
        return Contents((as_log(trace),), events=events_of(trace), is_trace=True)
