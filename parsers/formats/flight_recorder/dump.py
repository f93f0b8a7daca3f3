"""Read the dump of one rank: its process groups, and the last collectives that it entered."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from stallscope.collector.recorder.hangs import Frame, is_users
from stallscope.formatting.lists import clipped
from stallscope.formatting.plain import plain

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
