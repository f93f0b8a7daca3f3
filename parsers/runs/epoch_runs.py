"""Make runs of logs with the durations of epochs and without steps.

Such logs do not name their run. The files of one folder are one run, with the ranks in their names or in
their text.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stallscope.arrays import arrow
from stallscope.collector.run_names import safe_name
from stallscope.errors import NotFoundError
from stallscope.formatting.lists import joined
from stallscope.run import Problem

from ..base import Parsed
from ..formats.printed_steps.step_lines_parser import TRAINER_STATE
from ..rank_names import (
    FROM_NAME,
    FROM_TEXT,
    RankInPath,
    labelled_ranks,
    rank_in,
    ranks_in,
    size_facts,
    size_of_files,
    stated_ranks,
)

# Facts in MLflow that also describe the run's printed logs.
_OF_THE_RUN = (
    "run_name",
    "model",
    "optimizer",
    "learning_rate",
    "batch_size",
    "size",
    "anchor",
    "steps_per_epoch",
    "whole_job",
)
# Common names for the file or folder of a job on 8 processes: np8, np-8, ranks-8, 8-ranks, 8gpus.
_SIZE_IN_NAME = re.compile(
    r"(?<![a-z0-9])(?:(?:np|ranks|processes|procs|workers|gpus)[-_=. ]?(?P<after>\d{1,6})(?!\d)"
    r"|(?P<before>\d{1,6})[-_. ]?(?:ranks?|processe?s?|procs?|workers?|gpus?)(?![a-z0-9]))",
    re.IGNORECASE,
)
# The share by which the steps of the Trainer's state may differ from those of a log.
_SAME_STEPS = 0.02
_NUMBER = re.compile(r"\d+")
# Folders of one job, next to each other: of kinds of its files, its attempts, hosts and ranks.
_PART_OF_A_JOB = re.compile(
    r"(?:(?:attempt|checkpoint|host|node|process|proc|rank|restart|version|worker)[-_.]?)?\d+"
    r"|artifacts|checkpoints|console|err|events?|lightning_logs|logs?|metrics|out|outputs?|stallscope"
    r"|stderr|stdout|steps?|summaries|summary|tb|tensorboard|train|training|val|validation|eval",
    re.IGNORECASE,
)
_LEFT_ALONE = "knows how long epochs took; left alone, as logs of steps are here"
_GAP = re.compile(r"^[._-]+(?:log|txt|out|err)$|[._-]+(?=\.(?:log|txt|out|err)$)")

_ENDING = r"(?=$|(?:\.(?:log|txt))?(?:\.(?:gz|bz2|xz|zst|lz4))?$)"
_STREAM = re.compile(
    rf"(?:^|(?<=[/._-]))(?:std)?(?:out|err){_ENDING}|(?<=\.)[oe](?=\d{{1,12}}$)", re.IGNORECASE
)
# Without the rank's folder its slash remains; Open MPI has a folder of the job above it.
_IN_RANK_FOLDER = re.compile(rf"(?:^|(?<=/))(?:1/)?/std(?:out|err){_ENDING}.*$")
_STREAM_LEFT_ALONE = "the same ranks' other stream has more; left alone"


def with_stated_ranks(path: str, logs: Sequence[Parsed], data: bytes) -> list[Parsed]:
    """Add the number of ranks, and the rank, that a file states to its logs.

    The program's own statement is trusted more than labels and the names and numbers of files.
    """
    if all(log.log.facts.get("size_from") == FROM_TEXT for log in logs):
        return [*logs]
    stated = stated_ranks(data)
    if stated.size is None:
        labelled = size_facts(None, labelled_ranks(data))
        return [log if "size" in log.log.facts else _with_facts(log, labelled) for log in logs]
    facts = size_facts(stated.size)
    ranks = {log.log.rank for log in logs}
    if stated.rank is None or ranks != {0} or rank_in(path)[0] is not None:
        return [_with_facts(log, facts) for log in logs]
    facts["rank_from"] = FROM_TEXT
    return [_of_rank(_with_facts(log, facts), stated.rank) for log in logs]


def _with_facts(log: Parsed, facts: Mapping[str, Any]) -> Parsed:
    return replace(log, log=replace(log.log, facts={**log.log.facts, **facts}))


def _of_rank(log: Parsed, rank: int) -> Parsed:
    """Assign a log to another rank."""
    column = arrow.array(np.full(log.intervals.num_rows, rank, np.int32))
    at = log.intervals.schema.get_field_index("rank")
    intervals = log.intervals.set_column(at, "rank", column)
    return replace(log, log=replace(log.log, rank=rank), intervals=intervals)


def in_other_folders(
    epoch_logs: Iterable[tuple[str, Parsed]], step_logs: Iterable[Parsed]
) -> tuple[list[tuple[str, Parsed]], list[tuple[str, Parsed]]]:
    """Return the logs of epochs that are runs of their own, and those next to the logs of steps.

    A printed log in the folder of a job with logs of steps, above or below it, is about that job.

    Args:
        epoch_logs: logs with the places of their files.
        step_logs: the logs of steps of the same place.
    """
    jobs = {_job_folder(log.log.path) for log in step_logs}
    around = {folder[:depth] for folder in jobs for depth in range(len(folder) + 1)}
    runs: list[tuple[str, Parsed]] = []
    next_to_steps: list[tuple[str, Parsed]] = []
    for where, log in epoch_logs:
        folder = _job_folder(log.log.path)
        below = any(folder[:depth] in jobs for depth in range(len(folder)))
        # MLflow's metrics come with the artifacts of their run.
        of_a_job = folder in around or below or (log.run_id and jobs)
        (next_to_steps if of_a_job else runs).append((where, log))
    return runs, next_to_steps


def unused_epoch_logs(placed_logs: Iterable[tuple[str, Parsed]]) -> list[tuple[str, Problem]]:
    """Report logs of epochs that are not used because there are logs of steps, with their places."""
    # MLflow's metrics always come with a run's artifacts: no reason to report them.
    paths = {where: log.log.path for where, log in placed_logs if not log.run_id}
    return [(where, Problem(path, _LEFT_ALONE)) for where, path in paths.items()]


def _job_folder(path: str) -> tuple[str, ...]:
    """Return the folders above a file, up to that of its job."""
    folders = PurePosixPath(path).parent.parts
    while folders and _PART_OF_A_JOB.fullmatch(folders[-1]):
        folders = folders[:-1]
    return folders


def as_runs(placed_logs: Sequence[tuple[str, Parsed]]) -> list[Parsed]:
    """Give logs of epochs the ids of their runs.

    Printed lines are more precise than MLflow's metrics, which then only describe the run.

    Args:
        placed_logs: logs with the places of their files.

    Raises:
        NotFoundError: if there are only MLflow's metrics, and they have no times.
    """
    placed_logs = _with_trainer_states(placed_logs)
    by_place: dict[tuple[str, int | None], list[Parsed]] = defaultdict(list)
    by_run: dict[str, list[Parsed]] = defaultdict(list)
    places = ranks_in(where for where, _ in placed_logs)
    placed_logs, jobs = one_of_streams(placed_logs, places)
    sized = [(where, _sized(jobs[where], log)) for where, log in placed_logs]
    families = _families(sized)
    ranks: dict[str, set[int]] = defaultdict(set)
    files: dict[str, set[int]] = defaultdict(set)
    for where, log in placed_logs:
        ranks[where].add(log.log.rank)
        rank = places[where].rank
        if rank is not None:
            files[jobs[where]].add(rank)
    for where, log in sized:
        if log.run_id:
            by_run[log.run_id].append(log)
            continue
        rank, place = places[where].rank, jobs[where]
        # The rank may follow only from the names of all files of a folder.
        if rank is not None and ranks[where] == {0} and "rank_from" not in log.log.facts:
            log = _of_rank(log, rank)
        log = _with_facts(log, size_of_files(files[place], log.log.facts))
        by_place[families.get(where, place), log.log.facts.get("repeat")].append(log)
    runs = [log for logs in by_run.values() for log in logs if "known_from" in log.log.facts]
    if len(by_run) == 1 and by_place:
        ((mlflow, *_),) = by_run.values()
        most = max(by_place, key=lambda place: sum(_epochs(log) for log in by_place[place]))
        runs = [_described_by(log, mlflow) for log in by_place.pop(most)]
    named = [
        named_by_place(log, place, again="" if repeat is None else f"-repeat-{repeat}")
        for (place, repeat), logs in by_place.items()
        for log in logs
    ]
    if not runs and not named and by_run:
        raise NotFoundError(next(iter(by_run.values()))[0].problems[0].what)
    return [*runs, *named]


def _with_trainer_states(
    placed_logs: Sequence[tuple[str, Parsed]],
) -> Sequence[tuple[str, Parsed]]:
    """Leave out what Hugging Face's Trainer saved of jobs with other logs; of others keep the longest.

    Its state is a mean over all steps, and each checkpoint has one.
    """
    jobs: dict[tuple[str, ...], list[tuple[str, Parsed]]] = defaultdict(list)
    for where, log in placed_logs:
        jobs[_job_folder(log.log.path)].append((where, log))
    kept: list[tuple[str, Parsed]] = []
    for job_logs in jobs.values():
        states = [placed for placed in job_logs if TRAINER_STATE.search(placed[0])]
        logs = [placed for placed in job_logs if placed not in states]
        if states:
            where, state = max(states, key=lambda placed: _last_step(placed[1]))
            off = [abs(_last_step(log) - _last_step(state)) for _, log in logs]
            if logs:
                nearest = off.index(min(off))
                logs[nearest] = _compared(logs[nearest], state)
            else:
                logs = [(where, state)]
        kept += logs
    return kept


def _compared(placed: tuple[str, Parsed], state: Parsed) -> tuple[str, Parsed]:
    """Say whether a log and the Trainer's state of its job have the same steps."""
    where, log = placed
    steps, saved = _last_step(log), _last_step(state)
    name = PurePosixPath(state.log.path).name
    if abs(steps - saved) <= _SAME_STEPS * saved:
        confirmed = [log.log.facts.get("confirmed"), f"{name} has the same {saved:,} steps"]
        return where, _with_facts(log, {"confirmed": ", ".join(filter(None, confirmed))})
    what = f"{name} of the same job has {saved:,} steps, and this log {steps:,}: the log is used"
    return where, replace(log, problems=(*log.problems, Problem(log.log.path, what)))


