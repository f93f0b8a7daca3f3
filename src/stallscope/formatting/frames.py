"""Write a place in the user's code in a sentence."""

from __future__ import annotations

from pathlib import PurePath


def in_frame(frame: tuple[str, int, str] | None) -> str:
    """Write a frame (file, line, function) after a clause; empty without one."""
    if frame is None:
        return ""
    path, line, function = frame
    return f", in `{function}` at `{PurePath(path).name}:{line}`"
