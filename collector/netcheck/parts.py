"""Split the time of a run's gradients into its parts, and compute rates of messages."""

from __future__ import annotations

from typing import NamedTuple, Optional, Sequence


class Parts(NamedTuple):
    """Parts that add up to the time of the gradients, in its unit."""

    #: One message of all bytes, minus the time of a message of a few bytes.
    bandwidth: float
    #: One message of a few bytes on its way.
    latency: float
    #: The rest of a small message; None where nothing is negotiated.
    negotiation: Optional[float]
    #: The additional time of many tensors compared with one message of all bytes.
    fusion: float


def parts_of(
    as_run: float, together: float, small: float, several: float, count: int, negotiates: bool
) -> Parts:
    """Split the time of a run's gradients.

    Several small messages at once, which are not fused, add their latencies to one negotiation. Parts
    that noise makes negative are 0, and the others are smaller by that.

    Args:
        as_run: all gradients at once.
        together: one message of all bytes.
        small: one message of a few bytes.
        several: several such messages at once.
        count: their number, at least two.
        negotiates: whether ranks first agree on what is ready, as with Horovod.
    """
    small = min(small, as_run)
    together = min(max(together, small), as_run)
    latency = small
    if negotiates:
        latency = min(max((several - small) / (count - 1), 0.0), small)
    negotiation = small - latency if negotiates else None
    return Parts(together - small, latency, negotiation, as_run - together)


def bus_bytes(ranks: int, size: int) -> float:
    """Return the bytes that go over every link of a ring when ``size`` bytes are reduced."""
    return 2 * (ranks - 1) / ranks * size


def mbit_s(size: int, us: float, small_us: Sequence[float]) -> float:
    """Return the rate of an exchange each way, without the time of starting it.

    The shortest small exchange shows that time: longer ones also waited for a busy core.

    Args:
        size: the bytes that each side sends.
        us: the time of the exchange.
        small_us: the times of exchanges of a few bytes.
    """
    sending = us - min(small_us, default=0.0)
    return 8.0 * size / (sending if sending > 0 else us)
