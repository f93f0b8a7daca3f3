"""Find the number of ranks, and a file's own rank, in the text of logs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from .launcher_output import labels_of

#: Programs print it when they start, libraries after long summaries.
HEAD_BYTES = 1 << 20
#: No job has more ranks: a larger number is damage, and would take memory for each of them.
MOST_RANKS = 1 << 20
_IS = rb"[\"']?\]?\s{0,10}(?:[:=]|is)\s{0,10}(\d{1,6})\b(?!\.\d)"
# In lower case; each begins with a letter (``_whole_words``).
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
_NEW_COMMUNICATOR = re.compile(rb"communicator \(size ?= ?(\d{1,6})\)")
_RANK = re.compile(rb"distributed init \(rank (\d{1,6})\)")
_LETTER = re.compile(rb"[a-z0-9]")


#: Sources of the number of ranks, and of a file's rank.
FROM_TEXT, FROM_NAME, FROM_FILES, FROM_LABELS, FROM_MLPERF = (
    "what the log says",
    "the log's name",
    "files of the ranks",
    "ranks of the lines",
    "MLPerf's metadata",
)


# By then, launchers have labelled lines of all ranks.
_LABELLED_BYTES = 4 << 20


class StatedRanks(NamedTuple):
    """The rank and the number of ranks that a log states; None if it states none, or several."""

    rank: int | None
    size: int | None
    #: Whether it states different numbers of ranks, as elastic jobs do.
    varies: bool = False


def stated_ranks(data: bytes) -> StatedRanks:
    """Read the number of ranks, and its own rank, from the text of a log."""
    head = data[:HEAD_BYTES].lower()
    pairs = {(int(match["rank"]), int(match["size"])) for match in _whole_words(_RANK_OF, head)}
    pairs = {(rank, size) for rank, size in pairs if rank < size <= MOST_RANKS}
    sizes = {size for _, size in pairs}
    for form in _SIZES:
        if not sizes:
            sizes = {
                size
                for match in _whole_words(form, head)
                if 0 < (size := int(match[1])) <= MOST_RANKS
            }
    if len(data) > HEAD_BYTES and _NEW_COMMUNICATOR.search(head):
        # Elastic jobs make a new communicator after each resize.
        sizes |= {int(size) for size in _NEW_COMMUNICATOR.findall(data)}
    ranks = {rank for rank, _ in pairs} or {int(match[1]) for match in _whole_words(_RANK, head)}
    return StatedRanks(_only(ranks), _only(sizes), len(sizes) > 1)


def labelled_ranks(data: bytes) -> Collection[int]:
    """Return the ranks that a launcher has labelled, including those of lines of no format.

    Empty unless all ranks from 0 on are there: a number before a colon may be anything.
    """
    labels = labels_of(data)
    if labels is None or labels.local or labels.ranks:
        return ()
    ranks = labels.numbers_in(data[:_LABELLED_BYTES])
    return ranks if ranks == set(range(len(ranks))) else ()


def size_facts(
    stated: int | None, labelled: Collection[int] = (), in_mlperf: int | None = None
) -> dict[str, Any]:
    """Return the number of ranks and its source as facts; nothing if it is unknown.

    The program's own statement is trusted most, and MLPerf's metadata least.

    Args:
        stated: the number in the text of the log.
        labelled: the ranks that have lines.
        in_mlperf: the number in MLPerf's metadata.
    """
    by_labels = max(labelled) + 1 if len(labelled) > 1 else None
    for size, source in ((stated, FROM_TEXT), (by_labels, FROM_LABELS), (in_mlperf, FROM_MLPERF)):
        if size is not None:
            return {"size": size, "size_from": source}
    return {}


def size_of_files(ranks: Collection[int], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the number of ranks by their files as a fact; nothing unless all from 0 on have a file.

    Args:
        ranks: the ranks with a file each.
        facts: the facts of the job in one of these files.
    """
    complete = len(ranks) > 1 and max(ranks) + 1 == len(set(ranks))
    trusted_more = "size" in facts and facts.get("size_from") not in (FROM_LABELS, FROM_MLPERF)
    return (
        {"size": len(set(ranks)), "size_from": FROM_FILES} if complete and not trusted_more else {}
    )


def _whole_words(form: re.Pattern[bytes], head: bytes) -> Iterator[re.Match[bytes]]:
    """Find the places of a form that do not begin within a word.

    Regular expressions search much faster for letters than for ``\\b`` before them.
    """
    for match in form.finditer(head):
        if not match.start() or not _LETTER.match(head, match.start() - 1):
            yield match


def _only(numbers: set[int]) -> int | None:
    return next(iter(numbers)) if len(numbers) == 1 else None
