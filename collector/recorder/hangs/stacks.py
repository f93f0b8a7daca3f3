"""Write the Python stacks of all threads to a file next to the log.

No lock is taken that a hung training could hold, no signal is sent, and no source file is read: a stack
is a list of file names, line numbers and names of functions. It contains no values of variables.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import List, Optional, Tuple

from ..step_log.format import SUFFIX as LOG_SUFFIX

#: The end of the names of files with stacks.
SUFFIX = ".stacks.txt"

#: The most frames of one stack, from the innermost.
MOST_FRAMES = 40
_MOST_THREADS = 200
_MOST_BYTES = 512 * 1024
# A loader may have many threads, all alike.
_MOST_OTHERS = 3
# Parts of the paths of packages, of Python and of the recorder.
_NOT_THE_USERS = ("-packages/", "/lib/python3", "/stallscope/collector/recorder/")

#: A frame: file, line number, function.
Frame = Tuple[str, int, str]


def frames_of(frame: Optional[FrameType]) -> List[Frame]:
    """Return the frames of a thread's stack, the innermost first."""
    frames: List[Frame] = []
    while frame is not None and len(frames) < MOST_FRAMES:
        frames.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return frames


def stacks_in_user_code(except_thread: int) -> List[List[Frame]]:
    """Return the stacks of other threads that run code of the user, such as a loader's generator."""
    stacks: List[List[Frame]] = []
    for thread, frame in list(sys._current_frames().items())[:_MOST_THREADS]:
        frames = frames_of(frame) if thread != except_thread else []
        if any(map(is_users, frames)) and len(stacks) < _MOST_OTHERS:
            stacks.append(frames)
    return stacks


def is_users(frame: Frame) -> bool:
    """Return whether the code is the user's: in a file that is not of a package, Python or the recorder.

    Python's prefix does not help: users' programs are below ``/usr`` as well.
    """
    path = frame[0].replace("\\", "/")
    return path.endswith(".py") and not any(part in path for part in _NOT_THE_USERS)


class StackFile:
    """A file of stacks, made when the first ones are written and bounded in size.

    Without a path nothing is written.
    """

    def __init__(self, path: Optional[Path]) -> None:
        self.path = path
        self._size = 0

    def write(self, title: str) -> None:
        """Append the stacks of all threads; errors are ignored, as the log has the main stack."""
        if self.path is None:
            return
        try:
            text = _stacks(title).encode("utf-8", "replace")[: _MOST_BYTES - self._size]
            if text:
                flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND
                descriptor = os.open(str(self.path), flags, 0o644)
                try:
                    self._size += os.write(descriptor, text)
                finally:
                    os.close(descriptor)
        except OSError:
            self._size = _MOST_BYTES


def stack_file_of(log: Optional[Path]) -> StackFile:
    """Return the file of stacks next to a log; without a path if the log has no file."""
    if log is None:
        return StackFile(None)
    return StackFile(log.with_name(log.name[: -len(LOG_SUFFIX)] + SUFFIX))


def _stacks(title: str) -> str:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    names = _thread_names()
    lines = ["# %s, process %d: %s" % (now, os.getpid(), title)]
    for thread, frame in list(sys._current_frames().items())[:_MOST_THREADS]:
        lines += ["", "thread %s (%d), innermost call first:" % (names.get(thread, "?"), thread)]
        lines += ["  %s:%d in %s" % location for location in frames_of(frame)]
    return "\n".join(lines) + "\n\n"


def _thread_names() -> "dict[int, str]":
    """Return the names of threads without ``threading``'s lock, which a hung thread could hold."""
    active = getattr(threading, "_active", {})
    return {number: str(thread.name) for number, thread in list(active.items())}
