"""The labels that launchers put before the output of ranks."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..lines.line_blocks import Needle, contains_any, sample_parts
from ..lines.timestamps import CTIME, read_timestamp

#: Timestamps with names of loggers are far shorter.
LONGEST_PREFIX = 160
#: Labels in brackets are shorter.
LONGEST_LABEL = 64
# The bytes at each of three places in a file that are searched for labels.
_SAMPLE_BYTES = 16 << 10
_LABELLED_SHARE = 0.8

# SageMaker's has the host as well: "[1,mpirank:3,algo-2]<stdout>:".
_TAG = re.compile(
    rb"\[(?:\d{1,9},)?(?:mpirank:)?(\d{1,6})(?:,[\w.-]{1,40})?\]<(stdout|stderr|stddiag)>:"
)
_TAG_LITERAL = b"]<std"
# Labels without the stream.
_TORCHRUN = re.compile(rb"\[[A-Za-z][A-Za-z_.-]{0,40}(\d{1,6})\]:()")
# PyTorch's own messages, and those of programs that imitate them.
_GLOBAL_RANK = b"[rank"
_TORCHRUN_DEFAULT = re.compile(rb"^\[default\d{1,6}\]:", re.MULTILINE)
_RANK_WORD = re.compile(rb"\[[Rr]ank[ _:]?(\d{1,6})\] ()")
_MPICH = re.compile(rb"\[(\d{1,6})\] ()")
# As in MXNet's "Epoch[0] Batch [20]".
_NOT_BEFORE_MPICH = (b"Epoch", b"Iter", b"Node")
_CLOSING = {_TAG: b"]<std", _TORCHRUN: b"]:", _RANK_WORD: b"] ", _MPICH: b"] "}
# Only at the starts of lines, as many lines contain a number and a colon.
_SLURM = re.compile(rb"^(?:P\d+ )? *(\d{1,6}): ()", re.MULTILINE)
# Slurm's own messages, such as on a cancelled job, have no label.
_SLURM_MESSAGES = (b"srun: ", b"slurmstepd")

# Ray names processes, and other hosts than the driver's: "(RayTrainWorker pid=71, ip=10.0.0.2) ".
_RAY = re.compile(
    rb"^(?:\x1b\[\d{1,3}m)?\((?:[^\s()]{1,200} )?pid=(\d{1,10}(?:, ip=[\w.:]{2,45})?)\)"
    rb"(?:\x1b\[0m)? ()",
    re.MULTILINE,
)
# Ray's controller prints which process has which rank, whenever it starts workers.
_RAY_RANK = re.compile(rb"\(.{0,100}?ip=([\w.:]{2,45}), pid=(\d{1,10})\) world_rank=(\d{1,6})\b")
_RAY_RANK_LITERAL = b") world_rank="
# Lightning prints it on each worker.
_RAY_GLOBAL = re.compile(
    rb"pid=(\d{1,10}(?:, ip=[\w.:]{2,45})?)\).{0,100}?GLOBAL_RANK: (\d{1,6}), MEMBER: "
)
_RAY_GLOBAL_LITERAL = b"GLOBAL_RANK: "
_LABEL_BYTES = 300

_CAPTURES = re.compile(rb"(?<!\\)\((?:(?!\?)|\?P<\w+>)")

# The last byte of a time in words or of a logger's prefix before a tag.
_ENDS_OF_PREFIXES = tuple(b"%c" % byte for byte in b"0123456789]) -:>|\t")
_TIME_BEFORE_TAG = re.compile(rb"\[?" + CTIME + rb"\]?\Z")

_WITHOUT_STREAMS = (
    (_TORCHRUN, "torchrun"),
    (_RANK_WORD, "a program"),
    (_MPICH, "MPICH"),
    (_SLURM, "srun"),
)

#: A rank and a stream; None and an empty name for text without a label.
Stream = tuple["int | None", str]
UNLABELLED: Stream = (None, "")


@dataclass(frozen=True)
class Labels:
    """The form of a file's labels."""

    tag: re.Pattern[bytes]
    #: The launcher, in words.
    launcher: str
    #: Open MPI 5 puts a space between its label and the text.
    spaced: bool = False
    #: Whether times in words precede them.
    timed: bool = False
    #: Whether a logger's prefix precedes them, and lines that the logger has cut at carriage returns.
    logged: bool = False
    #: Whether their numbers are ranks within a host.
    local: bool = False
    #: Ranks by process, if labels name processes.
    ranks: Mapping[bytes, int] = field(default_factory=dict)

    @property
    def pattern(self) -> bytes:
        """The regular expression of a label, without groups."""
        return _CAPTURES.sub(b"(?:", self.tag.pattern)

    @property
    def start_lines(self) -> bool:
        """Whether they only occur at the starts of lines."""
        return self.tag in (_SLURM, _RAY)

    @property
    def of_tasks(self) -> bool:
        """Whether their numbers are those of srun's tasks, each of which may start several ranks."""
        return self.tag is _SLURM

    @property
    def cut_lines(self) -> bool:
        """Whether the launcher cuts long lines, and labels each piece."""
        return self.tag is _SLURM

    @property
    def second_bytes(self) -> bytes:
        """The bytes that may follow a label's opening bracket."""
        return (string.digits if self.tag in (_TAG, _MPICH) else string.ascii_letters).encode()

    @property
    def closing(self) -> bytes:
        """The bytes from the closing bracket on that all labels share."""
        return _CLOSING[self.tag]

    @property
    def closing_length(self) -> int:
        """The number of bytes from the closing bracket to the end of nearly all labels."""
        return len(b"]<stdout>:") if self.tag is _TAG else len(self.closing)

    @property
    def not_after(self) -> tuple[bytes, ...]:
        """Words before a program's own numbers in brackets, which look like labels."""
        return _NOT_BEFORE_MPICH if self.tag is _MPICH else ()

    def stream_of(self, label: bytes) -> Stream:
        """Read the rank and the stream of a label."""
        rank, stream = self.tag.findall(label)[0]
        if self.tag is _RAY:
            return self.ranks.get(rank), ""
        return int(rank), stream.decode()

    def numbers_in(self, text: bytes) -> set[int]:
        """Return the ranks of the labels in a text; those in brackets count at starts of lines."""
        at_start = b"" if self.start_lines or self.tag is _TAG else b"^"
        labels = {*re.findall(at_start + self.pattern, text, re.MULTILINE)}
        ranks = (self.stream_of(label)[0] for label in labels)
        return {rank for rank in ranks if rank is not None}

    def prefix_length(self, before: bytes, *, starts_line: bool) -> int:
        """Count the bytes of the timestamp or prefix before a label.

        Args:
            before: the text before the label, back to the start of its line or to another label; only
                the last ``LONGEST_PREFIX`` bytes of longer ones.
            starts_line: whether the text begins at the start of its line.
        """
        if not before.endswith(_ENDS_OF_PREFIXES):
            return 0
        match = _TIME_BEFORE_TAG.search(before)
        if match is not None:
            return len(match[0])
        whole = self.logged and starts_line and len(before) < LONGEST_PREFIX
        return len(before) if whole and read_timestamp(before) is not None else 0


