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
import pickletools
import re
from collections.abc import Callable
from typing import Any, ClassVar

from stallscope.errors import UnreadableError

from ...base import Contents, Format
from ...files.unpacking import ENDING
from .dump import Dump, dump_of

_PICKLE = b"\x80"
_OF_A_DUMP = re.compile(rb"pg_config|pg_status|collective_seq_id")
# Unlike traces of torch.profiler, which also have pg_config. Dumps without entries have no list.
_OF_A_JSON = re.compile(rb'"(?:entries"\s*:\s*\[|pg_status"\s*:\s*\{)')
_ENDING = re.compile(rf"({ENDING})?$")
_RANK = re.compile(r"^(.*?)(\d{1,9})(?:\.(?:json|pkl|pickle|bin|pt|dump|trace))?$", re.DOTALL)

#: The largest pickle that is read.
MOST_BYTES = 64 << 20
_CODE = frozenset(
    {
        *("GLOBAL", "STACK_GLOBAL", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "REDUCE", "BUILD"),
        *("EXT1", "EXT2", "EXT4", "PERSID", "BINPERSID"),
    }
)
_VALUES = frozenset(
    {
        *("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT"),
        *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
        *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
    }
)
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_TUPLE": tuple,
    "EMPTY_SET": set,
}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_IGNORED = frozenset(("PROTO", "FRAME"))
# Hashing nested tuples could take forever, and dumps need none as keys.
_KEYS = (str, bytes, int, float, type(None))


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


# -- Read a pickle of plain data: dictionaries, lists, tuples, sets, texts, bytes and numbers -----
#
# ``pickle`` runs code that a file names. Here a pickle is read operation by operation, without
# those that name code, so that nothing in a file is ever imported or called. An Unpickler whose
# ``find_class`` refuses is no replacement: its memo is an array up to the largest index that a file
# names, so that ten bytes take 8 GiB and 19 s.


def load_plain(path: str, data: bytes) -> Any:
    """Read a pickle.

    Args:
        path: the file's name in messages.
        data: the pickle.

    Raises:
        UnreadableError: if it names code, is damaged, or is too large.
    """
    if len(data) > MOST_BYTES:
        raise UnreadableError(f"{path}: a pickle of more than {MOST_BYTES >> 20} MiB is not read")
    stack = _Stack()
    try:
        for operation, argument, _ in pickletools.genops(data):
            if operation.name in _CODE:
                raise UnreadableError(
                    f"{path}: a pickle that names code, unlike a dump: none of it was run"
                )
            if operation.name == "STOP":
                return stack.pop()
            stack.apply(operation.name, argument)
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise UnreadableError(f"{path}: the pickle is damaged or incomplete") from error
    raise UnreadableError(f"{path}: the pickle is incomplete")


class _Stack:
    """The stack of values of a pickle."""

    def __init__(self) -> None:
        self._values: list[Any] = []
        #: The values below each mark.
        self._below: list[list[Any]] = []
        self._memo: dict[int, Any] = {}

    def pop(self) -> Any:
        return self._values.pop()

    def apply(self, name: str, argument: Any) -> None:
        """Apply one operation.

        Raises:
            ValueError: if it is not an operation of plain data; other exceptions if values are missing.
        """
        if name in _VALUES:
            self._values.append(argument)
        elif name in _CONSTANTS:
            self._values.append(_CONSTANTS[name]())
        elif name in _TUPLES:
            self._tuple(_TUPLES[name])
        elif name in ("BINPUT", "LONG_BINPUT"):
            self._memo[argument] = self._values[-1]
        elif name == "MEMOIZE":
            self._memo[len(self._memo)] = self._values[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            self._values.append(self._memo[argument])
        elif name == "MARK":
            self._below.append(self._values)
            self._values = []
        elif name not in _IGNORED:
            self._fill(name)

    def _tuple(self, count: int) -> None:
        if len(self._values) < count:
            raise ValueError("too few values")
        self._values[-count:] = [tuple(self._values[-count:])]

    def _fill(self, name: str) -> None:
        """Put values into the container below them."""
        if name == "APPEND":
            self._extend([self._values.pop()])
        elif name == "SETITEM":
            self._set_items([self._values.pop(-2), self._values.pop()])
        elif name == "TUPLE":
            values = tuple(self._to_mark())
            self._values.append(values)
        elif name == "APPENDS":
            self._extend(self._to_mark())
        elif name == "SETITEMS":
            self._set_items(self._to_mark())
        elif name == "ADDITEMS":
            self._add_items(self._to_mark())
        else:
            raise ValueError(f"no operation of plain data: {name}")

    def _to_mark(self) -> list[Any]:
        values, self._values = self._values, self._below.pop()
        return values

    def _extend(self, values: list[Any]) -> None:
        if type(self._values[-1]) is not list:
            raise ValueError("not a list")
        self._values[-1].extend(values)

    def _set_items(self, values: list[Any]) -> None:
        into = self._values[-1]
        if type(into) is not dict or not all(isinstance(key, _KEYS) for key in values[::2]):
            raise ValueError("not a dictionary with plain keys")
        into.update(zip(values[::2], values[1::2], strict=True))

    def _add_items(self, values: list[Any]) -> None:
        into = self._values[-1]
        if type(into) is not set or not all(isinstance(value, _KEYS) for value in values):
            raise ValueError("not a set of plain values")
        into.update(values)