def _last_step(log: Parsed) -> int:
    return int(pc.max(log.intervals["step"]).as_py() or 0)


def _families(placed_logs: Iterable[tuple[str, Parsed]]) -> dict[str, str]:
    """Return the common place of files that state their rank in one job.

    Their names differ in one number only, their ranks differ, and their numbers of ranks are equal.
    """
    members: dict[tuple[str, object], dict[int, str]] = defaultdict(dict)
    shared: set[tuple[str, object]] = set()
    for where, log in placed_logs:
        if log.log.facts.get("rank_from") != FROM_TEXT:
            continue
        for place in _without_a_number(where):
            family = place, log.log.facts.get("size")
            if members[family].setdefault(log.log.rank, where) != where:
                shared.add(family)
    return {
        where: family[0]
        for family, ranks in members.items()
        if family not in shared and len(ranks) > 1
        for where in ranks.values()
    }


def _without_a_number(where: str) -> Iterator[str]:
    """Yield a path without one of the numbers in its last part, for each of them."""
    first = where.rfind("/") + 1
    for number in _NUMBER.finditer(where, first):
        yield f"{where[: number.start()]}#{where[number.end() :]}"


def size_in(name: str) -> int | None:
    """Return the number of processes in a name (``vgg16-np8``, ``8-ranks``), None without one."""
    match = _SIZE_IN_NAME.search(name)
    return None if match is None else int(match["after"] or match["before"]) or None


