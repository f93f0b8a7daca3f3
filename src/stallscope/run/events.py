"""Define events and measurements of machines during a run, from logs other than the step logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Event:
    """Something that happened while a job ran, reported by a log other than the step logs."""

    #: ``stall``, ``host_blacklisted``, …
    kind: str
    #: The file that reports it.
    where: str
    #: A short description.
    what: str
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    #: Wall time, nanoseconds since 1970 in UTC; None if unknown.
    wall_ns: int | None = None
    #: The log's timestamp, taken as UTC, if the log has no time zone.
    local_ns: int | None = None
    #: How much later than its timestamp it may have happened.
    uncertainty_ns: int = 0
    #: The least time that it had lasted by then.
    waited_ns: int = 0
    #: Process numbers, if the log names processes instead of ranks.
    pids: tuple[int, ...] = ()
    #: The exit status of a process that ended; None for other events.
    status: int | None = None
    #: Whether lines about steps follow its message in the same file.
    followed: bool = False


# Compared by identity, because comparing arrays is ambiguous.
@dataclass(frozen=True, eq=False)
class Series:
    """Measurements of a machine over time, from a log other than the step logs."""

    #: The name in the log, without unit and place: ``gpu_0_utilization``.
    name: str
    #: ``%``, ``MB``, ``W``, …; empty if the name does not show it.
    unit: str
    #: The machine's name in the log, and the rank; None if unknown.
    node: str | None
    rank: int | None
    #: The file that has the measurements.
    where: str
    #: Wall times of the values, nanoseconds since 1970 in UTC, ascending. A value is about the time
    #: since the previous one.
    wall_ns: npt.NDArray[np.int64]
    #: The values; none is missing.
    value: npt.NDArray[np.float64]


# -- Define the measured speed of a rank's loader -------------------------------------------------


@dataclass(frozen=True)
class InputStage:
    """A stage of an input pipeline, with the milliseconds that it adds to a batch."""

    #: ``read``, ``decode``, ``augment``, ``shuffle``, ``batch``, ``copy`` or ``other``.
    kind: str
    #: The operation, with the user's function in it.
    name: str
    ms: float
    ci95_ms: tuple[float, float] | None


@dataclass(frozen=True)
class LoaderTrial:
    """A setting of a loader that was tried, with the milliseconds per batch."""

    workers: int
    #: Batches that each worker prepares in advance.
    prefetch: int
    ms: float
    ci95_ms: tuple[float, float] | None
    #: How long each of the last batches was waited for, milliseconds; empty if unknown.
    batches_ms: tuple[float, ...] = ()


@dataclass(frozen=True)
class MeasuredInput:
    """The speed of one rank's loader, measured with ``measure_input``."""

    path: str
    rank: int
    #: The number of ranks that measured.
    size: int
    host: str
    #: The run that it belongs to, and the launch that measured; None if unknown.
    run_id: str | None
    launch: str | None
    #: Wall time in nanoseconds, from the first request for a batch to the last batch.
    began: int
    ended: int
    #: The kind of loader: ``tf.data``, ``DataLoader``, ``Sequence``, ``iterator``, …
    kind: str
    #: The number of batches after the warm-up, and in it.
    batches: int
    warm_up: int
    first_batch_ms: float | None
    #: Milliseconds per batch after the warm-up; None with too few batches.
    ms: float | None
    ci95_ms: tuple[float, float] | None
    samples_per_batch: float | None
    #: Whether the data ended before the requested number of batches.
    data_ended: bool
    #: The error that the data raised, in one sentence.
    error: str | None
    stages: tuple[InputStage, ...]
    #: The reason for missing stages.
    no_stages: str | None
    #: Other settings of the loader.
    trials: tuple[LoaderTrial, ...] = ()


# -- Define the measured speed of a network -------------------------------------------------------


@dataclass(frozen=True)
class Rounds:
    """Repeated reductions of this many bytes, in this many messages."""

    bytes: int
    messages: int
    #: Microseconds of each repetition.
    us: tuple[float, ...]


@dataclass(frozen=True)
class PairRounds:
    """Repeated exchanges of this many bytes between two hosts, both ways at once."""

    hosts: tuple[str, str]
    bytes: int
    #: Microseconds of each exchange, and of each exchange of a few bytes.
    us: tuple[float, ...]
    small_us: tuple[float, ...]


@dataclass(frozen=True)
class NetworkCheck:
    """The speed of a network without training, measured by ``stallscope netcheck``."""

    path: str
    #: The run that the gradients are from; None if unknown.
    run_id: str | None
    #: Wall time, nanoseconds, and the seconds of all measurements together.
    began: int
    seconds: float
    #: ``torch``, ``tensorflow`` or ``mxnet``.
    framework: str
    #: ``horovod`` or ``torch.distributed``, and the libraries that it used.
    reduced_by: str
    reduces_with: tuple[str, ...]
    device: str
    size: int
    #: The host of each rank.
    hosts: tuple[str, ...]
    settings: Mapping[str, str]
    #: Whether the run's logs gave the ``sizes`` of its gradients, or only their ``totals``; None without
    #: a run.
    gradients_from: str | None
    #: All gradients at once, as the run reduces them; and as one message. None without a run.
    as_run: Rounds | None
    together: Rounds | None
    #: One message of each of several sizes.
    sweep: tuple[Rounds, ...]
    #: One message of a few bytes, and several at once that cannot be fused.
    tiny: tuple[Rounds, ...]
    pairs: tuple[PairRounds, ...]
    #: Measurements that were left out, each with the reason.
    left_out: tuple[str, ...]

    @property
    def measured_at(self) -> datetime:
        """Return when it began, in UTC."""
        return datetime.fromtimestamp(self.began / 1e9, UTC)
