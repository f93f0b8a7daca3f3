"""Minimize a set of inputs: libFuzzer's own merge cannot start a Python module again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import FrameType

_OF_INTEREST = "/parsers/"

# A file, and a jump from one line to another.
Turn = tuple[str, int, int]


def fewest(target: Callable[[bytes], object], inputs: Iterable[bytes]) -> list[bytes]:
    """Return inputs that take every branch of the parsers' code that all of them take, short ones
    first.
    """
    seen: set[Turn] = set()
    chosen = []
    for data in sorted(set(inputs), key=lambda one: (len(one), one)):
        turns = _turns(target, data)
        if not turns <= seen:
            seen |= turns
            chosen.append(data)
    return chosen


def _turns(target: Callable[[bytes], object], data: bytes) -> set[Turn]:
    turns: set[Turn] = set()

    def enter(frame: FrameType, _event: str, _arg: object) -> Callable[..., object] | None:
        path, last = frame.f_code.co_filename, 0
        if _OF_INTEREST not in path:
            return None

        def line(frame: FrameType, event: str, _arg: object) -> Callable[..., object]:
            nonlocal last
            if event == "line":
                turns.add((path, last, frame.f_lineno))
                last = frame.f_lineno
            return line

        return line

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        target(data)
    finally:
        sys.settrace(before)
    return turns
