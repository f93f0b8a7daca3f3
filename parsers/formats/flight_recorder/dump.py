"""Read dumps of PyTorch's Flight Recorder: the process groups of each rank, and its last collectives."""

from __future__ import annotations

import json
import pickletools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from stallscope.collector.recorder.hangs import Frame, is_users
from stallscope.errors import UnreadableError
from stallscope.formatting.lists import clipped
from stallscope.formatting.plain import plain

from ...base import Contents, Format
from ...files.unpacking import ENDING

#: A process group: its name and its description.
Group = tuple[str, str]

_MOST = 2**63
# Only the newest entries and the starts of their lists are read: entries of a pickle may share values,
# so that a small file describes endless ones.
_MOST_ENTRIES = 200_000
_MOST_TENSORS = 16
_MOST_DIMENSIONS = 8
_MOST_FRAMES = 60
_MOST_CHARACTERS = 8 << 20
_LONGEST = 1000
_MOST_SIZES = 4
_NUMBER = re.compile(r"\d{1,9}")
_DEFAULT = "default_pg"
_NO_DESCRIPTION = ("", "undefined")


@dataclass(frozen=True)
class CollectiveEntry:
    """One collective that a rank has entered."""

    #: The process group's name and description.
    group: Group
    #: The position among the collectives of its group, the same on all ranks.
    number: int
    #: ``all_reduce``, ``broadcast``, …
    name: str
    #: The sizes of its inputs, ``[3, 2]``; empty if unknown.
    sizes: str
    #: The number of values in all inputs; None if unknown.
    values: int | None
    #: ``scheduled``, ``started`` or ``completed``.
    state: str
    #: When the rank entered it, nanoseconds since 1970 in UTC; None if unknown.
    entered_ns: int | None
    #: The innermost frame of the user's code; None if unknown.
    where: Frame | None

    @property
    def completed(self) -> bool:
        return self.state == "completed"

    @property
    def title(self) -> str:
        """Name it in a sentence: ``all_reduce 7``."""
        return f"{self.name} {self.number}"


@dataclass(frozen=True)
class Dump:
    """The dump of one rank."""

    path: str
    rank: int
    #: The common start of the file names of all ranks' dumps.
    prefix: str
    #: The ranks of each process group that the dump describes, by the group's name.
    ranks: Mapping[str, frozenset[int]]
    entries: tuple[CollectiveEntry, ...]
    #: Whether older entries were overwritten.
    overwritten: bool

    @property
    def last_ns(self) -> int:
        return max((entry.entered_ns or 0 for entry in self.entries), default=0)

    @property
    def first_ns(self) -> int:
        return min((entry.entered_ns or 0 for entry in self.entries), default=0)


def dump_of(path: str, rank: int, prefix: str, content: Any) -> Dump:
    """Read the content of a dump.

    Raises:
        ValueError, LookupError, TypeError or AttributeError: if it is not a dump.
    """
    groups = _groups(content["pg_config"])
    # JSON omits an empty list.
    entries = content.get("entries", [])
    if not isinstance(entries, (list, tuple)):
        raise TypeError("no list of entries")
    records = [_whole(entry.get("record_id") or 0) for entry in entries[-_MOST_ENTRIES:]]
    return Dump(
        path,
        rank,
        prefix,
        groups,
        tuple(_entries(entries[-_MOST_ENTRIES:])),
        len(entries) > _MOST_ENTRIES or min(records, default=0) > 0,
    )


def group_title(group: Group) -> str:
    """Name a process group in a sentence."""
    name, description = group
    if description == _DEFAULT:
        return "the default process group"
    return f"process group {name if description in _NO_DESCRIPTION else description}"


def is_default(group: Group) -> bool:
    return group[1] == _DEFAULT


def _groups(config: Any) -> dict[str, frozenset[int]]:
    # Gloo has one group without a name, which may have no ranks.
    ranks = {str(name): _text(group["ranks"]) for name, group in config.items()}
    if sum(map(len, ranks.values())) > _MOST_CHARACTERS:
        raise ValueError("too many ranks")
    return {name: _ranks_in(text) for name, text in ranks.items()}


@lru_cache(maxsize=256)
def _ranks_in(text: str) -> frozenset[int]:
    """Return the ranks in ``[0, 1, 2]``; the dumps of all ranks share them."""
    return frozenset(map(int, _NUMBER.findall(text)))


def _entries(entries: Sequence[Any]) -> Iterator[CollectiveEntry]:
    for entry in entries:
        # The numbers of operations between two ranks are not the same on all ranks.
        if entry.get("is_p2p"):
            continue
        name, description = entry["process_group"]
        sizes = _sizes(entry.get("input_sizes"))
        yield CollectiveEntry(
            group=(_line(name), _line(description)),
            number=_whole(entry["collective_seq_id"]),
            name=_line(_text(entry["profiling_name"]).rpartition(":")[2]),
            sizes=_sizes_in_words(sizes),
            values=None if sizes is None else sum(map(_product, sizes)),
            state=_state(entry),
            entered_ns=_whole(entry.get("time_created_ns") or 0) or None,
            where=_users_frame(entry.get("frames")),
        )


def _state(entry: Any) -> str:
    # Gloo does not update the state. NCCL also retires failed collectives.
    is_over = entry.get("retired") is True and _text(entry["profiling_name"]).startswith("gloo:")
    return "completed" if is_over else _line(entry["state"])


def _sizes(recorded: Any) -> list[list[int]] | None:
    if recorded is None:
        return None
    return [
        [_whole(dimension) for dimension in sizes[:_MOST_DIMENSIONS]]
        for sizes in recorded[:_MOST_TENSORS]
    ]


def _product(sizes: list[int]) -> int:
    product = 1
    for size in sizes:
        product = min(product * size, _MOST)
    return product


def _sizes_in_words(sizes: list[list[int]] | None) -> str:
    words = [str(dimension) for dimension in sizes or ()]
    return clipped(", ".join(words[:_MOST_SIZES] + ["…"] * (len(words) > _MOST_SIZES)))


def _users_frame(frames: Any) -> Frame | None:
    for frame in (frames or ())[:_MOST_FRAMES]:
        location = (
            plain(_text(frame["filename"])[-_LONGEST:]),
            _whole(frame["line"]),
            _line(frame["name"]),
        )
        if is_users(location):
            return location
    return None


def _line(value: Any) -> str:
    """Return a short text on one line."""
    return clipped(plain(_text(value)[:_LONGEST]))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


def _whole(value: Any) -> int:
    number = int(value)
    if not 0 <= number < _MOST:
        raise ValueError("out of range")
    return number


# -- files -----------------------------------------------------------------------------------------
#
# There is one for each rank, with the rank at the end of its name: a pickle, or JSON without stacks:
#
#     {"version": "2.10",
#      "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}},
#      "entries": [{"collective_seq_id": 7, "process_group": ("0", "default_pg"),
#                   "profiling_name": "nccl:all_reduce", "state": "scheduled", "retired": False,
#                   "input_sizes": [[3, 2]], "time_created_ns": 1795599182970955939,
#                   "frames": [{"filename": "train.py", "line": 61, "name": "train"}], …}, …]}

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
