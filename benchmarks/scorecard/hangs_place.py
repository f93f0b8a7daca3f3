"""Where a training of the hangs chapter hangs, is killed, stops or takes long; standard library only."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from hangs_plan import CLEAN, moment_path, pid_path, read_case
from injection import write_at_once

#: How long healthy runs pause.
SECONDS = {"validation": 20.0, "evaluation": 20.0, "checkpoint": 15.0, "first step": 15.0}
# How many parts an evaluation has, each with a collective.
_PARTS = 200
# A step's compute, most of which waits as for a device: ranks share cores.
_DEVICE_SECONDS = 0.008
# Steps of a healthy run after its pause, and of one without a pause.
_STEPS_AFTER = 600
_PLAIN_STEPS = 1500

_SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


class Place:
    """One rank's part of a case.

    Args:
        folder: the run's folder, with its case.
        rank: this process's rank.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        self.case = read_case(folder)
        self.log_dir = folder / "logs"
        self._folder = folder
        self._rank = rank
        #: Calls a collective that no step has.
        self.collective: Callable[[], object] | None = None
        self._passes: dict[str, itertools.count[int]] = defaultdict(itertools.count)
        write_at_once(pid_path(folder, rank), os.getpid())

    @property
    def steps(self) -> int:
        """The number of steps, if nothing ends the training earlier."""
        return _PLAIN_STEPS if self.case.what == "plain" else self.case.step + _STEPS_AFTER

    def here(self, place: str) -> None:
        """The training passes a place of ``STAGES``, once per step."""
        step = next(self._passes[place])
        if place == "loader" and self._rank == 0 and step == self._noted_step:
            self._note()
        if step != self.case.step or self._rank != self.case.rank:
            return
        if place == "loader" and self.case.what == "power":
            # Whoever reads this takes the host's power.
            self._note()
        if place == self.case.what:
            self._note()
            self._hang()
        if place == "loader" and self.case.what in _SIGNALS:
            threading.Thread(target=self._signal_soon, daemon=True).start()

    @property
    def _noted_step(self) -> int | None:
        """The step at which a healthy run that pauses nowhere is as far as others at their moment."""
        return self.case.step if self.case.what in ("pause", "plain") else None

    def _hang(self) -> None:
        if self.case.what == "collective":
            assert self.collective is not None
            self.collective()
        threading.Event().wait()

    def evaluate(self) -> None:
        """Take long, with many collectives of all ranks."""
        if self._rank == 0:
            self._note()
        assert self.collective is not None
        for part in range(_PARTS):
            # One rank has more to do than the others, which wait for it.
            slower = 1.5 if self._rank == part * 4 // _PARTS % self.case.ranks else 0.5
            time.sleep(slower * SECONDS["evaluation"] / _PARTS)
            self.collective()

    def compute(self) -> None:
        """Take as long as a step's compute."""
        time.sleep(_DEVICE_SECONDS)

    def pauses(self, what: str, step: int | None = None) -> bool:
        """Return whether the training pauses for this now; None if the step is of no matter."""
        return what == self.case.what and step in (None, self.case.step)

    def pause(self) -> None:
        """Take as long as this case's validation, checkpoint or tracing."""
        assert self.case.what in CLEAN
        if self._rank == 0:
            self._note()
        time.sleep(SECONDS[self.case.what])

    def _signal_soon(self) -> None:
        time.sleep(self.case.delay_ms / 1e3)
        self._note()
        os.kill(os.getpid(), _SIGNALS[self.case.what])

    def _note(self) -> None:
        write_at_once(moment_path(self._folder), time.time())
