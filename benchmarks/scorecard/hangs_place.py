"""The faults and pauses of the hangs' trainings; standard library only."""

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
# A step's compute mostly waits, as for a device, because ranks share cores.
_DEVICE_SECONDS = 0.008
# Steps of a healthy run after its pause, and of one without a pause.
_STEPS_AFTER = 600
_PLAIN_STEPS = 1500

_SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


class Place:
    """Makes one rank's part of a case happen.

    Args:
        folder: the run's folder, with its case.
        rank: this process's rank.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        self.case = read_case(folder)
        self.log_dir = folder / "logs"
        self._folder = folder
        self._rank = rank
        #: Calls a collective that is in no step.
        self.collective: Callable[[], object] | None = None
        self._passes: dict[str, itertools.count[int]] = defaultdict(itertools.count)
        write_at_once(pid_path(folder, rank), os.getpid())

    @property
    def steps(self) -> int:
        """Return the number of steps, if nothing ends the training earlier."""
        return _PLAIN_STEPS if self.case.what == "plain" else self.case.step + _STEPS_AFTER

    def here(self, place: str) -> None:
        """Hang or signal this rank if it is due; call this once per step at each place of ``STAGES``."""
        step = next(self._passes[place])
        if place == "loader" and self._rank == 0 and step == self._recorded_step:
            self._record_moment()
        if step != self.case.step or self._rank != self.case.rank:
            return
        if place == "loader" and self.case.what == "power":
            # The scoring then cuts the host's power.
            self._record_moment()
        if place == self.case.what:
            self._record_moment()
            self._hang()
        if place == "loader" and self.case.what in _SIGNALS:
            threading.Thread(target=self._signal_soon, daemon=True).start()

    @property
    def _recorded_step(self) -> int | None:
        """The step at which a healthy run without another pause records the moment."""
        return self.case.step if self.case.what in ("pause", "plain") else None

    def _hang(self) -> None:
        if self.case.what == "collective":
            assert self.collective is not None
            self.collective()
        threading.Event().wait()

    def evaluate(self) -> None:
        """Evaluate for long, with many collectives of all ranks."""
        if self._rank == 0:
            self._record_moment()
        assert self.collective is not None
        for part in range(_PARTS):
            # One rank takes longer than the others, which wait for it.
            slower = 1.5 if self._rank == part * 4 // _PARTS % self.case.ranks else 0.5
            time.sleep(slower * SECONDS["evaluation"] / _PARTS)
            self.collective()

    def compute(self) -> None:
        """Wait as long as a step's compute takes."""
        time.sleep(_DEVICE_SECONDS)

    def pauses(self, what: str, step: int | None = None) -> bool:
        """Return whether the training pauses for this in this step (None: in any step)."""
        return what == self.case.what and step in (None, self.case.step)

    def pause(self) -> None:
        """Wait as long as this case's validation, checkpoint or tracing takes."""
        assert self.case.what in CLEAN
        if self._rank == 0:
            self._record_moment()
        time.sleep(SECONDS[self.case.what])

    def _signal_soon(self) -> None:
        time.sleep(self.case.delay_ms / 1e3)
        self._record_moment()
        os.kill(os.getpid(), _SIGNALS[self.case.what])

    def _record_moment(self) -> None:
        write_at_once(moment_path(self._folder), time.time())
