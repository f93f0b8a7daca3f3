"""The number of ranks, and a file's own rank, from what logs say in words."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from .launcher_output import labels_of

#: Programs say it when they start; libraries do so after long summaries.
HEAD_BYTES = 1 << 20
#: No job has more: a larger number is damage, and every rank of it would take memory.
MOST_RANKS = 1 << 20
_IS = rb"[\"']?\]?\s{0,10}(?:[:=]|is)\s{0,10}(\d{1,6})\b(?!\.\d)"
# Searched in lower case, each from the word that it begins with.
_RANK_OF = re.compile(
    rb"rank[ :=#]{0,3}(?P<rank>\d{1,6})[ ,]{0,2}(?: ?(?:of|out of)|/) ?(?P<size>\d{1,6})\b(?!\.\d)"
)
_SIZES = tuple(
    re.compile(form)
    for form in (
        rb"communicator \(size ?= ?(\d{1,6})\)",
        rb"world[_ ]size" + _IS,
        rb"hvd\.size(?:\(\))?" + _IS,
        rb"num[_ ](?:devices|gpus|replicas)" + _IS,
        rb"number[_ ]of[_ ](?:devices|gpus|replicas)" + _IS,
    )
)
_BEGINS_ANEW = re.compile(rb"communicator \(size ?= ?(\d{1,6})\)")
_RANK = re.compile(rb"distributed init \(rank (\d{1,6})\)")
_LETTER = re.compile(rb"[a-z0-9]")


#: Where the number of ranks, or a file's rank, is known from.
FROM_WORDS, FROM_NAME, FROM_FILES, FROM_LABELS, FROM_MLPERF = (
    "what the log says",
    "the log's name",
    "files of the ranks",
    "ranks of the lines",
    "MLPerf's metadata",
)


# Launchers label the first lines of all ranks long before.
_LABELLED_BYTES = 4 << 20


class InWords(NamedTuple):
    """What a log says; None for what it does not say, or says differently in different places."""

    rank: int | None
    size: int | None
    #: Whether it says different numbers of ranks, as where ranks come and go.
    varies: bool = False


def in_words(data: bytes) -> InWords:
    """Read the number of ranks that a log says, and the rank whose log it is."""
    head = data[:HEAD_BYTES].lower()
    both = {(int(one["rank"]), int(one["size"])) for one in words(_RANK_OF, head)}
    both = {(rank, size) for rank, size in both if rank < size <= MOST_RANKS}
    sizes = {size for _, size in both}
    for form in _SIZES:
        if not sizes:
            sizes = {size for one in words(form, head) if 0 < (size := int(one[1])) <= MOST_RANKS}
    if len(data) > HEAD_BYTES and _BEGINS_ANEW.search(head):
        # Ranks that come and go begin anew.
        sizes |= {int(size) for size in _BEGINS_ANEW.findall(data)}
    ranks = {rank for rank, _ in both} or {int(one[1]) for one in words(_RANK, head)}
    return InWords(_only(ranks), _only(sizes), len(sizes) > 1)


def labelled_ranks(data: bytes) -> Collection[int]:
    """Return the ranks that a launcher has labelled, also of lines that no format knows.

    Empty unless all ranks from 0 on are there: a number before a colon may be anything.
    """
    labels = labels_of(data)
    if labels is None or labels.local or labels.ranks:
        return ()
    ranks = labels.numbers_in(data[:_LABELLED_BYTES])
    return ranks if ranks == set(range(len(ranks))) else ()


def size_facts(
    said: int | None, labelled: Collection[int] = (), in_mlperf: int | None = None
) -> dict[str, Any]:
    """Return the number of ranks as a fact, with where it is known from; nothing where it is unknown.

    What a program says of itself is trusted most, and MLPerf's metadata least.

    Args:
        said: the number that a log says in words.
        labelled: the ranks that have lines.
        in_mlperf: the number in MLPerf's metadata.
    """
    by_labels = max(labelled) + 1 if len(labelled) > 1 else None
    for size, source in ((said, FROM_WORDS), (by_labels, FROM_LABELS), (in_mlperf, FROM_MLPERF)):
        if size is not None:
            return {"size": size, "size_from": source}
    return {}


def size_of_files(ranks: Collection[int], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the number of ranks that each have a file as a fact; nothing unless all from 0 on have one.

    Args:
        ranks: the ranks that have files of their own.
        facts: what is known of the job from one of these files.
    """
    complete = len(ranks) > 1 and max(ranks) + 1 == len(set(ranks))
    trusted_more = "size" in facts and facts.get("size_from") not in (FROM_LABELS, FROM_MLPERF)
    return (
        {"size": len(set(ranks)), "size_from": FROM_FILES} if complete and not trusted_more else {}
    )


def words(form: re.Pattern[bytes], head: bytes) -> Iterator[re.Match[bytes]]:
    """Find all places of a form that begins with a word, which is no end of a longer one.

    The form itself begins with letters, for which regular expressions search much faster than for the
    start of a word.
    """
    for found in form.finditer(head):
        if not found.start() or not _LETTER.match(head, found.start() - 1):
            yield found


def _only(found: set[int]) -> int | None:
    return next(iter(found)) if len(found) == 1 else None
