"""Decide which logs belong together: the run's id and the process's generation.

This starts no collective: a rank without the callback would hang the job. The id comes from
``STALLSCOPE_RUN_ID`` or from Ray Train's name of the run. Otherwise the first rank writes ``run.json``
into the log folder and the others read it. Where ranks do not share the folder, the facts contain the
launcher's name of the job, and the parser matches the logs by it. Later sessions of a process continue
its run.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import shutil
import time
import uuid
from pathlib import Path
from typing import Any, Dict, Iterator, NamedTuple, Optional, Tuple

from ..job.world import TORCHRUN_ID, World, rejoins, run_id_of_training
from .line_format import file_name, header_facts

# If the launcher gives the job no name, ranks that start within this time belong to one job.
_SAME_JOB_SECONDS = 600
# How long a rank waits for the first rank's run.json where a file system cannot create it complete.
_READ_ATTEMPTS = 20
_READ_PAUSE_SECONDS = 0.05


class RunIdentity(NamedTuple):
    run_id: str
    generation: int


class _LastSession(NamedTuple):
    """This process's last session in a log folder."""

    identity: RunIdentity
    world: World
    next_step: int
    #: Steps that the framework had counted when the session closed; None if unknown.
    counted: Optional[int]

    @property
    def counted_or_recorded(self) -> int:
        return self.next_step if self.counted is None else self.counted


_last_sessions: Dict[str, _LastSession] = {}


def join_or_continue_run(
    log_dir: Path,
    world: World,
    counted: int,
    launch: Optional[str],
    wall_ns: int,
    shares_folder: bool,
) -> Tuple[RunIdentity, int]:
    """Join the job's run with the first session of this process; later sessions continue it.

    Repeated steps, another rank or another number of ranks start a new generation. All ranks run the
    same program, so they all count alike.

    Args:
        counted: steps that the framework has counted so far.
        shares_folder: whether ranks can meet in the folder; otherwise the parser matches them by their
            launch.

    Returns:
        The run, and the number of the session's first step.
    """
    key, next_step = str(log_dir), counted
    last = _last_sessions.get(key)
    if last is None:
        run_id = run_id_of_training(log_dir)
        if shares_folder:
            elastic = rejoins(os.environ)
            identity = join_run(log_dir, world, run_id, launch, wall_ns, elastic)
        else:
            identity = RunIdentity(run_id or uuid.uuid4().hex[:12], 0)
    elif last.world == world and counted >= last.counted_or_recorded:
        identity = last.identity
        # The framework's count can be too low (an optimizer that it does not know) or too high (an
        # update for a batch that never came): the recorded steps decide.
        next_step += last.next_step - last.counted_or_recorded
    else:
        identity = last.identity._replace(generation=last.identity.generation + 1)
    _last_sessions[key] = _LastSession(identity, world, next_step, None)
    return identity, next_step


def session_closed(log_dir: Path, next_step: int, counted: Optional[int]) -> None:
    """Note where the next session in the folder continues."""
    key = str(log_dir)
    if key in _last_sessions:
        _last_sessions[key] = _last_sessions[key]._replace(next_step=next_step, counted=counted)


def join_run(
    log_dir: Path,
    world: World,
    run_id: Optional[str],
    launch: Optional[str],
    wall_ns: int,
    elastic: bool = False,
) -> RunIdentity:
    """Join the run of this job; the first process of a job creates it.

    In a folder that an earlier job has used, a job writes another file, ``run-1.json`` and so on. That
    is a new run, or a new generation of the run where ``run_id`` is the same. In an elastic job a
    replaced rank rejoins its run.
    """
    generation = 0
    for number in itertools.count():
        path = log_dir / ("run.json" if number == 0 else "run-%d.json" % number)
        new = RunIdentity(run_id or uuid.uuid4().hex[:12], generation)
        about = {"launch": launch, "size": world.size, "wall_ns": wall_ns}
        if write_first(path, json.dumps({**new._asdict(), **about})):
            return new
        record = _read(path)
        if record is None:
            continue
        recorded = RunIdentity(record["run_id"], record["generation"])
        # torchrun restarts all processes when a host joins, and does not count that.
        untouched = _SAME_JOB_SECONDS if (launch or "").startswith(TORCHRUN_ID) else 0
        if _same_job(record, world, run_id, launch, wall_ns) and (
            elastic or not _has_log(log_dir, world.rank, recorded, untouched)
        ):
            return recorded
        if recorded.run_id == run_id:
            generation = max(generation, recorded.generation + 1)
    raise AssertionError("unreachable: itertools.count() does not end")


