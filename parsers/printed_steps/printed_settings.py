"""Batch sizes and numbers of ranks that programs print before they train."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

# Programs print their settings at the start, sometimes after long summaries of the model.
_HEAD_BYTES = 1 << 20
_IS = rb"[\"']?\]?\s{0,40}(?:[:=]|is|\|)\s{0,40}[\"']?(\d{1,8})\b(?!\.\d)"
_WHOLE = (
    re.compile(rb"(?:global|total|effective)[_ -]?(?:train[_ -]?)?batch[_ -]?size" + _IS, re.I),
    # MLPerf's loggers.
    re.compile(rb'\bglobal_batch_size(?:", |: \{)"value": (\d{1,8})\b(?!\.\d)'),
    # tf_cnn_benchmarks: "Batch size:  256 global".
    re.compile(rb"batch size:\s{0,20}(\d{1,8}) global\b", re.I),
)
_OF_A_RANK = (
    re.compile(
        rb"(?:(?:per[_ -](?:gpu|device|rank|replica|worker)|local|micro)[_ -]?(?:train[_ -]?)?"
        rb"batch[_ -]?size|batch[_ -]?size[_ -]per[_ -](?:gpu|device|rank|replica|worker))" + _IS,
        re.I,
    ),
    re.compile(rb"\b(\d{1,8}) per device\b"),
)
_EITHER = re.compile(rb"(?<![A-Za-z_-])(?:train[_ -]?)?batch[_ -]?size" + _IS, re.I)


@dataclass(frozen=True)
class PrintedSettings:
    """What a log says of its batches and ranks; None for what it does not say."""

    #: Samples of a step on one rank, and on all ranks.
    rank_batch: int | None = None
    whole_batch: int | None = None
    ranks: int | None = None


def printed_settings(data: bytes, ranks: int | None) -> PrintedSettings:
    """Read the settings of a log.

    A plain ``batch_size`` is that of one rank, as in Horovod's examples, unless another line has it as
    the one of all ranks.

    Args:
        data: the log.
        ranks: the number of ranks, where it is known.
    """
    head = data[:_HEAD_BYTES]
    own, whole = _first(_OF_A_RANK, head), _first(_WHOLE, head)
    either = _first((_EITHER,), head)
    if own is None and either != whole:
        own = either
    if ranks is not None:
        own = own if own is not None or whole is None or whole % ranks else whole // ranks
        whole = whole if whole is not None or own is None else own * ranks
    return PrintedSettings(own, whole, ranks)


def _first(forms: Iterable[re.Pattern[bytes]], head: bytes) -> int | None:
    found = (form.search(head) for form in forms)
    return next((int(one[1]) for one in found if one is not None and int(one[1])), None)
