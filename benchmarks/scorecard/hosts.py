"""Slow down one host of real trainings; how the analysis finds and explains it is scored.

Every rank has a host of the lab. The fault, its host and its size are random, from a seed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hosts_scores
from chapter import SCORES, CaseChapter, Score, read_scores
from hosts_plan import (
    AHEAD_SECONDS,
    CLEAN,
    CLOCK,
    FAULTS,
    FRAMEWORKS,
    Case,
    clock_path,
    data_path,
    log_dir,
    plan,
    write_case,
)
from hosts_scores import clock_errors_ms, host_right, score
from lab import Clock, Lab, why_impossible
from launching import (
    HERE,
    horovodrun_on,
    require_training_environment,
    settings_on_hosts,
    torchrun_on,
)

from stallscope.analysis import analyse
from stallscope.analysis.steps.alignment import align
from stallscope.errors import StallscopeError
from stallscope.parsers import read

# The size of a loader's file, which does not fit into limited memory.
_DATA_BYTES = 256 * 2**20
# The memory of a training and its launcher, without files.
_OWN_MB = {"torch": 290.0, "ddp": 420.0}
_PATIENCE_SECONDS = 240.0


@contextlib.contextmanager
def hosts_of(case: Case) -> Iterator[Lab]:
    """Start the case's hosts, with its fault."""
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory())
        passed, clocks = settings_on_hosts(), _clocks(case)
        lab = stack.enter_context(Lab(Path(place) / "lab", case.hosts, passed, clocks))
        # Creates each host's control groups, which show the pressure.
        for host in lab.hosts:
            _ = host.limits
        if case.rank is not None:
            slow = lab.hosts[case.rank]
            if case.what == "throttled":
                slow.limits.limit_cores(case.size)
            elif case.what == "disk":
                slow.limits.limit_reading(case.size)
            elif case.what == "memory":
                slow.limits.limit_memory(_OWN_MB[case.framework] + case.size)
            elif case.what == "link":
                lab.limit_link(slow.name, case.size)
            elif case.what == "neighbour":
                for _ in range(int(case.size)):
                    busy = ["taskset", "-c", str(case.rank), "sh", "-c", "while :; do :; done"]
                    # The kernel shares a core among sessions: each gets as much as the rank.
                    process = subprocess.Popen(slow.words(busy), start_new_session=True)
                    stack.callback(process.kill)
        yield lab


def _clocks(case: Case) -> dict[str, Clock]:
    """Return the host whose clocks are wrong, if there is one."""
    if case.what != CLOCK or case.rank is None:
        return {}
    clock = Clock(case.rank * 86_400, AHEAD_SECONDS, case.size * 1e-6)
    return {f"h{case.rank + 1}": clock}


def train(case: Case, folder: Path) -> int:
    """Train a case; return the launcher's exit status."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_case(folder, case)
    for rank in range(case.hosts):
        _write_data(data_path(folder, rank))
    program = [str(HERE / "train_hosts_torch.py"), str(folder)]
    with hosts_of(case) as lab, (folder / "printed.txt").open("wb") as printed:
        names = [host.name for host in lab.hosts]
        if case.framework == "ddp":
            commands = [
                lab.ssh(name, _pinned(case, [*torchrun_on(names, rank), *program], rank))
                for rank, name in enumerate(names)
            ]
        else:
            launcher = horovodrun_on(names)
            at = launcher.index("python")
            inner = _pinned(case, [*launcher[at:], *program], "$HOROVOD_RANK")
            commands = [lab.ssh(names[0], [*launcher[:at], *inner])]
        processes = [
            subprocess.Popen(command, stdout=printed, stderr=subprocess.STDOUT)
            for command in commands
        ]
        try:
            statuses = [process.wait(_PATIENCE_SECONDS) for process in processes]
        except subprocess.TimeoutExpired:
            statuses = [1]
        finally:
            for process in processes:
                process.kill()
    for rank in range(case.hosts):
        data_path(folder, rank).unlink()
    return max(statuses, key=abs)


def _write_data(path: Path) -> None:
    """Write a loader's file and drop it from the page cache.

    Cached pages count as memory of the cgroup that reads them first: that is the rank.
    """
    with path.open("wb") as file:
        file.write(os.urandom(_DATA_BYTES))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _pinned(case: Case, command: list[str], core: object) -> list[str]:
    """Pin each rank to a core if a neighbour takes a part of one."""
    if case.what != "neighbour":
        return command
    line = f"exec taskset -c {core} {shlex.join(command)}"
    return ["sh", "-c", shlex.quote(line)]


def score_logs(case: Case, folder: Path) -> list[Score]:
    """Score a training's logs; return nothing if they cannot be read."""
    try:
        (run,) = read(str(log_dir(folder)))
        paths = [clock_path(folder, rank) for rank in range(case.hosts)]
        clocks = [json.loads(path.read_text()) for path in paths if path.exists()]
        errors = clock_errors_ms(align(run, 0), clocks) if clocks else None
        return [score(case, analyse(run), errors)]
    except (StallscopeError, ValueError) as error:
        print(error)
        return []


# -- the chapter ---------------------------------------------------------------------------------


class Hosts(CaseChapter[Case]):
    name = "hosts"
    about = "Slow down one host of real trainings, and score how that is found and explained."
    section = hosts_scores.SECTION
    frameworks = FRAMEWORKS
    kinds = (*FAULTS, CLOCK, CLEAN)
    usual_runs = 100
    run_seconds = 40.0

    def planned(self, options: argparse.Namespace) -> list[Case]:
        return plan(options.framework, options.runs, options.seed)

    def missing(self, out: Path, options: argparse.Namespace) -> list[Case]:
        reason = why_impossible()
        if reason is not None:
            raise SystemExit(f"no hosts to train on: {reason}")
        return super().missing(out, options)

    def train(self, out: Path, work: Case, options: argparse.Namespace) -> list[Score]:
        """Train one case and score it, unless that fails."""
        require_training_environment()
        folder = out / work.name
        return [] if train(work, folder) else score_logs(work, folder)

    def answer_of(self, score: Score) -> str:
        verdict = "right" if host_right(score) else "WRONG"
        return f"{verdict}; rank {score['rank']}; {', '.join(score['why'])}; {score['evidence']}"

    def score_trained(self, out: Path, options: argparse.Namespace) -> Iterator[Score]:
        done = {score["name"] for score in read_scores(out / SCORES)}
        for case in self.planned(options):
            if case.name in done:
                yield from score_logs(case, out / case.name)
