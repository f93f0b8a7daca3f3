"""The verdict on a run: its bottleneck."""

from __future__ import annotations

from dataclasses import dataclass

from ..steps.links import Link
from .reason import Reason


@dataclass(frozen=True)
class Bottleneck:
    """A verdict. ``ranks`` and ``hosts`` are set only if a test names them as slow.

    ``fault`` is False for a healthy run; ``kind`` is then the largest part that could shrink.
    """

    kind: str
    cause: str | None
    evidence: str
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    fault: bool = False
    #: Slow links between hosts, if communication is what is slow.
    links: tuple[Link, ...] = ()
    #: What was counted on the slow ranks, or on all of them, that explains it.
    why: tuple[Reason, ...] = ()
