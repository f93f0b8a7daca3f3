"""Hang, kill and stop ranks of real trainings; how the hang is found is scored.

What happens, to which rank and when is random, from a seed. While a job hangs its logs are read twice a
second.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import hangs_scores
from chapter import CaseChapter, Score, at_least
from hangs_plan import CLEAN, FAULTS, FRAMEWORKS, Case, moment_path, pid_path, plan, write_case
from hangs_scores import Look, right, score
from lab import Lab, why_impossible
from launching import (
    HERE,
    ROOT,
    SETTINGS,
    horovodrun,
    horovodrun_on,
    require_training_environment,
    settings,
    torchrun,
    torchrun_on,
)

from stallscope.analysis.stopped.stopped import find_stopped
from stallscope.errors import StallscopeError
from stallscope.parsers import read

_LOOK_SECONDS = 0.5
# From the start of the launch to the fault.
_START_SECONDS = 120.0
# From the fault on.
_PATIENCE_SECONDS = 40.0
# A complete report may still change for so long.
_SETTLE_SECONDS = 5.0
# The logs of a job that ends by itself are read for so long afterwards.
_AFTER_END_SECONDS = 5.0
# All ranks of a healthy run are suspended for so long, as by a debugger.
_PAUSE_SECONDS = 20.0
# A healthy run is ended after so long.
_CLEAN_SECONDS = 120.0

# -- one run -------------------------------------------------------------------------------------


class Job:
    """A launch of a case, on this machine or on hosts of a lab."""

    def __init__(self, out: Path, case: Case) -> None:
        self.folder = out / case.name
        self._case = case
        # An interrupted run may have left partial data.
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        write_case(self.folder, case)
        environment = {**settings(), "PYTHONPATH": str(ROOT / "src")}
        self._lab: Lab | None = None
        self._stack = contextlib.ExitStack()
        if case.hosts > 1:
            passed = {name: environment[name] for name in (*SETTINGS, "PATH", "PYTHONPATH")}
            # Not in the case's folder, where logs are searched for.
            place = self._stack.enter_context(tempfile.TemporaryDirectory())
            self._lab = self._stack.enter_context(Lab(Path(place) / "lab", case.hosts, passed))
        with (self.folder / "printed.txt").open("wb") as printed:
            self._processes = [
                subprocess.Popen(
                    command,
                    env=environment,
                    stdout=printed,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
                for command in self._commands()
            ]

    def _commands(self) -> list[list[str]]:
        """Return the launch's command lines."""
        ranks, ddp = self._case.ranks, self._case.framework == "ddp"
        kind = "torch" if ddp else self._case.framework
        program = [str(HERE / f"train_hangs_{kind}.py"), str(self.folder)]
        if self._lab is None:
            return [[*(torchrun(ranks) if ddp else horovodrun(ranks)), *program]]
        names = [host.name for host in self._lab.hosts]
        if not ddp:
            return [self._lab.ssh(names[0], [*horovodrun_on(names), *program])]
        return [
            self._lab.ssh(name, [*torchrun_on(names, rank), *program])
            for rank, name in enumerate(names)
        ]

    @property
    def status(self) -> int | None:
        """Return the launcher's exit status; None while it runs."""
        statuses = [process.poll() for process in self._processes]
        known = [status for status in statuses if status is not None]
        return max(known, key=abs) if len(known) == len(statuses) else None

    @property
    def moment(self) -> float | None:
        """Return when the fault happened, in seconds of wall time; None before."""
        return _content(moment_path(self.folder))

    def signal_ranks(self, number: signal.Signals) -> None:
        for rank in range(self._case.ranks):
            pid = _content(pid_path(self.folder, rank))
            if pid is None:
                continue
            if self._lab is not None:
                # Ranks know their ids on their own hosts.
                pid = self._lab.hosts[rank].pids(os.fsencode(self.folder)).get(pid)
            with contextlib.suppress(ProcessLookupError, TypeError):
                os.kill(pid, number)

    def cut_power(self) -> None:
        """Cut the power of the faulty rank's host."""
        assert self._lab is not None
        assert self._case.rank is not None
        self._lab.hosts[self._case.rank].lose_power()

    def look(self) -> Look:
        """Read the logs and the launcher's output once."""
        try:
            stopped = find_stopped(read(str(self.folder))[0])
        except StallscopeError:
            # No rank has started its log.
            stopped = None
        return Look.of(time.time(), stopped)

    def end(self) -> None:
        """End the launcher and all ranks, also those that are stopped."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        self._stack.close()
        # horovodrun starts ranks in sessions of their own; their last argument is the folder.
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if path.read_bytes().endswith(b"\0" + os.fsencode(self.folder) + b"\0"):
                    os.kill(int(path.parent.name), signal.SIGKILL)
        for process in self._processes:
            process.wait()


def _content(path: Path) -> Any:
    return json.loads(path.read_text()) if path.exists() else None


def looks(job: Job, case: Case) -> list[Look]:
    """Look at a job twice a second, until the report no longer changes."""
    taken: list[Look] = []
    start = time.monotonic()
    complete: float | None = None
    ended: float | None = None
    power_is_cut = False
    while True:
        taken.append(job.look())
        now, moment = time.monotonic(), job.moment
        ended = now if ended is None and job.status is not None else ended
        complete = now if complete is None and taken[-1].complete else complete
        if moment is not None and case.what == "power" and not power_is_cut:
            power_is_cut = True
            job.cut_power()
        if moment is None:
            done = ended is not None or now - start > _START_SECONDS
        elif case.clean:
            done = ended is not None or time.time() - moment > _CLEAN_SECONDS
            _pause_all(job, case, time.time() - moment)
        else:
            done = (
                time.time() - moment > _PATIENCE_SECONDS
                or (complete is not None and now - complete > _SETTLE_SECONDS)
                or (ended is not None and now - ended > _AFTER_END_SECONDS)
            )
        if done:
            return taken
        time.sleep(_LOOK_SECONDS)


def _pause_all(job: Job, case: Case, since: float) -> None:
    """Suspend all ranks at once, and resume them later."""
    if case.what == "pause" and job.status is None:
        job.signal_ranks(signal.SIGSTOP if since < _PAUSE_SECONDS else signal.SIGCONT)


# -- the chapter ---------------------------------------------------------------------------------


class Hangs(CaseChapter[Case]):
    name = "hangs"
    about = "Hang, kill and stop ranks of real trainings, and score how the hang is found."
    section = hangs_scores.SECTION
    frameworks = FRAMEWORKS
    kinds = (*FAULTS, *CLEAN)
    usual_runs = 102
    run_seconds = 25.0
    # A hang is found while the job hangs.
    scored_again = False

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("--at-once", type=at_least(1), default=1, help="runs at a time")

    def planned(self, options: argparse.Namespace) -> list[Case]:
        cases = plan(options.framework, options.runs, options.seed)
        reason = why_impossible()
        if reason is None:
            return cases
        print(f"runs on several hosts are left out: {reason}")
        return [case for case in cases if case.hosts == 1]

    def at_once(self, options: argparse.Namespace) -> int:
        return int(options.at_once)

    def pool(self, options: argparse.Namespace) -> Executor:
        # SIGTERM waits for running jobs, and ends their ranks.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        return ThreadPoolExecutor(options.at_once)

    def train(self, out: Path, work: Case, options: argparse.Namespace) -> list[Score]:
        """Train one case and score it, unless it ended before its fault."""
        require_training_environment()
        job = Job(out, work)
        try:
            seen, moment, status = looks(job, work), job.moment, job.status
            if work.clean and status:
                moment = None
        finally:
            job.end()
        return [] if moment is None else [score(work, seen, moment, status is not None)]

    def answer_of(self, score: Score) -> str:
        if score["what"] in CLEAN:
            return score["alarm"] or "no alarm"
        verdict = "right" if right(score) else "WRONG"
        seen = f"seen after {score['seen_s']} s: {score['evidence']}"
        return f"{verdict}; rank {score['rank']}; {seen}"
