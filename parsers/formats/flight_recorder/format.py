"""Read dumps of PyTorch's Flight Recorder: a file for each rank, with the rank at the end of its name.

A dump is a pickle, or JSON without stacks:

    {"version": "2.10",
     "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}},
     "entries": [{"collective_seq_id": 7, "process_group": ("0", "default_pg"),
                  "profiling_name": "nccl:all_reduce", "state": "scheduled", "retired": False,
                  "input_sizes": [[3, 2]], "time_created_ns": 1795599182970955939,
                  "frames": [{"filename": "train.py", "line": 61, "name": "train"}], …}, …]}
"""

from __future__ import annotations

import json
import re
from typing import Any, ClassVar

from stallscope.errors import UnreadableError

from ...base import Contents, Format
from ...files.unpacking import ENDING
from .dump import Dump, dump_of
from .plain_pickle import MOST_BYTES, load_plain

_PICKLE = b"\x80"
_OF_A_DUMP = re.compile(rb"pg_config|pg_status|collective_seq_id")
# Unlike traces of torch.profiler, which also have pg_config. Dumps without entries have no list.
_OF_A_JSON = re.compile(rb'"(?:entries"\s*:\s*\[|pg_status"\s*:\s*\{)')
_ENDING = re.compile(rf"({ENDING})?$")
_RANK = re.compile(r"^(.*?)(\d{1,9})(?:\.(?:json|pkl|pickle|bin|pt|dump|trace))?$", re.DOTALL)


class FlightRecorderFormat(Format):
    name: ClassVar[str] = "flight-recorder"
    title: ClassVar[str] = "a dump of PyTorch's Flight Recorder"
    note: ClassVar[str | None] = "its collectives are compared with those of the other ranks' dumps"
    has_steps: ClassVar[bool] = True

    def recognises(self, file_name: str, head: bytes) -> bool:
        if head.startswith(_PICKLE):
            return _OF_A_DUMP.search(head) is not None
        is_json = head.lstrip()[:1] == b"{" and _OF_A_JSON.search(head) is not None
        return is_json and _OF_A_DUMP.search(head) is not None

    def read(self, path: str, data: bytes) -> Contents:
        named = _RANK.match(_ENDING.sub("", path.rpartition("/")[2]))
        if named is None:
            raise UnreadableError(
                f"{path}: a dump of PyTorch's Flight Recorder whose name does not end with its rank; "
                "rename it, as in trace_rank_0"
            )
        return Contents(dump=parse_dump(path, data, prefix=named[1], rank=int(named[2])))


def parse_dump(path: str, data: bytes, *, prefix: str, rank: int) -> Dump:
    """Read one dump.

    Args:
        path: the file's name in messages.
        data: the file.
        prefix: the common start of the file names of all ranks' dumps.
        rank: the rank.

    Raises:
        UnreadableError: if it is not a dump, or incomplete.
    """
    content = load_plain(path, data) if data.startswith(_PICKLE) else _json(path, data)
    try:
        return dump_of(path, rank, prefix, content)
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise UnreadableError(
            f"{path}: not a dump of PyTorch's Flight Recorder, or one of an unknown version"
        ) from error


def _json(path: str, data: bytes) -> Any:
    if len(data) > MOST_BYTES:
        raise UnreadableError(f"{path}: a dump of more than {MOST_BYTES >> 20} MiB is not read")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"{path}: the dump is damaged or incomplete") from error
