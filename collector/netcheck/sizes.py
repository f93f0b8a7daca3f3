"""Describe the run's gradients as messages, and divide the time among their sizes."""

from __future__ import annotations

import collections
import math
from typing import Any, Counter, Dict, Iterator, List, NamedTuple, Optional, Sequence

#: Bytes of the tensors that are always measured, with or without a run.
SWEEP = (4 << 10, 64 << 10, 1 << 20, 8 << 20, 64 << 20)
# DistributedDataParallel's: a small first bucket, so that reducing starts early.
_FIRST_BUCKET_BYTES = 1 << 20
_BUCKET_BYTES = 25 << 20
# The bytes of a row's index.
_INDEX_BYTES = (8, 4)


class Gradients(NamedTuple):
    """The gradients that every step of the run reduces."""

    #: ``sizes`` if the log has the size of each, ``totals`` for equal parts of the total.
    source: str
    #: Pairs of bytes and how many tensors have them.
    sizes: List[List[int]]

    @property
    def bytes(self) -> int:
        return sum(size * count for size, count in self.sizes)

    def mixed(self) -> List[int]:
        """Return the bytes of each tensor, with large and small ones mixed as in a model."""
        # Each kind of tensor is spread evenly over the whole.
        placed = [
            ((number + 0.5) / count, size) for size, count in self.sizes for number in range(count)
        ]
        return [size for _, size in sorted(placed)]


def gradients_of(facts: Dict[str, Any]) -> Optional[Gradients]:
    """Return a run's gradients; None if its log does not have their size.

    Gradients that the run compresses to 16 bits have half of their bytes. Sparse ones are left out if
    the log describes them: the run gathers them.
    """
    recorded = facts.get("gradient_sizes")
    if isinstance(recorded, list) and recorded and all(map(_is_pair, recorded)):
        source, counts = "sizes", collections.Counter(dict(map(tuple, recorded)))
        for possible in _gathered(facts.get("sparse_gradients")):
            counts.subtract([size for size in possible if counts[size]][:1])
    else:
        total, tensors = _count(facts.get("gradient_bytes")), _count(facts.get("gradient_tensors"))
        source, counts = "totals", _equal_parts(total, tensors or 1)
    if "16" in str(facts.get("compression")):
        halves: Counter[int] = collections.Counter()
        for size, count in counts.items():
            halves[-(-size // 2)] += count
        counts = halves
    sizes = [[size, count] for size, count in sorted(counts.items()) if size and count > 0]
    return Gradients(source, sizes) if sizes else None


def _gathered(sparse: Any) -> Iterator[List[int]]:
    """Yield the bytes that each known sparse gradient may have in a log: as rows, or as a whole."""
    largest = sparse.get("largest") if isinstance(sparse, dict) else None
    for gradient in largest if isinstance(largest, list) else []:
        try:
            row = math.prod(gradient["shape"][1:]) * gradient["itemsize"]
            rows = gradient["rows"] or 0
            # TensorFlow's rows have indices, and the shape of the whole.
            shapes = [0, *(size * len(gradient["shape"]) for size in _INDEX_BYTES)]
            as_rows = [rows * (row + size) + shape for size in _INDEX_BYTES for shape in shapes]
            yield [*as_rows, gradient["shape"][0] * row]
        except (TypeError, KeyError, IndexError):
            continue


def _is_pair(pair: Any) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and all(map(_count, pair))


def _count(value: Any) -> int:
    """Return a positive number; 0 for anything else."""
    return max(value, 0) if isinstance(value, int) and not isinstance(value, bool) else 0


def _equal_parts(total: int, count: int) -> Counter[int]:
    size, larger = divmod(total, count)
    return collections.Counter({size: count - larger, size + 1: larger} if total else {})


def buckets(gradients: Sequence[int], bucket_bytes: Optional[int]) -> List[int]:
    """Return the bytes of the buckets that DistributedDataParallel puts gradients into.

    Args:
        gradients: the gradients' bytes.
        bucket_bytes: the largest bucket; None for the default.
    """
    sizes: List[int] = []
    usual = bucket_bytes in (None, _BUCKET_BYTES)
    # A size that the user gives holds for the first bucket, too.
    limit, filled = _FIRST_BUCKET_BYTES if usual else bucket_bytes or 0, 0
    for size in gradients:
        filled += size
        # A gradient is never split: the one that reaches the limit ends its bucket.
        if filled >= limit:
            sizes.append(filled)
            limit, filled = bucket_bytes or _BUCKET_BYTES, 0
    return [*sizes, filled] if filled else sizes


# -- Split the time of a run's gradients into its parts, and compute rates of messages ------------


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
