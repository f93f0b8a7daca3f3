"""Hang, kill and stop ranks of real trainings, and score how the hang is found.

    python benchmarks/scorecard/hangs.py [OPTIONS]     train what is not scored yet

What happens, to which rank and when is random, from a seed. While a job hangs its logs are read twice a
second. Scores are lines of OUT/scores.jsonl; a run that is there is not trained again.
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
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from hangs_plan import CLEAN, FAULTS, FRAMEWORKS, Case, moment_path, pid_path, plan, write_case
from hangs_scoring import Look, Score, right, score
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
from options import at_least, words
from score_lines import append_score, read_scores

from stallscope.analysis.stopped.stopped import find_stopped
from stallscope.errors import StallscopeError
from stallscope.parsers import read

SCORES = "scores.jsonl"

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
# A run's time on average, for the estimate.
_RUN_SECONDS = 25.0


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


def run_one(out: Path, case: Case) -> Score | None:
    """Train one case and score it; None if it ended before its fault."""
    job = Job(out, case)
    try:
        seen, moment, status = looks(job, case), job.moment, job.status
        if case.clean and status:
            moment = None
    finally:
        job.end()
    return None if moment is None else score(case, seen, moment, status is not None)


def run_all(out: Path, missing: list[Case], at_once: int) -> None:
    """Train and score cases, so many at a time."""
    pool = ThreadPoolExecutor(at_once)
    runs = {pool.submit(run_one, out, case): case for case in missing}
    try:
        for number, run in enumerate(as_completed(runs), 1):
            case, score = runs[run], run.result()
            if score is not None:
                append_score(out / SCORES, score)
            print(f"{number}/{len(missing)} {case.name}: {_answer(out, case, score)}", flush=True)
    finally:
        pool.shutdown(cancel_futures=True)


def _answer(out: Path, case: Case, score: Score | None) -> str:
    if score is None:
        return f"failed; its output is in {out / case.name / 'printed.txt'}"
    if case.clean:
        return score["alarm"] or "no alarm"
    verdict = "right" if right(score) else "WRONG"
    return f"{verdict}; rank {case.rank}; seen after {score['seen_s']} s: {score['evidence']}"


# -- the command ---------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--framework", type=words(FRAMEWORKS), default=FRAMEWORKS)
    parser.add_argument("--runs", type=at_least(1), default=102, help="runs of all frameworks")
    parser.add_argument(
        "--what",
        type=words((*FAULTS, *CLEAN)),
        default=(*FAULTS, *CLEAN),
        help="train only these of the runs",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-once", type=at_least(1), default=1, help="runs at a time")
    parser.add_argument("--out", type=Path, default=ROOT / ".stallscope" / "hangs")
    parser.add_argument("--estimate", action="store_true", help="only print how long it takes")
    return parser


def main() -> None:
    options = parser().parse_args()
    # SIGTERM waits for running jobs, and ends their ranks.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    out = options.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    done = {score["name"] for score in read_scores(out / SCORES)}
    planned = plan(options.framework, options.runs, options.seed)
    missing = [case for case in planned if case.name not in done and case.what in options.what]
    reason = why_impossible()
    if reason is not None:
        print(f"runs on several hosts are left out: {reason}")
        missing = [case for case in missing if case.hosts == 1]
    minutes = len(missing) * _RUN_SECONDS / options.at_once / 60
    print(f"{len(missing)} runs, about {minutes:.0f} minutes")
    if options.estimate or not missing:
        return
    require_training_environment()
    run_all(out, missing, options.at_once)


if __name__ == "__main__":
    main()
