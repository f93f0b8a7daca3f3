"""Train a case of the slow hosts chapter with PyTorch, on Horovod or DDP; hosts.py starts it.

horovodrun -np 2 python benchmarks/scorecard/train_hosts_torch.py FOLDER
torchrun --nproc-per-node 2 benchmarks/scorecard/train_hosts_torch.py FOLDER
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import platform
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from hosts_plan import STEPS, clock_path, data_path, log_dir, read_case
from torch import Tensor, nn
from train_hangs_torch import ddp, horovod

from stallscope.torch import StepLogger

INPUTS, OUTPUTS = 256, 512
# A batch's part of the file.
READ_BYTES = 131_072
LOOKUPS = 512
# CPU time of a step, and the time that it waits as for a device.
WORK_SECONDS, DEVICE_SECONDS = 0.012, 0.020
# Linux's number of the system call.
CLOCK_GETTIME, MONOTONIC = {"x86_64": 228, "aarch64": 113}, 1


class Disk:
    """Reads batches from a file that no cache holds."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDONLY)
        self._size = path.stat().st_size
        self._at = 0

    def read(self) -> None:
        os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.pread(self._file, READ_BYTES, self._at)
        self._at = (self._at + READ_BYTES) % (self._size - READ_BYTES)


class Mapped:
    """Reads samples of a mapped file; if memory is too small, their pages are read again."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._random = random.Random(1)
        for at in range(0, len(self._pages), mmap.PAGESIZE):
            self._pages[at]
        self._pages.madvise(mmap.MADV_RANDOM)

    def read(self) -> None:
        for _ in range(LOOKUPS):
            self._pages[self._random.randrange(len(self._pages))]


def batches(source: Disk | Mapped) -> Iterator[Tensor]:
    for _ in range(STEPS):
        source.read()
        yield torch.rand(16, INPUTS)


def work() -> None:
    end = time.thread_time() + WORK_SECONDS
    while time.thread_time() < end:
        pass
    time.sleep(DEVICE_SECONDS)


class Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def both_clocks() -> tuple[int, int]:
    """Return this process's monotonic clock and the machine's, in nanoseconds.

    ``faketime`` replaces the functions of the C library, and not the system call.
    """
    timespec = Timespec()
    before = time.monotonic_ns()
    ctypes.CDLL(None).syscall(CLOCK_GETTIME[platform.machine()], MONOTONIC, ctypes.byref(timespec))
    after = time.monotonic_ns()
    return (before + after) // 2, timespec.seconds * 1_000_000_000 + timespec.nanoseconds


def main() -> None:
    folder = Path(sys.argv[1])
    case = read_case(folder)
    rank, distribute, _ = ddp() if case.framework == "ddp" else horovod()
    torch.set_num_threads(1)
    path = data_path(folder, rank)
    source = Mapped(path) if case.what == "memory" else Disk(path)
    model, optimizer = distribute(nn.Linear(INPUTS, OUTPUTS, bias=False))
    clocks = [both_clocks()]
    with StepLogger(log_dir(folder), optimizer=optimizer, model=model, run_name=case.name) as log:
        for inputs in log.watch(batches(source)):
            work()
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()
    clocks.append(both_clocks())
    clock_path(folder, rank).write_text(json.dumps(clocks))


if __name__ == "__main__":
    main()
