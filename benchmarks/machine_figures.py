"""Measure the cost of reading the kernel's figures in a process with many threads and connections.

The recorder's thread reads once a second; here it reads without pauses, and only CPU time counts. The
connections are local and idle, but cost as much to read as others. Looks at the training thread are
measured while another thread is busy, without the start of the process that looks.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import ExitStack

from figures import Figure, at_most

from stallscope.collector.recorder.lock_waits import LockWaits, TrainingThread
from stallscope.collector.recorder.machine.monitor import Monitor
from stallscope.collector.recorder.step_log.line_format import RowFormatter

SECOND = 1_000_000_000
SECONDS = 3_600
#: Threads of a process that trains, and its connections in a job of some ten ranks and of many.
THREADS = 64
CONNECTIONS = (16, 512)
# One row of the fact about connections, for each of the eight peers that it has at most.
ROW = {
    "busy_ms": 1_000_000,
    "least_round_trip_us": 100,
    "limited_ms": 1_000,
    "local": "10.100.100.100",
    "peer": "10.100.100.101",
    "rate_kb_s": [1_000_000, 1_100_000, 1_200_000],
    "retransmitted": 1_000,
    "round_trip_us": [1_000, 2_000, 3_000],
    "sent_kb": 1_000_000_000,
}
PEERS, FACTS_EVERY_SECONDS = 8, 30
LOOK_SECONDS = 20.0
# The kernel's number of the clock of a process's CPU time, from linux/posix-timers.h.
PROCESS_CLOCK = 2


def figures(quick: bool) -> list[Figure]:
    seconds = SECONDS // 20 if quick else SECONDS
    figures = []
    with ExitStack() as threads:
        stop = threading.Event()
        threads.callback(stop.set)
        for _ in range(THREADS):
            threading.Thread(target=stop.wait, daemon=True).start()
        for connections in CONNECTIONS:
            share, line_bytes = cost(connections, seconds)
            name = f"machine figures, {THREADS} threads, {connections} connections: share of a core"
            figures.append(at_most(name, share, "%", 0.2))
        name = f"looks for waits for Python's lock, {THREADS} threads: share of a core"
        figures.append(at_most(name, cost_of_looks(LOOK_SECONDS / (4 if quick else 1)), "%", 1.0))
    facts = len(json.dumps({"connections": [ROW] * PEERS}, separators=(",", ":")))
    name = "machine figures: bytes per second and rank, with eight peers"
    return [*figures, at_most(name, line_bytes + facts / FACTS_EVERY_SECONDS, "B", 200)]


def cost_of_looks(seconds: float) -> float:
    """Return the share of a core in percent that looks take while one thread is busy with Python."""
    ended = threading.Event()
    used: list[int] = []

    def work() -> None:
        while not ended.is_set():
            sum(range(1_000))
        used.append(time.thread_time_ns())

    waits = LockWaits(
        TrainingThread(threading.get_ident(), threading.get_native_id()), lambda _: None, lambda: 0
    )
    busy = threading.Thread(target=work)
    before = time.process_time_ns(), time.thread_time_ns()
    waits.start()
    busy.start()
    # The process that looks must be ready.
    while waits._looker is None:
        time.sleep(0.01)
    looker = ~waits._looker._process.pid << 3 | PROCESS_CLOCK
    time.sleep(1.0)
    since = time.monotonic_ns(), time.clock_gettime_ns(looker)
    time.sleep(seconds)
    looked_ns = time.clock_gettime_ns(looker) - since[1]
    share = looked_ns / (time.monotonic_ns() - since[0])
    ended.set()
    busy.join()
    others = time.process_time_ns() - before[0] - used[0] - (time.thread_time_ns() - before[1])
    waits.stop()
    return 100.0 * (share + others / (seconds * SECOND))


def cost(connections: int, seconds: int) -> tuple[float, float]:
    """Return the share of a core in percent, and the mean bytes of a line."""
    with ExitStack() as sockets:
        server = sockets.enter_context(socket.create_server(("127.0.0.1", 0)))
        # Each has two ends in this process.
        for _ in range(connections // 2):
            sockets.enter_context(socket.create_connection(server.getsockname()))
            sockets.enter_context(server.accept()[0])
        monitor = Monitor(local_rank=0)
        formatter = RowFormatter(0, 0)
        begun, length = time.thread_time_ns(), 0
        for second in range(seconds):
            row = monitor.row(second * SECOND)
            monitor.connections(second * SECOND)
            assert row is not None
            length += len(formatter.machine(row))
        used = time.thread_time_ns() - begun
    return 100.0 * used / (seconds * SECOND), length / seconds
