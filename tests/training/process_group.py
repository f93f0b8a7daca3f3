"""End the process group of a program with PyTorch."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import torch


def end_process_group() -> None:
    """Destroy the process group, if there is one, when all other threads rest."""
    if torch.distributed.is_initialized():
        wait_for_threads()
        torch.distributed.destroy_process_group()


def wait_for_threads() -> None:
    """Wait until all other threads rest.

    After a reduction has ended, Gloo's threads still release its tensors. A process group that is
    destroyed meanwhile may never end, and an interpreter that ends meanwhile aborts the process
    (PyTorch's issue 190489).
    """
    while _others_run():
        time.sleep(0.001)


def _others_run() -> bool:
    """Whether another thread runs or waits for a core."""
    thread_id = str(threading.get_native_id())
    return any(_runs(path) for path in Path("/proc/self/task").iterdir() if path.name != thread_id)


def _runs(thread: Path) -> bool:
    try:
        stat = (thread / "stat").read_text()
    except OSError:
        return False  # it has ended
    # The state follows the name, which is in parentheses: S is asleep.
    return ") S " not in stat
