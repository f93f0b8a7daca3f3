"""Find the run, measure, and store the result."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from stallscope.errors import NotFoundError, StallscopeError, UnreadableError

from ..recorder.step_log.line_format import SUFFIX, header_facts
from ..run_names import NamedRun, RunAddress, index_of
from .measuring import measure
from .ranks import Ranks
from .result_file import check_writable, document, save
from .sizes import Gradients, gradients_of

# Their names in step logs.
_FRAMEWORKS = {"pytorch": "torch", "tensorflow": "tensorflow", "mxnet": "mxnet"}

_LOG_NAME = re.compile(r"rank-(\d+)\.(\d+)\.(\d+)%s" % re.escape(SUFFIX))
# Facts stand near the start of a log; a first line has some kilobytes.
_MOST_BYTES = 1 << 20


class Check(NamedTuple):
    """The result, on the first rank."""

    path: Path
    #: The run with the measured gradients, and its folder, in words; None without a run.
    run: Optional[str]
    content: Dict[str, Any]
    #: Sentences.
    warnings: List[str]


class RefusedError(Exception):
    """The first rank stopped the check; it alone prints the reason."""


class _Plan(NamedTuple):
    """The first rank's plan of the measurement."""

    folder: Path
    run: Optional[RecordedRun]
    gradients: Optional[Gradients]
    bucket_bytes: Optional[int]
    named: Optional[str] = None


def check(
    ranks: Ranks,
    logs: Optional[str],
    out: Optional[str],
    seconds: float,
    env: Mapping[str, str] = os.environ,
) -> Optional[Check]:
    """Measure on all ranks.

    Args:
        ranks: all ranks.
        logs: ``LOGS`` or ``LOGS#RUN_ID`` on the first rank's host; None for the newest run in the
            current folder or two levels below. Without one, or with ``out``, no run is used.
        out: the folder for the result; None for the logs' folder, or the current one without logs.
        seconds: the time for all measurements.
        env: the variables of this process.

    Returns:
        The result on the first rank, None on the others.

    Raises:
        StallscopeError: on the first rank, if the logs cannot be read or the result cannot be written.
        RefusedError: on the others then.
    """
    plan = _shared_plan(ranks, logs, out)
    hosts = ranks.hosts()
    began, begin = time.time_ns(), time.monotonic()
    measured = measure(ranks, hosts, plan.gradients, plan.bucket_bytes, seconds)
    took = time.monotonic() - begin
    # No rank leaves while another still has something to share with it.
    ranks.barrier()
    if ranks.rank:
        return None
    if plan.run is not None and plan.gradients is None:
        measured.left_out.append("the run's gradients: its logs do not say how large they are")
    run_id = None if plan.run is None else plan.run.run_id
    content = document(ranks, hosts, run_id, plan.gradients, measured, began, took, env)
    warnings = [] if plan.run is None else differences(plan.run, ranks, hosts)
    return Check(save(content, plan.folder), plan.named, content, warnings)


def _shared_plan(ranks: Ranks, logs: Optional[str], out: Optional[str]) -> _Plan:
    """Return the first rank's plan on all ranks: only the first one needs to see the logs."""
    plan, failure = None, None
    if ranks.rank == 0:
        try:
            plan = _plan(logs, out)
        except StallscopeError as error:
            failure = error
    shared = ranks.broadcast(None if plan is None else [plan.gradients, plan.bucket_bytes])
    if failure is not None:
        raise failure
    if shared is None:
        raise RefusedError
    if plan is not None:
        return plan
    gradients, bucket_bytes = shared
    return _Plan(Path(), None, None if gradients is None else Gradients(*gradients), bucket_bytes)


def _plan(logs: Optional[str], out: Optional[str]) -> _Plan:
    if logs is None and out is None:
        newest = newest_logs(Path())
        logs = None if newest is None else str(newest)
    run = None if logs is None else find_run(logs)
    default_folder = Path() if logs is None else folder_of(logs)
    folder = (default_folder if out is None else Path(out)).absolute()
    check_writable(folder)
    facts = {} if run is None else run.facts
    bucket = facts.get("bucket_bytes")
    if not isinstance(bucket, int) or bucket <= 0:
        bucket = None
    named = None if run is None else "%s in %s" % (run.run_id, default_folder.absolute())
    return _Plan(folder, run, gradients_of(facts), bucket, named)


def differences(run: RecordedRun, ranks: Ranks, hosts: Sequence[str]) -> List[str]:
    """Describe in sentences how these ranks differ from those of the run."""
    sentences = []
    recorded = run.facts.get("size")
    if isinstance(recorded, int) and recorded != ranks.size:
        sentences.append(
            "this is another network than the run's: %d ranks, and the run had %d"
            % (ranks.size, recorded)
        )
    missing = sorted(set(run.hosts) - set(hosts))
    if missing:
        sentences.append(
            "this is another network than the run's: it also ran on %s" % ", ".join(missing)
        )
    framework = _FRAMEWORKS.get(str(run.facts.get("framework")))
    if framework not in (None, ranks.framework):
        sentences.append(
            "the run trained with %s, and this was measured with %s: pass --framework %s if it is "
            "installed for Horovod" % (framework, ranks.framework, framework)
        )
    return sentences


