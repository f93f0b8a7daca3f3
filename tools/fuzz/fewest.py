"""Minimize a set of inputs (libFuzzer's own merge cannot restart a Python module)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import FrameType

_OF_INTEREST = "/parsers/"

# A file, and a jump from one line to another.
Jump = tuple[str, int, int]


def fewest(target: Callable[[bytes], object], inputs: Iterable[bytes]) -> list[bytes]:
    """Return a small set of inputs with the same coverage of the parsers' code, short ones first."""
    seen: set[Jump] = set()
    chosen = []
    for data in sorted(set(inputs), key=lambda content: (len(content), content)):
        jumps = _jumps(target, data)
        if not jumps <= seen:
            seen |= jumps
            chosen.append(data)
    return chosen


def _jumps(target: Callable[[bytes], object], data: bytes) -> set[Jump]:
    jumps: set[Jump] = set()

    def enter(frame: FrameType, _event: str, _arg: object) -> Callable[..., object] | None:
        path, last = frame.f_code.co_filename, 0
        if _OF_INTEREST not in path:
            return None

        def line(frame: FrameType, event: str, _arg: object) -> Callable[..., object]:
            nonlocal last
            if event == "line":
                jumps.add((path, last, frame.f_lineno))
                last = frame.f_lineno
            return line

        return line

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        target(data)
    finally:
        sys.settrace(before)
    return jumps
