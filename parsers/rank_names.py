"""Find the rank of a file in names of files and folders, and the number of ranks in texts.

1/rank.07/stdout  rank_3.log  log_rank3.txt  worker-3.log     the name has it
attempt_0/3/stdout.log  F.prterun-host-17@1.3.out             torchrun, Open MPI 5
slurm-123-3.out  stdout.3                                     if the files of ranks 0, 1, … are there
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from math import prod
from typing import Any, NamedTuple

from stallscope.run import FROM_LABELS

from .base import MOST_RANKS
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
_IS = rb"[\"']?\]?\s{0,10}(?:[:=]|is|\.{2,80})\s{0,10}[\"']?(\d{1,6})\b(?!\.\d)"


class _Wording(NamedTuple):
    """A wording of a rank or of the number of ranks, in lower case, and a text that it contains."""

    literal: bytes
    #: It begins with a letter (``_whole_words``), and has the groups ``rank``, ``size`` or both, or
    #: two factors of the number of ranks.
    form: re.Pattern[bytes]


# A rank with the number of ranks.
_PAIRS = (
    _Wording(
        b"rank",
        re.compile(
            rb"rank[ :=#]{0,3}(?P<rank>\d{1,6})[ ,]{0,2}(?: ?(?:of|out of)|/) ?(?P<size>\d{1,6})"
            rb"\b(?!\.\d)"
        ),
    ),
    _Wording(
        b"rank",
        re.compile(rb"rank of current process: (?P<rank>\d{1,6})\. world size: (?P<size>\d{1,6})"),
    ),
    # Lightning.
    _Wording(
        b"global_rank: ",
        re.compile(rb"global_rank: (?P<rank>\d{1,6}), member: \d{1,6}/(?P<size>\d{1,6})\b"),
    ),
    # timm and OpenCLIP.
    _Wording(
        b", total ",
        re.compile(
            rb"process (?:\(global: )?(?P<rank>\d{1,6})(?:, local \d{1,6}\))?, total (?P<size>\d{1,6})\b"
        ),
    ),
    _Wording(
        b"jax ", re.compile(rb"jax (?:process|host): (?P<rank>\d{1,6}) ?/ ?(?P<size>\d{1,6})\b")
    ),
)
# The number of ranks; the first wording that a log has counts.
_SIZES = (
    _Wording(b"communicator", re.compile(rb"communicator \(size ?= ?(\d{1,6})\)")),
    _Wording(b"world", re.compile(rb"world[_ ]size" + _IS)),
    _Wording(b" processes", re.compile(rb"starting with (\d{1,6}) processes\b")),
    _Wording(b" processes", re.compile(rb"initiali[sz]ed (\d{1,6}) processes\b(?! (?:for|to|of))")),
    _Wording(b"hvd.size", re.compile(rb"hvd\.size(?:\(\))?" + _IS)),
    _Wording(b"processes", re.compile(rb"num(?:ber)?[_ ](?:of[_ ])?processes" + _IS)),
    _Wording(b"training on", re.compile(rb"training on (\d{1,6}) devices\b")),
    _Wording(
        b"device mesh with ",
        re.compile(rb"device mesh with \[[^\]\n]{1,100}\], \[(\d{1,6}(?:, \d{1,6}){0,5})\]"),
    ),
    _Wording(
        b"mesh with parallelism: pp",
        re.compile(
            rb"parallelism: pp=(\d{1,6}), dp_replicate=(\d{1,6}), dp_shard=(\d{1,6}), "
            rb"cp=(\d{1,6}), tp=(\d{1,6})\b"
        ),
    ),
    # DeepSpeed's launcher and torchrun's command.
    _Wording(b"num_local_procs=", re.compile(rb"nnodes=(\d{1,6}), num_local_procs=(\d{1,6})\b")),
    _Wording(
        b"torchrun ",
        re.compile(
            rb"torchrun (?=[^\n]{0,300}?--nproc[_-]per[_-]node[= ](\d{1,6})\b)"
            rb"(?=[^\n]{0,300}?--(?:standalone\b|nnodes[= ](\d{1,6})\b(?!:)))"
        ),
    ),
    _Wording(
        b"run ", re.compile(rb"(?:horovod|mpi)run (?:-[^\n]{0,300}? )?(?:-np|--np|-n) (\d{1,6})\b")
    ),
)
# Devices, which are ranks unless there are several hosts.
_DEVICES = (
    _Wording(b"num", re.compile(rb"num[_ ](?:devices|gpus|replicas)" + _IS)),
    _Wording(b"number", re.compile(rb"number[_ ]of[_ ](?:devices|gpus|replicas)" + _IS)),
    _Wording(b"gpu number: ", re.compile(rb"gpu number: (\d{1,6})\b")),
)
_NUMBERS_OF_HOSTS = tuple(
    _Wording(name, re.compile(name + _IS))
    for name in (b"nnodes", b"num_nodes", b"num_machines", b"num_hosts")
)
# Sizes of parts of the world: their names end before ``world_size``, or with ``parallel``.
_PART = re.compile(
    rb"(?:parallel|local|node|group|dp|tp|pp|cp|ep|sp|mp|model|data|tensor|pipeline|expert|context|sequence"
    rb"|sharding|shard|intra|inter|partition|replicate)[_ -]$"
)
_PART_BYTES = 12
_REPLICAS = (
    _Wording(b"data", re.compile(rb"data[-_ ]parallel[-_ ](?:world[-_ ])?size" + _IS)),
    _Wording(b"dp_", re.compile(rb"dp_(?:world_)?size" + _IS)),
)
# The batch of all ranks, that of a rank, and the batches of a step give the number of ranks.
_BATCHES = tuple(
    re.compile(form)
    for form in (
        rb"total train batch size \(w\. parallel, distributed & accumulation\) = ([\d,]{1,9})",
        rb"instantaneous batch size per device = ([\d,]{1,9})",
        rb"gradient accumulation steps = ([\d,]{1,9})",
    )
)
_NCCL = _Wording(
    b" nranks ", re.compile(rb"nccl info comm \S{1,40} rank \d{1,6} nranks (\d{1,6})\b")
)
# Paddle's, of all ranks.
_RING = _Wording(b" ring id: 0", re.compile(rb"nccl context nranks: (\d{1,6})[^\n]+ ring id: 0\b"))
# nanotron's labels have the place of a rank in each dimension.
_PLACES = re.compile(rb"\|dp=(\d{1,6})\|pp=(\d{1,6})\|tp=(\d{1,6})[|\]]")
_NEW_COMMUNICATOR = _SIZES[0].form
_RANKS = (
    _Wording(b"distributed init", re.compile(rb"distributed init \(rank (?P<rank>\d{1,6})[,)]")),
    _Wording(b"process index", re.compile(rb"process index: (?P<rank>\d{1,6})\b")),
)
# Messages that name the host of a rank.
_RANKS_HOSTS = (
    _Wording(
        b") world_rank=",
        re.compile(rb"ip=(?P<host>[\w.:]{2,45}), pid=\d{1,10}\) world_rank=(?P<rank>\d{1,6})\b"),
    ),
    _Wording(
        b"mpirank:", re.compile(rb"mpirank:(?P<rank>\d{1,6}),(?P<host>[A-Za-z][\w.-]{0,40})\]<std")
    ),
    _Wording(
        b"initialized host ",
        re.compile(rb"initialized host (?P<host>[\w.-]{1,64}) as rank (?P<rank>\d{1,6})\b"),
    ),
    _Wording(
        b" NCCL INFO comm ",
        re.compile(
            rb"(?P<host>[\w.-]{1,64}):\d{1,9}:\d{1,9} \[\d{1,6}\] NCCL INFO comm \S{1,40} "
            rb"rank (?P<rank>\d{1,6}) nranks (?P<size>\d{1,6})\b"
        ),
    ),
)
_LETTER = re.compile(rb"[a-z0-9]")
#: Sources of the number of ranks, and of a file's rank.
FROM_TEXT, FROM_NAME, FROM_FILES, FROM_MLPERF = (
    "what the log says",
    "the log's name",
    "files of the ranks",
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
    #: The data-parallel size: the ranks of one replica of a model share a batch. None if unknown.
    replicas: int | None = None

    @property
    def batches(self) -> int | None:
        """Return the number of ranks with batches of their own; None if unknown."""
        return self.replicas or self.size


def stated_ranks(data: bytes) -> StatedRanks:
    """Read the number of ranks, and its own rank, from the text of a log."""
    head = data[:HEAD_BYTES].lower()
    pairs = {
        (int(match["rank"]), int(match["size"]))
        for wording in _PAIRS
        for match in _stated(wording, head)
    }
    pairs = {(rank, size) for rank, size in pairs if rank < size <= MOST_RANKS}
    ranks = {rank for rank, _ in pairs} or {
        int(match["rank"]) for wording in _RANKS for match in _stated(wording, head)
    }
    sizes = {size for _, size in pairs} or _stated_sizes(head, ranks)
    if len(data) > HEAD_BYTES and _NEW_COMMUNICATOR.search(head):
        # Elastic jobs make a new communicator after each resize.
        sizes |= {int(size) for size in _NEW_COMMUNICATOR.findall(data)}
    replicas = {number for wording in _REPLICAS for number in _numbers_of(wording, head)}
    size, of_data = _only(sizes), _only(replicas)
    divides = size is not None and of_data is not None and size % of_data == 0
    return StatedRanks(_only(ranks), size, len(sizes) > 1, of_data if divides else None)


def _stated_sizes(head: bytes, ranks: Collection[int]) -> set[int]:
    """Return the numbers of ranks by the wording that is trusted most.

    Args:
        head: the start of a log, in lower case.
        ranks: the ranks that it states without their number.
    """
    for wording in _SIZES:
        sizes = _numbers_of(wording, head)
        if sizes:
            return sizes
    several_hosts = any(
        int(match[1]) > 1 for wording in _NUMBERS_OF_HOSTS for match in _stated(wording, head)
    )
    for wording in () if several_hosts else _DEVICES:
        sizes = _numbers_of(wording, head)
        if sizes:
            return sizes
    # Parts of a job have communicators as well, and before its last start it may have had others.
    in_nccl = _numbers_of(_NCCL, head)
    ring = [int(match[1]) for match in _stated(_RING, head)][-1:]
    if in_nccl or ring:
        return {max([*in_nccl, *ring])}
    if len(ranks) > 1 and {*ranks} == {*range(len(ranks))}:
        return {len(ranks)}
    return _size_of_places(head) or _size_of_batches(head)


def _numbers_of(wording: _Wording, head: bytes) -> set[int]:
    """Return the numbers of ranks that a wording states, the products of their factors."""
    numbers = set()
    for match in _stated(wording, head):
        groups = [group for group in match.groups() if group is not None]
        numbers.add(prod(int(text) for group in groups for text in group.split(b",")))
    return {number for number in numbers if 0 < number <= MOST_RANKS}


def _size_of_places(head: bytes) -> set[int]:
    """Return the number of ranks if every place of a grid has a label."""
    places = {tuple(map(int, place)) for place in _PLACES.findall(head)} if b"|dp=" in head else ()
    lengths = [max(numbers) + 1 for numbers in zip(*places, strict=True)]
    return {len(places)} if len(places) > 1 and prod(lengths) == len(places) else set()


def _size_of_batches(head: bytes) -> set[int]:
    """Return the number of ranks by the batches of a step; nothing if they do not fit."""
    if b"instantaneous batch size" not in head:
        return set()
    texts = [{*form.findall(head)} for form in _BATCHES]
    if any(len(text) != 1 for text in texts):
        return set()
    whole, of_a_rank, steps = (int(text.pop().replace(b",", b"") or 0) for text in texts)
    fits = of_a_rank * steps > 0 and whole % (of_a_rank * steps) == 0
    return {whole // (of_a_rank * steps)} - {0} if fits else set()


def hosts_of_ranks(data: bytes) -> dict[int, str]:
    """Return the hosts of ranks that messages in a log name; none of a rank with several."""
    head = data[:HEAD_BYTES]
    hosts: dict[int, set[str]] = defaultdict(set)
    for wording in _RANKS_HOSTS:
        matches = [*_stated(wording, head)]
        sizes = [int(match.groupdict().get("size") or 0) for match in matches]
        for match, size in zip(matches, sizes, strict=True):
            # A communicator of a part has ranks of its own.
            if size == max(sizes):
                hosts[int(match["rank"])].add(match["host"].decode("ascii", "replace"))
    return {rank: names.pop() for rank, names in hosts.items() if len(names) == 1}


def labelled_ranks(data: bytes) -> Collection[int]:
    """Return the ranks that a launcher has labelled, including those of lines of no format.

    Empty unless all ranks from 0 on are there: a number before a colon may be anything.
    """
    labels = labels_of(data)
    if labels is None or labels.local or labels.ranks:
        return ()
    ranks = labels.numbers_in(data[:_LABELLED_BYTES])
    return ranks if ranks == set(range(len(ranks))) else ()


def names_nodes(data: bytes, labelled: Collection[int], size: int | None) -> bool:
    """Whether a launcher has labelled nodes, each with several ranks, as srun with a task for each.

    Args:
        data: the output.
        labelled: the numbers of its labels.
        size: the number of ranks that the program states; None if unknown.
    """
    nodes = len(labelled)
    if size is None or nodes < 2 or {*labelled} != {*range(nodes)} or size <= nodes or size % nodes:
        return False
    labels = labels_of(data)
    return labels is not None and labels.of_tasks


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


def _stated(wording: _Wording, head: bytes) -> Iterator[re.Match[bytes]]:
    """Find the places of a wording that do not begin within a word, nor after one for a part.

    Regular expressions search much faster for letters than for ``\\b`` before them.
    """
    if wording.literal not in head:
        return
    for match in wording.form.finditer(head):
        before = head[max(match.start() - _PART_BYTES, 0) : match.start()]
        if not _LETTER.match(before[-1:]) and not _PART.search(before):
            yield match


def _only(numbers: set[int]) -> int | None:
    return next(iter(numbers)) if len(numbers) == 1 else None
