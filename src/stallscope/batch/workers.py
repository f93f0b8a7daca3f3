"""Run a batch's work in parallel processes, and recover from a run that kills one."""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures  # imports its pool of processes when that is first used
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import active_children, get_context, parent_process
from typing import Any

import pyarrow as pa

from stallscope.arrays.memory import share_memory
from stallscope.errors import StallscopeError, TerminatedError

from .units import Settings
from .worker import RunReader, Worker

# Each process has one run in work and one waiting.
_WAITING_PER_PROCESS = 2
_TICK_SECONDS = 0.25
_HELD = (signal.SIGINT, signal.SIGTERM)
_ENDED = "the process that read it was killed, maybe for lack of memory; try --jobs 1"

Result = tuple[int, "Any | Failed"]


@dataclass(frozen=True)
class Failed:
    """A run that failed, and the sentence with the cause."""

    message: str


class Workers:
    """A pool of processes, used as a context manager; one job runs in this process.

    Ctrl-C lets running tasks finish; a second one, or SIGTERM, does not. The processes end with this
    one, whatever ends it.
    """

    def __init__(self, settings: Settings, jobs: int, reader: RunReader | None = None) -> None:
        self._settings = settings
        self._jobs = jobs
        self._in_process = Worker(settings, reader) if jobs == 1 else None
        self._pool: futures.ProcessPoolExecutor | None = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, error: type[BaseException] | None, *_rest: object) -> None:
        if error is not None and issubclass(error, KeyboardInterrupt):
            # Tasks that still run were interrupted twice. Without their parent they would wait forever.
            with _interrupts_held():
                for process in active_children():
                    process.kill()
                self._close()
        else:
            self._close()

    def each(
        self,
        method: str,
        tasks: Sequence[tuple[Any, ...]],
        watch: Callable[[int], None] = lambda _done: None,
    ) -> Iterator[Result]:
        """Yield the index and the result of every task as it finishes.

        After an interrupt, running tasks finish and are yielded before the interrupt is raised.

        Args:
            method: a method of ``Worker``.
            tasks: its arguments.
            watch: called repeatedly with the number of tasks done.
        """
        if self._in_process is not None:
            for index, task in enumerate(tasks):
                yield index, _result(self._in_process, method, task)
                watch(index + 1)
            return
        for done, result in enumerate(self._parallel(method, tasks, watch), start=1):
            yield result
            watch(done)

    def _parallel(
        self, method: str, tasks: Sequence[tuple[Any, ...]], watch: Callable[[int], None]
    ) -> Iterator[Result]:
        left = deque(range(len(tasks)))
        running: dict[futures.Future[Any], int] = {}
        most_running = self._jobs * _WAITING_PER_PROCESS
        interrupted = False
        while left or running:
            try:
                while left and not interrupted and len(running) < most_running:
                    running[self._submit(method, tasks[left[0]])] = left[0]
                    left.popleft()
                finished, _ = futures.wait(running, _TICK_SECONDS, futures.FIRST_COMPLETED)
                watch(len(tasks) - len(left) - len(running))
            except KeyboardInterrupt as error:
                if interrupted or isinstance(error, TerminatedError):
                    raise
                interrupted = True
                left.clear()
                running = {
                    future: index for future, index in running.items() if not future.cancel()
                }
                continue
            except futures.BrokenExecutor:
                finished = set(running)
            broken = [
                future
                for future in finished
                if isinstance(future.exception(), futures.BrokenExecutor)
            ]
            for future in finished.difference(broken):
                yield running.pop(future), future.result()
            if broken:
                # One of the running tasks killed its process: try each of them separately.
                suspects, running = sorted(running.values()), {}
                self._close()
                yield from (self._run_single(method, tasks[index], index) for index in suspects)
        if interrupted:
            raise KeyboardInterrupt

    def _submit(self, method: str, task: tuple[Any, ...]) -> futures.Future[Any]:
        if self._pool is None:
            # Spawned, not forked: libraries that read logs have threads.
            self._pool = futures.ProcessPoolExecutor(
                self._jobs, get_context("spawn"), _start, (self._settings, self._jobs)
            )
        with _interrupts_held():
            return self._pool.submit(_call, method, task)

    def _run_single(self, method: str, task: tuple[Any, ...], index: int) -> Result:
        try:
            return index, self._submit(method, task).result()
        except futures.BrokenExecutor:
            self._close()
            return index, Failed(_ENDED)

    def _close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C and SIGTERM back until the end of the block.

    Processes that start in it never get Ctrl-C: a terminal sends it to all processes, and one that still
    imports modules would print a traceback.
    """
    arrived: list[int] = []
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
    handlers = {}
    if threading.current_thread() is threading.main_thread():
        # Other threads take these signals as well, and Python's handlers run in this thread for them.
        handlers = {
            number: signal.signal(number, lambda number, _frame: arrived.append(number))
            for number in _HELD
        }
    try:
        yield
    finally:
        for held, handler in handlers.items():
            signal.signal(held, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for number in dict.fromkeys(arrived):
            signal.raise_signal(number)


_worker: Worker | None = None


def _start(settings: Settings, jobs: int) -> None:
    """Set up a process of the pool; it started with signals held back, of which SIGTERM ends it."""
    global _worker
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # There are as many processes as CPU cores, so more threads would only compete.
    pa.set_cpu_count(1)
    share_memory(jobs)
    _worker = Worker(settings)


def _end_with_parent() -> None:
    """End this process once its parent has ended; it would wait for tasks forever."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _call(method: str, task: tuple[Any, ...]) -> Any:
    assert _worker is not None
    return _result(_worker, method, task)


def _result(worker: Worker, method: str, task: tuple[Any, ...]) -> Any:
    """Return the method's result, or its error, so that one run does not stop the others."""
    try:
        return getattr(worker, method)(*task)
    except StallscopeError as error:
        return Failed(str(error))
    except Exception as error:
        if os.environ.get("STALLSCOPE_DEBUG"):
            raise
        return Failed(
            f"a defect of Stallscope: {type(error).__name__}: {error}. "
            "STALLSCOPE_DEBUG=1 shows where; please report it."
        )
