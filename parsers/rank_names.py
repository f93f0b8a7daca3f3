"""Find the rank of a file in the names of files and folders.

1/rank.07/stdout  rank_3.log  log_rank3.txt  worker-3.log     the name has it
attempt_0/3/stdout.log  F.prterun-host-17@1.3.out             torchrun, Open MPI 5
slurm-123-3.out  stdout.3                                     if the files of ranks 0, 1, … are there
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

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