def _same_job(
    record: Dict[str, Any],
    world: World,
    run_id: Optional[str],
    launch: Optional[str],
    wall_ns: int,
) -> bool:
    if run_id is not None and record["run_id"] != run_id:
        return False
    if launch is not None or record.get("launch") is not None:
        return bool(record.get("launch") == launch)
    age_seconds = abs(wall_ns - record["wall_ns"]) / 1e9
    return record.get("size") == world.size and age_seconds < _SAME_JOB_SECONDS


def _has_log(log_dir: Path, rank: int, identity: RunIdentity, untouched_s: float) -> bool:
    """Return whether the rank has already logged to the run: then this process is of a later job.

    Launch names repeat: the rendezvous port is often the same for every job. Only a log that was not
    written to for ``untouched_s`` seconds counts.
    """
    # Try names one by one: thousands of ranks that each listed the folder would keep its disk busy.
    for part in itertools.count():
        try:
            with (log_dir / file_name(rank, identity.generation, part)).open("rb") as file:
                if header_facts(file.readline()).get("run_id") == identity.run_id:
                    age = time.time() - os.fstat(file.fileno()).st_mtime
                    return not untouched_s or age > untouched_s
        except OSError:
            return False
        except ValueError:
            continue
    raise AssertionError("unreachable: itertools.count() does not end")


def _read(path: Path) -> Optional[Dict[str, Any]]:
    """Read a file of the first rank; None if it stays unreadable or is another program's."""
    for _ in range(_READ_ATTEMPTS):
        try:
            record = json.loads(path.read_text())
        except (OSError, ValueError):
            time.sleep(_READ_PAUSE_SECONDS)
            continue
        usable = (
            isinstance(record, dict)
            and isinstance(record.get("run_id"), str)
            and isinstance(record.get("generation"), int)
            and isinstance(record.get("wall_ns"), int)
        )
        return record if usable else None
    return None


# -- Write a file as a whole, under a name that no other file has ---------------------------------


def write_new(folder: Path, name: str, suffix: str, text: str) -> Path:
    """Write ``NAME.NUMBER.SUFFIX``, with the first free number from 0 on; readers only see it complete.

    Raises:
        OSError: if writing fails.
    """
    with _unfinished(folder, name, text) as unfinished:
        for number in itertools.count():
            path = folder / ("%s.%d%s" % (name, number, suffix))
            with contextlib.suppress(FileExistsError):
                _link(unfinished, path)
                return path
    raise AssertionError("unreachable: itertools.count() does not end")


def write_first(path: Path, text: str) -> bool:
    """Write a file unless it exists; return whether this process wrote it. Readers only see it complete.

    Raises:
        OSError: if writing fails.
    """
    if path.exists():
        return False  # most ranks come later than the first
    with _unfinished(path.parent, path.name, text) as unfinished:
        try:
            _link(unfinished, path)
        except FileExistsError:
            return False
    return True


@contextlib.contextmanager
def _unfinished(folder: Path, name: str, text: str) -> Iterator[Path]:
    """Write a hidden file, which the block may move to its final name."""
    # Hosts that share the folder may have processes with the same number.
    unfinished = folder / (".%s.%s.unfinished" % (name, uuid.uuid4().hex[:12]))
    try:
        unfinished.write_text(text)
        yield unfinished
    finally:
        with contextlib.suppress(FileNotFoundError):
            unfinished.unlink()


def _link(unfinished: Path, path: Path) -> None:
    """Give a file its final name.

    Raises:
        FileExistsError: if the name is taken.
    """
    try:
        os.link(str(unfinished), str(path))
    except FileExistsError:
        # A server may repeat a request that has succeeded.
        if not unfinished.samefile(path):
            raise
    except OSError:
        _publish_first(unfinished, path)


def _publish_first(unfinished: Path, path: Path) -> None:
    """Give a file its final name where the file system has no hard links.

    A file would replace another one, but a folder replaces no folder that has files. So the first
    process moves a folder with its text to the claim, and each process publishes the text of the claim.
    So no process waits for one that may have ended.

    Raises:
        FileExistsError: if the name is taken.
    """
    text = unfinished.read_text()
    claim = path.parent / (".%s.claim" % path.name)
    folder = unfinished.with_suffix(".folder")
    try:
        folder.mkdir()
        (folder / path.name).write_text(text)
        with contextlib.suppress(OSError):
            folder.rename(claim)
    finally:
        shutil.rmtree(str(folder), ignore_errors=True)
    # A claim is removed once its text is published. Later claims count for nothing: the file is there.
    with contextlib.suppress(FileNotFoundError):
        first_text = (claim / path.name).read_text()
        if not path.exists():
            with _unfinished(path.parent, path.name, first_text) as copy:
                copy.replace(path)
    shutil.rmtree(str(claim), ignore_errors=True)
    if not path.exists():
        # Folders cannot be moved here. Readers wait until the file has its text.
        with path.open("x") as file:
            file.write(text)
    elif path.read_text() != text:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
