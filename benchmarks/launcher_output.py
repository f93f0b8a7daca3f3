"""How fast what launchers print is read, against one bare ``bytes.splitlines``.

``parsers.py`` prints more of it: other launchers, and each part of the work.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from figures import Figure, share_of

from parsers import printed
from stallscope.parsers.keras_output import KerasOutputParser

LABEL, LINE, RANKS = b"[%d]<stdout>:", b"step %d of %d, loss 2.2800, 829 samples\n", 16


def figures(quick: bool) -> list[Figure]:
    data = printed(LABEL, LINE, (4 if quick else 40) * 1_000_000, RANKS)
    own, bare = seconds(lambda: read(data)), seconds(data.splitlines)
    name = f"Keras's epochs in {len(data) / 1e6:.0f} MB of horovodrun's output"
    return [share_of(name, own, "s", "bytes.splitlines", bare)]


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
