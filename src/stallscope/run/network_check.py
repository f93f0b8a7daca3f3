"""Define the measured speed of a network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime


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
