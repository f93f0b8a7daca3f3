"""Find the rank of a file in names of files and folders, and the number of ranks in texts.

1/rank.07/stdout  rank_3.log  log_rank3.txt  worker-3.log     the name has it
attempt_0/3/stdout.log  F.prterun-host-17@1.3.out             torchrun, Open MPI 5
slurm-123-3.out  stdout.3                                     if the files of ranks 0, 1, … are there
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from .launcher_output import labels_of

_NAMED = re.compile(
    # LoRA has ranks, too, and a date may follow.
    r"(?<![a-z0-9])(?<!lora[._-])(?<!low[._-])rank[._-]?(\d{1,6})(?![a-z0-9]|-\d\d-\d\d)"
    # Workers of loaders are not ranks.
    r"|(?:^|(?<=[/._-]))(?<!loader[._-])(?:worker|process|proc)[._-]?(\d{1,6})"
    r"(?=/|$|\.(?:log|txt|out|err|stdout|stderr)\b)"
    r"|(?<=@1\.)(\d{1,6})(?=\.)"
    r"|(?:(?<=/attempt_\d/)|(?<=^attempt_\d/))(\d{1,6})(?=/std(?:out|err)\.log)",
    re.IGNORECASE,
)
# A single number may be anything, such as a restart or a rotated file.
_NUMBERED = re.compile(
    r"(?:^|(?<=/))(?P<kept>slurm-\d{1,12}-|(?:stdout|stderr|output)\.)(\d{1,6})"
    r"(?=$|\.out$|(?:\.out)?\.(?:gz|bz2|xz|zst|lz4)$)",
    re.IGNORECASE,
)
# Folders of hosts, which contain those of their ranks.
_HOST = re.compile(r"(?:^|(?<=/))(?:node|host)[._-]?\d{1,6}/", re.IGNORECASE)

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


class RankInPath(NamedTuple):
    """The rank that a path names, and the path without it: the same for all ranks of a job."""

    rank: int | None
    place: str


def rank_in(path: str) -> RankInPath:
    """Return the rank that a name in a path states."""
    return _without(_NAMED, path) or RankInPath(None, path)


def ranks_in(paths: Iterable[str]) -> Mapping[str, RankInPath]:
    """Return the ranks in the paths of one place.

    Numbers are ranks if all from 0 on are there. Hosts with different ranks belong to one job.
    """
    places = {path: rank_in(path) for path in paths}
    return {**places, **_numbered(places), **_of_hosts(places)}


def _without(form: re.Pattern[str], path: str) -> RankInPath | None:
    """Return the first number that a form finds, and the path without all of its places."""
    first = form.search(path)
    if first is None:
        return None
    rank = _number(first)

    def without(match: re.Match[str]) -> str:
        return match.groupdict().get("kept", "") if _number(match) == rank else match[0]

    return RankInPath(rank, form.sub(without, path))


def _number(match: re.Match[str]) -> int:
    return int(match[match.lastindex or 0])


def _numbered(places: Mapping[str, RankInPath]) -> Mapping[str, RankInPath]:
    numbered = {
        path: place
        for path, named in places.items()
        if named.rank is None and (place := _without(_NUMBERED, path)) is not None
    }
    ranks = _ranks_of(numbered)
    return {
        path: named
        for path, named in numbered.items()
        if len(ranks[named.place]) > 1
        and sorted(ranks[named.place]) == [*range(len(ranks[named.place]))]
    }


def _of_hosts(places: Mapping[str, RankInPath]) -> Mapping[str, RankInPath]:
    on_hosts = {
        path: RankInPath(named.rank, _HOST.sub("", named.place))
        for path, named in places.items()
        if named.rank is not None and _HOST.search(named.place)
    }
    ranks = _ranks_of(on_hosts)
    return {
        path: named
        for path, named in on_hosts.items()
        if len(set(ranks[named.place])) == len(ranks[named.place])
    }


def _ranks_of(places: Mapping[str, RankInPath]) -> Mapping[str, list[int]]:
    ranks: dict[str, list[int]] = defaultdict(list)
    for rank, place in places.values():
        if rank is not None:
            ranks[place].append(rank)
    return ranks


# -- Find the number of ranks, and a file's own rank, in the text of logs -------------------------


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
