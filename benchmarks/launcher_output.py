"""How fast what launchers print is read, against one bare ``bytes.splitlines``; and the slowest kind.

``parsers.py`` prints more of it: each part of the work.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from figures import Figure, share_of

from parsers import KINDS, printed, whole
from stallscope.parsers.keras_output import KerasOutputParser

_LEAST_SPEED = 50
LABEL, LINE, RANKS = b"[%d]<stdout>:", b"step %d of %d, loss 2.2800, 829 samples\n", 16


def figures(quick: bool) -> list[Figure]:
    data = printed(LABEL, LINE, (4 if quick else 40) * 1_000_000, RANKS)
    own, bare = seconds(lambda: read(data)), seconds(data.splitlines)
    name = f"Keras's epochs in {len(data) / 1e6:.0f} MB of horovodrun's output"
    return [share_of(name, own, "s", "bytes.splitlines", bare), slowest(quick)]


def slowest(quick: bool) -> Figure:
    """The kind of output that is read slowest, and how fast."""
    speeds = {}
    for kind, label, line in KINDS:
        data = printed(label, line, (4 if quick else 20) * 1_000_000, RANKS)
        speeds[kind] = len(data) / seconds(lambda data=data: whole(data)) / 1e6
    kind = min(speeds, key=speeds.__getitem__)
    speed = speeds[kind]
    return Figure(
        f"a run from the slowest of {len(speeds)} kinds of output, {kind}",
        speed,
        "MB/s",
        target=f"at least {_LEAST_SPEED} MB/s",
        met=speed >= _LEAST_SPEED,
    )


def read(data: bytes) -> None:
    KerasOutputParser().parse("printed", data)


def seconds(work: Callable[[], object]) -> float:
    """The faster one of two."""
    times = []
    for _ in range(2):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return min(times)
