"""Find the run to measure, and read its facts from its step logs."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from stallscope.collector.recorder.step_log.format import SUFFIX, header_facts
from stallscope.collector.run_names import NamedRun, RunAddress, index_of
from stallscope.errors import NotFoundError, UnreadableError

_LOG_NAME = re.compile(r"rank-(\d+)\.(\d+)\.(\d+)%s" % re.escape(SUFFIX))
# Facts stand near the start of a log; a first line has some kilobytes.
_MOST_BYTES = 1 << 20


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
