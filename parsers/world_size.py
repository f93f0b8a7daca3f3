"""The number of ranks, and a file's own rank, from what logs say in words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

# Programs say it when they start; libraries do so after long summaries.
_HEAD_BYTES = 1 << 20
_MOST_RANKS = 1_000_000
# No line without one of these says anything of ranks.
_WORDS = (b"rank", b"size", b"num")
_RANK_OF = re.compile(
    rb"\brank[ :=#]{0,3}(?P<rank>\d{1,6})[ ,]{0,2}(?: ?(?:of|out of)|/) ?(?P<size>\d{1,6})\b(?!\.\d)",
    re.I,
)
_SIZE = (
    re.compile(rb"\bcommunicator \(size ?= ?(\d{1,6})\)"),
    re.compile(rb"\bworld[_ ]size[\"']?\]?\s{0,10}(?:[:=]|is)\s{0,10}(\d{1,6})\b(?!\.\d)", re.I),
    re.compile(rb"\bhvd\.size(?:\(\))?\s{0,10}(?:[:=]|is)\s{0,10}(\d{1,6})\b", re.I),
    re.compile(
        rb"\bnum(?:ber of)?[_ ](?:devices|gpus|replicas)[\"']?\s{0,10}[:=]\s{0,10}(\d{1,6})\b", re.I
    ),
)
_RANK = re.compile(rb"\bdistributed init \(rank (\d{1,6})\)")


class InWords(NamedTuple):
    """What a log says; None for what it does not say, or says differently in different places."""

    rank: int | None
    size: int | None


def lines_with(data: bytes, words: Iterable[bytes]) -> bytes:
    """Return the lines that have one of these words, in lower case: the expressions take far longer."""
    lines = data.lower().split(b"\n")
    return b"\n".join(line for line in lines if any(word in line for word in words))


def in_words(data: bytes) -> InWords:
    """Read the number of ranks that a log says, and the rank whose log it is.

    A rank that only one of several lines names is another one's.
    """
    head = lines_with(data[:_HEAD_BYTES], _WORDS)
    both = [(int(one["rank"]), int(one["size"])) for one in _RANK_OF.finditer(head)]
    both = [(rank, size) for rank, size in both if rank < size <= _MOST_RANKS]
    sizes = Counter(size for _, size in both)
    for form in _SIZE:
        if not sizes:
            sizes.update(
                int(one[1]) for one in form.finditer(head) if 0 < int(one[1]) <= _MOST_RANKS
            )
    ranks = {rank for rank, _ in both} or {int(one[1]) for one in _RANK.finditer(head)}
    size = next(iter(sizes)) if len(sizes) == 1 else None
    rank = next(iter(ranks)) if len(ranks) == 1 else None
    return InWords(rank, size)
