"""Choose between the standard output and error of a rank, if a launcher has written both to files.

1/rank.0/stdout  1/rank.0/stderr     job-7.out  job-7.err
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from stallscope.formatting.lists import joined
from stallscope.run import Problem

from ..base import Parsed
from ..rank_names import RankInPath

_ENDING = r"(?=$|(?:\.(?:log|txt))?(?:\.(?:gz|bz2|xz|zst|lz4))?$)"
_STREAM = re.compile(
    rf"(?:^|(?<=[/._-]))(?:std)?(?:out|err){_ENDING}|(?<=\.)[oe](?=\d{{1,12}}$)", re.IGNORECASE
)
# Without the rank's folder its slash remains; Open MPI has a folder of the job above it.
_IN_RANK_FOLDER = re.compile(rf"(?:^|(?<=/))(?:1/)?/std(?:out|err){_ENDING}.*$")
_LEFT_ALONE = "the same ranks' other stream has more; left alone"


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
        place: _job_folder(place)
        if len(job_places) == 1
        else _job_folder(min(job_places, key=_of_errors))
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
            problem = Problem(joined(paths), _LEFT_ALONE)
            log = replace(log, problems=(*log.problems, problem))
        reported.append((where, log))
    return reported


def _job_folder(place: str) -> str:
    return _IN_RANK_FOLDER.sub("", place) or place


def _of_errors(place: str) -> tuple[bool, str]:
    return re.search("err|e\\d+$", place.lower()) is not None, place


def _content(logs: Sequence[Parsed]) -> tuple[bool, bool, int]:
    """Return how much logs tell: whether they have steps, times of day, and the number of rows."""
    kinds = {kind for log in logs for kind in log.intervals["kind"].unique().to_pylist()}
    timed = any("began_local" in log.log.facts or "anchor" in log.log.facts for log in logs)
    return "window" in kinds, timed, sum(log.intervals.num_rows for log in logs)
