"""Read autotune logs, which Horovod writes on rank 0 under HOROVOD_AUTOTUNE_LOG.

They have a line for every setting that was tried, and after the end of tuning a line of the best one:

    hierarchical_allreduce,…,cache_enabled,cycle_time_ms,tensor_fusion_threshold,score
    0,0,0, 1,5,4,1234.56
    0,0,0, 1,50,32,987.65
    0,0,0, 1,5,4,1234.56

Versions differ in the switches before ``cycle_time_ms``; columns are read by name. The threshold is in
MiB, and the score in bytes per microsecond. The last line repeats the best setting with its score; if
the tuner itself tries a setting again, it measures another score. A last line without a space in the
middle is also the best setting, if all other lines have one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from stallscope.errors import NotFoundError, UnreadableError

from ..base import CompanionFormat
from ..files.unpacking import is_packed, plain_text, unpacked_up_to

_CYCLE, _FUSION, _SCORE = "cycle_time_ms", "tensor_fusion_threshold", "score"
_MIB = 1 << 20
#: Tuning ends after some hundred lines.
MOST_BYTES = 1 << 20
# The environment variables of switches, with their values for off and on.
_SWITCHES = {
    "hierarchical_allreduce": ("HOROVOD_HIERARCHICAL_ALLREDUCE", "0", "1"),
    "hierarchical_allgather": ("HOROVOD_HIERARCHICAL_ALLGATHER", "0", "1"),
    "torus_allreduce": ("HOROVOD_TORUS_ALLREDUCE", "0", "1"),
    # Horovod's default capacity.
    "cache_enabled": ("HOROVOD_CACHE_CAPACITY", "0", "1024"),
}


@dataclass(frozen=True)
class Sample:
    """A setting that was tried."""

    #: Switches by the name of their column.
    switches: Mapping[str, bool]
    cycle_time_ms: float
    fusion_mib: float
    #: Bytes per microsecond that were reduced: MB/s.
    score: float

    @property
    def environment(self) -> tuple[str, ...]:
        """Return the environment variables that make Horovod start with this setting."""
        switches = [
            f"{names[0]}={names[1 + on]}"
            for column, on in self.switches.items()
            if (names := _SWITCHES.get(column)) is not None
        ]
        return (
            f"HOROVOD_FUSION_THRESHOLD={int(self.fusion_mib * _MIB)}",
            f"HOROVOD_CYCLE_TIME={self.cycle_time_ms:g}",
            *switches,
        )


@dataclass(frozen=True)
class AutotuneLog:
    """The settings that an autotuner has tried, in order."""

    samples: tuple[Sample, ...]
    #: The final setting; None before the end of tuning.
    settled: Sample | None
    #: Lines that could not be read.
    torn: int

    @property
    def best(self) -> Sample | None:
        """Return the final setting, or the best so far; None before the first sample."""
        return self.settled or max(self.samples, key=lambda sample: sample.score, default=None)


class AutotuneFormat(CompanionFormat):
    name: ClassVar[str] = "autotune-log"
    title: ClassVar[str] = "Horovod's autotune log"
    note: ClassVar[str | None] = "stallscope tune reads it"

    def recognises(self, file_name: str, head: bytes) -> bool:
        return is_autotune_log(head)


def is_autotune_log(head: bytes) -> bool:
    """Whether a file that begins with these bytes is an autotune log."""
    columns = _columns(plain_text(head).partition(b"\n")[0])
    return columns[-1:] == [_SCORE] and {_CYCLE, _FUSION} <= set(columns)


def read_autotune(path: str | Path) -> AutotuneLog:
    """Read an autotune log from a file, which may be compressed.

    Raises:
        NotFoundError: if there is no such file.
        UnreadableError: if it is not an autotune log.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(MOST_BYTES)
    except FileNotFoundError:
        raise NotFoundError(f"{path}: no such file") from None
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be read: {error.strerror}") from None
    if is_packed(data):
        data = unpacked_up_to(str(path), data, MOST_BYTES).data
    return parse_autotune(str(path), data)


def parse_autotune(name: str, data: bytes) -> AutotuneLog:
    """Parse an autotune log; ``name`` stands for the file in messages.

    Raises:
        UnreadableError: if it is not an autotune log.
    """
    if not is_autotune_log(data):
        raise UnreadableError(
            f"{name}: not an autotune log: its first line does not name its columns"
        )
    header, *lines = plain_text(data).split(b"\n")
    # A line without its end was cut, perhaps in the middle of its score.
    cut = lines.pop() if lines else b""
    columns = _columns(header)
    read = [(line, _sample(columns, line)) for line in lines if line.strip()]
    torn = sum(sample is None for _, sample in read) + bool(cut.strip())
    samples = [(line, sample) for line, sample in read if sample is not None]
    settled = _settled(samples)
    tried = samples if settled is None else samples[:-1]
    return AutotuneLog(tuple(sample for _, sample in tried), settled, torn)


def _columns(line: bytes) -> list[str]:
    return [cell.strip() for cell in line.decode("ascii", "replace").split(",")]


def _sample(columns: Sequence[str], line: bytes) -> Sample | None:
    cells = _columns(line)
    if len(cells) != len(columns):
        return None
    try:
        values = {name: float(cell) for name, cell in zip(columns, cells, strict=True)}
    except ValueError:
        return None
    cycle, fusion, score = (values.pop(name) for name in (_CYCLE, _FUSION, _SCORE))
    if not all(math.isfinite(value) and value >= 0 for value in (cycle, fusion, score)):
        return None
    if not set(values.values()) <= {0.0, 1.0}:
        return None
    return Sample({name: value == 1 for name, value in values.items()}, cycle, fusion, score)


def _settled(samples: Sequence[tuple[bytes, Sample]]) -> Sample | None:
    if len(samples) < 2:
        return None
    line, last = samples[-1]
    earlier = [sample for _, sample in samples[:-1]]
    if b", " not in line and all(b", " in text for text, _ in samples[:-1]):
        return last
    tried = any(replace(sample, score=last.score) == last for sample in earlier)
    scored = any(sample.score == last.score for sample in earlier)
    return last if tried and scored else None