def _sized(place: str, log: Parsed) -> Parsed:
    """Add the number of processes in the name of the run, the file or the folder."""
    parts = [part for part in place.split("/") if part]
    names = [str(log.log.facts.get("run_name") or ""), *reversed(parts[-2:])]
    size = next((size for name in names if (size := size_in(name)) is not None), None)
    if size is None or "size" in log.log.facts or log.log.facts.get("size_varies"):
        return log
    return _with_facts(log, {"size": size, "size_from": FROM_NAME})


def named_by_place(log: Parsed, place: str, otherwise: str = "output", again: str = "") -> Parsed:
    """Give a log that names no run an id and a name made of its place.

    Args:
        otherwise: the start of the id if the place has no name.
        again: the end of the id, which distinguishes runs at one place.
    """
    parts = [part for part in place.split("/") if part]
    key = hashlib.sha256(place.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    run_id = f"{safe_name(parts[-1]) if parts else otherwise}-{key}{again}"
    facts = {"run_name": "/".join(filter(None, map(_without_gaps, parts[-2:]))), **log.log.facts}
    return replace(log, run_id=run_id, log=replace(log.log, facts=facts))


def _without_gaps(name: str) -> str:
    """Close the gap in a file's name without its rank: ``train-.log`` and ``.log``."""
    return _GAP.sub("", name)


def _described_by(log: Parsed, mlflow: Parsed) -> Parsed:
    """Add MLflow's facts and the end of the job to a log."""
    known = {name: mlflow.log.facts[name] for name in _OF_THE_RUN if name in mlflow.log.facts}
    ends = mlflow.intervals.filter(arrow.equal(mlflow.intervals["kind"], "end"))
    rank = arrow.array(np.full(ends.num_rows, log.log.rank, np.int32))
    ends = ends.set_column(ends.schema.get_field_index("rank"), "rank", rank)
    return replace(
        log,
        run_id=mlflow.run_id,
        log=replace(log.log, facts={**known, **log.log.facts}, ended=mlflow.log.ended),
        intervals=pa.concat_tables([log.intervals, ends]),
    )


def _epochs(log: Parsed) -> int:
    return int(log.intervals.num_rows)


# -- Choose between a rank's standard output and error, in files ----------------------------------
#
# 1/rank.0/stdout  1/rank.0/stderr     job-7.out  job-7.err


class OneStream(NamedTuple):
    """Logs of one stream of each rank."""

    logs: list[tuple[str, Parsed]]
    #: By file, the place of its job.
    places: Mapping[str, str]


def one_of_streams(
    placed_logs: Sequence[tuple[str, Parsed]], places: Mapping[str, RankInPath]
) -> OneStream:
    """Keep the stream of each rank that tells more, and give both streams' files one place.

    Args:
        placed_logs: logs with the places of their files.
        places: the rank of each file, and its path without it.
    """
    jobs: dict[str, set[str]] = defaultdict(set)
    for where, _ in placed_logs:
        jobs[_STREAM.sub("", places[where].place)].add(places[where].place)
    of_place = {
        place: _job_folder_of_streams(place)
        if len(job_places) == 1
        else _job_folder_of_streams(min(job_places, key=_of_errors))
        for job_places in jobs.values()
        for place in job_places
    }
    streams: dict[tuple[str, int], dict[str, list[Parsed]]] = defaultdict(lambda: defaultdict(list))
    for where, log in placed_logs:
        named = places[where]
        rank = log.log.rank if named.rank is None else named.rank
        streams[of_place[named.place], rank][where].append(log)
    kept: list[tuple[str, Parsed]] = []
    left: dict[str, list[str]] = defaultdict(list)
    for (job, _), of_rank in streams.items():
        where = max(of_rank, key=lambda path: _content(of_rank[path]))
        stream_logs = of_rank.pop(where)
        others = [log for logs in of_rank.values() for log in logs]
        left[job] += dict.fromkeys(log.log.path for log in others)
        kept += [(where, _with_facts_of(log, others)) for log in stream_logs]
    of_file = {where: of_place[places[where].place] for where, _ in placed_logs}
    return OneStream(_with_problems(kept, of_file, left), of_file)


def _with_facts_of(log: Parsed, others: Sequence[Parsed]) -> Parsed:
    """Add facts of the job that only a rank's other stream has."""
    facts = dict(log.log.facts)
    for parsed in others:
        known = parsed.log.facts
        if "size" not in facts and not facts.get("size_varies"):
            facts |= {name: known[name] for name in ("size", "size_from") if name in known}
        if "batch_size" in known:
            facts.setdefault("batch_size", known["batch_size"])
    return replace(log, log=replace(log.log, facts=facts))


def _with_problems(
    kept: Sequence[tuple[str, Parsed]], jobs: Mapping[str, str], left: Mapping[str, list[str]]
) -> list[tuple[str, Parsed]]:
    """Report the files that are left alone, once in each job."""
    waiting = {job: paths for job, paths in left.items() if paths}
    reported = []
    for where, log in kept:
        paths = waiting.pop(jobs[where], None)
        if paths is not None:
            problem = Problem(joined(paths), _STREAM_LEFT_ALONE)
            log = replace(log, problems=(*log.problems, problem))
        reported.append((where, log))
    return reported


def _job_folder_of_streams(place: str) -> str:
    return _IN_RANK_FOLDER.sub("", place) or place


def _of_errors(place: str) -> tuple[bool, str]:
    return re.search("err|e\\d+$", place.lower()) is not None, place


def _content(logs: Sequence[Parsed]) -> tuple[bool, bool, int]:
    """Return how much logs tell: whether they have steps, times of day, and the number of rows."""
    kinds = {kind for log in logs for kind in log.intervals["kind"].unique().to_pylist()}
    timed = any("began_local" in log.log.facts or "anchor" in log.log.facts for log in logs)
    return "window" in kinds, timed, sum(log.intervals.num_rows for log in logs)
