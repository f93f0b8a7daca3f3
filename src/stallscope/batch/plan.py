"""Which run is held against which: among the runs given, else in the stores that they are in."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stallscope.analysis.gains.baseline import COMPARED, find_baseline, find_single, split_baselines
from stallscope.catalogue import Baselines, Catalogue
from stallscope.run import Run

from .units import Unit
from .worker import Known


@dataclass(frozen=True)
class Against:
    """What a run is held against."""

    baseline: Unit | None = None
    single: Unit | None = None


def against(
    chosen: Sequence[Known],
    known: Sequence[Known],
    named: Sequence[Known],
    stores: Iterable[Path],
) -> list[Against]:
    """For every chosen run its baseline and its run on one rank: those that were named, or else those
    among all runs that are known, or else in the stores.
    """
    among = _Synthetic(known)
    catalogues = [Catalogue.open(store) for store in stores]
    searches = [(one, Baselines(one)) for one in catalogues]
    try:
        return [_against(one.run, named, among, searches) for one in chosen]
    finally:
        for one in catalogues:
            one.close()


def job_key(run: Run) -> str:
    """The same for runs whose facts that baselines are matched on are the same."""
    return json.dumps([run.fact(name) for name in COMPARED], sort_keys=True)


class _Synthetic:
    """The runs on synthetic data, by what they must share with a run to be its baseline."""

    def __init__(self, known: Sequence[Known]) -> None:
        self._by_job: dict[str, list[tuple[Run, Unit]]] = defaultdict(list)
        for one in known:
            run = one.run
            if run.synthetic:
                self._by_job[job_key(run)].append((run, one.near))

    def of(self, run: Run) -> Against:
        own = self._by_job.get(job_key(run), [])
        candidates = [one for one, _ in own]
        return Against(
            _unit(find_baseline(run, candidates), own), _unit(find_single(run, candidates), own)
        )


def _against(
    run: Run,
    named: Sequence[Known],
    among: _Synthetic,
    searches: Sequence[tuple[Catalogue, Baselines]],
) -> Against:
    own = [(one.run, one.near) for one in named]
    base, alone = split_baselines(run, [one for one, _ in own])
    baseline, single = _unit(base, own), _unit(alone, own)
    there = among.of(run)
    baseline, single = baseline or there.baseline, single or there.single
    for catalogue, search in searches:
        if baseline is not None and single is not None:
            break
        found = search.of(run), search.single_of(run)
        first, second = (
            None if entry is None else Unit(str(catalogue.folder_of(entry)), collected=True)
            for entry in found
        )
        baseline, single = baseline or first, single or second
    return Against(baseline, single)


def _unit(run: Run | None, among: Sequence[tuple[Run, Unit]]) -> Unit | None:
    return next((unit for one, unit in among if one is run), None)