# -- Find the run to measure, and read its facts from its step logs -------------------------------


class RecordedRun(NamedTuple):
    run_id: str
    facts: Dict[str, Any]
    #: The hosts of those logs that are here.
    hosts: List[str]


class _Log(NamedTuple):
    path: Path
    rank: int
    #: Generation and part.
    order: Tuple[int, int]
    header: Dict[str, Any]

    @property
    def began_wall_ns(self) -> int:
        anchor = self.header.get("anchor")
        began = anchor.get("wall_ns") if isinstance(anchor, dict) else None
        return began if isinstance(began, int) else 0


def folder_of(place: str) -> Path:
    """Return the folder that a place ``LOGS`` or ``LOGS#RUN_ID`` names.

    Raises:
        NotFoundError: if there is no such folder.
    """
    path = Path(RunAddress.parse(place).place)
    folder = path.parent if path.is_file() else path
    if not folder.is_dir():
        raise NotFoundError(
            "there is no folder %s on the first rank's host: give the folder that StepLogger wrote to"
            % folder
        )
    return folder


def newest_logs(top: Path) -> Optional[Path]:
    """Return the folder with the newest run, in a folder or two levels below; None if there is none."""
    starts = []
    for folder in (top, *top.glob("*"), *top.glob("*/*")):
        hidden = any(part.startswith(".") for part in folder.relative_to(top).parts)
        # A folder that this user cannot read has no logs of this user.
        with contextlib.suppress(OSError):
            if not hidden and folder.is_dir():
                starts += [(log.began_wall_ns, folder) for log in _logs_in(folder)]
    return max(starts)[1] if starts else None


def find_run(place: str) -> RecordedRun:
    """Return the newest run of ``LOGS``, or the one that ``LOGS#RUN_ID`` names.

    Raises:
        NotFoundError: if there are no step logs, or none of this run.
        UnreadableError: if the folder cannot be read.
    """
    folder, wanted = folder_of(place), RunAddress.parse(place).run
    try:
        logs = list(_logs_in(folder))
    except OSError as error:
        raise UnreadableError("cannot read %s: %s" % (folder, error.strerror)) from None
    if not logs:
        raise NotFoundError(
            "there are no step logs in %s: give the folder that StepLogger wrote to, or none at all to "
            "measure the network alone" % folder
        )
    newest = max(logs, key=lambda log: log.began_wall_ns)
    run_id = newest.header["run_id"]
    if wanted:
        named = {str(log.header["run_id"]): log.header for log in logs}
        runs = [
            NamedRun(logged_id, str(header.get("run_name") or logged_id))
            for logged_id, header in named.items()
        ]
        run_id = runs[index_of(wanted, runs, str(folder))].id
    return _described(run_id, [log for log in logs if log.header["run_id"] == run_id])


def _logs_in(folder: Path) -> Iterator[_Log]:
    for path in sorted(folder.iterdir()):
        match = _LOG_NAME.fullmatch(path.name)
        if match is None:
            continue
        rank, generation, part = map(int, match.groups())
        header = _header(path)
        if header is not None:
            yield _Log(path, rank, (generation, part), header)


def _header(path: Path) -> Optional[Dict[str, Any]]:
    """Return the facts in a log's first line; None where there is none yet, or it is not ours."""
    try:
        with path.open("rb") as file:
            facts = header_facts(file.readline(_MOST_BYTES))
    except (OSError, ValueError):
        return None
    return facts if isinstance(facts.get("run_id"), str) else None


def _described(run_id: str, logs: List[_Log]) -> RecordedRun:
    """Describe a run by its first rank's newest log with the size of the gradients."""
    first = min(log.rank for log in logs)
    of_first = sorted((log for log in logs if log.rank == first), key=lambda log: log.order)
    newest = of_first[-1]
    facts = _facts(newest)
    for log in reversed(of_first):
        log_facts = _facts(log)
        if log_facts.get("gradient_bytes"):
            newest, facts = log, log_facts
            break
    generation = newest.order[0]
    hosts = (log.header.get("host") for log in logs if log.order[0] == generation)
    return RecordedRun(run_id, facts, sorted({host for host in hosts if isinstance(host, str)}))


def _facts(log: _Log) -> Dict[str, Any]:
    """Return the facts at a log's start; later ones replace earlier ones."""
    facts = dict(log.header)
    try:
        with log.path.open("rb") as file:
            head = file.read(_MOST_BYTES)
    except OSError:
        return facts
    # The last line may be incomplete.
    for line in head.split(b"\n")[1:-1]:
        if line.startswith(b"#facts "):
            with contextlib.suppress(ValueError):
                late = json.loads(line.partition(b" ")[2])
                facts.update(late if isinstance(late, dict) else {})
    return facts