def labels_of(data: bytes) -> Labels | None:
    """Recognise the labels of a file; None if it has none."""
    # Most files that have these labels have one at their start.
    if _TAG_LITERAL in data[:_SAMPLE_BYTES] or contains_any(data, [Needle(_TAG_LITERAL)]):
        return _tags_of(data)
    sampled = b"\n".join(sample_parts(data, _SAMPLE_BYTES))
    if _RAY.search(sampled):
        return Labels(_RAY, "Ray", ranks=_ranks_of_ray(data))
    sample = [
        line
        for line in sampled.split(b"\n")
        if line.strip() and not line.startswith(_SLURM_MESSAGES)
    ]
    for form, launcher in _WITHOUT_STREAMS:
        labels = [label for label in map(form.match, sample) if label is not None]
        ranks = [label[1] for label in labels]
        # A numbered list has every number once.
        if len(ranks) > _LABELLED_SHARE * len(sample) and len(set(ranks)) < len(ranks):
            are_global = all(label[0].startswith(_GLOBAL_RANK) for label in labels)
            return Labels(form, launcher, local=form is _TORCHRUN and not are_global)
    if _TORCHRUN_DEFAULT.search(data[:_SAMPLE_BYTES]):
        return Labels(_TORCHRUN, "torchrun", local=True)
    return None


def _tags_of(data: bytes) -> Labels:
    """Recognise the form of labels with a stream's name by the text around the first ones."""
    at = max(data.find(_TAG_LITERAL) - _SAMPLE_BYTES, 0)
    sample = data[at : at + 2 * _SAMPLE_BYTES]
    befores: set[bytes] = set()
    followed: list[bytes] = []
    job = False
    for match in _TAG.finditer(sample):
        befores.add(sample[sample.rfind(b"\n", 0, match.start()) + 1 : match.start()])
        followed.append(sample[match.end() : match.end() + 1])
        job = job or b"," in match[0]
    timed = logged = False
    for before in befores:
        time = _TIME_BEFORE_TAG.search(before[-LONGEST_PREFIX:])
        timed = timed or time is not None
        if time is None and len(before) < LONGEST_PREFIX and not _TAG.search(before):
            logged = logged or read_timestamp(before) is not None
    spaced = job and all(byte in (b" ", b"") for byte in followed)
    launcher = "horovodrun over Gloo" if not job else f"Open MPI{' 5' if spaced else ''}"
    return Labels(_TAG, launcher, spaced, timed, logged)


def _ranks_of_ray(data: bytes) -> Mapping[bytes, int]:
    """Read the ranks of processes, by process and address, and by process alone.

    Labels of processes on the driver's host have no address.
    """
    ranks: dict[bytes, int] = {}
    without_address: dict[bytes, set[tuple[bytes, int]]] = {}
    at = data.find(_RAY_RANK_LITERAL)
    while at >= 0:
        line = data[data.rfind(b"\n", 0, at) + 1 : at + len(_RAY_RANK_LITERAL) + 8]
        for address, pid, rank in _RAY_RANK.findall(line):
            ranks[b"%b, ip=%b" % (pid, address)] = int(rank)
            without_address.setdefault(pid, set()).add((address, int(rank)))
        at = data.find(_RAY_RANK_LITERAL, at + 1)
    at = data.find(_RAY_GLOBAL_LITERAL)
    while at >= 0:
        begin = max(data.rfind(b"\n", 0, at) + 1, at - _LABEL_BYTES)
        for process, rank in _RAY_GLOBAL.findall(data[begin : at + 40]):
            ranks.setdefault(process, int(rank))
        at = data.find(_RAY_GLOBAL_LITERAL, at + 1)
    # Hosts may have processes with the same number.
    alone = {pid: min(pairs)[1] for pid, pairs in without_address.items() if len(pairs) == 1}
    return {**alone, **ranks}
