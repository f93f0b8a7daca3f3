"""Batch sizes and numbers of ranks that programs print before they train."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import chain

from ...world_size import HEAD_BYTES

# In lower case. tf_cnn_benchmarks prints "Batch size:  256 global", MLPerf's loggers
# "global_batch_size: {"value": 256".
_SIZE = re.compile(
    rb"batch[_ -]?size(?P<per>[_ -]per[_ -](?:gpu|device|rank|replica|worker))?"
    rb"(?:[\"']?\]?\s{0,40}(?:[:=]|is|\|)\s{0,40}[\"']?|(?:\", |: \{)\"value\": )"
    rb"(?P<size>\d{1,8})\b(?!\.\d)(?P<all> global\b)?"
)
# As an option of a command.
_OPTION = re.compile(
    rb"(?<=-)batch[_-]size(?P<per>[_-]per[_-](?:gpu|device|rank|replica|worker))?[ \t]{1,4}"
    rb"(?P<size>\d{1,8})\b(?!\.\d)(?P<all>(?!))?"
)
PER_DEVICE = re.compile(rb"(?<![\d.])(\d{1,8}) per device\b")
# The words before a batch size tell whose it is.
_BEFORE_BYTES = 24
_WHOLE = re.compile(rb"(?:global|total|effective)[_ -]?(?:train[_ -]?)?$")
_OF_A_RANK = re.compile(
    rb"(?:per[_ -](?:gpu|device|rank|replica|worker)|local|micro)[_ -]?(?:train[_ -]?)?$"
)
_OTHER = re.compile(rb"(?:eval|val|valid|validation|test)[_ -]?$")


@dataclass(frozen=True)
class PrintedSettings:
    """The batch sizes and the number of ranks in a log; None if unknown."""

    #: Samples of a step on one rank, and on all ranks.
    rank_batch: int | None = None
    whole_batch: int | None = None
    ranks: int | None = None


def printed_settings(data: bytes, ranks: int | None) -> PrintedSettings:
    """Read the settings of a log.

    A plain ``batch_size`` is that of one rank, as in Horovod's examples, unless another line has the
    same number for all ranks.

    Args:
        data: the log.
        ranks: the number of ranks; None if unknown.
    """
    sizes = _batch_sizes(data[:HEAD_BYTES].lower())
    per_rank, whole, either = (sizes.get(whose) for whose in ("rank", "whole", "either"))
    if per_rank is None and either != whole:
        per_rank = either
    if ranks is not None:
        if per_rank is None and whole is not None and whole % ranks == 0:
            per_rank = whole // ranks
        if whole is None and per_rank is not None:
            whole = per_rank * ranks
    return PrintedSettings(per_rank, whole, ranks)


def _batch_sizes(head: bytes) -> dict[str, int]:
    """Return the first batch size of a rank, of all ranks, and of unknown meaning."""
    sizes: dict[str, int] = {}
    for match in chain(_SIZE.finditer(head), _OPTION.finditer(head)):
        before = head[max(match.start() - _BEFORE_BYTES, 0) : match.start()]
        size = int(match["size"])
        if size and not _OTHER.search(before):
            sizes.setdefault(_whose(match, before), size)
    of_a_device = PER_DEVICE.search(head) if b" per device" in head else None
    if of_a_device is not None:
        sizes.setdefault("rank", int(of_a_device[1]))
    return sizes


def _whose(match: re.Match[bytes], before: bytes) -> str:
    if match["all"] or _WHOLE.search(before):
        return "whole"
    return "rank" if match["per"] or _OF_A_RANK.search(before) else "either"
