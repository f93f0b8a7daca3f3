"""The verdict on a run: what holds it back most."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bottleneck:
    """The verdict. ``ranks`` and ``hosts`` are named only where the lap test names them.

    ``fault`` tells a fault from a healthy run, of which ``kind`` is the largest part that could shrink.
    """

    kind: str
    cause: str | None
    evidence: str
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    fault: bool = False
