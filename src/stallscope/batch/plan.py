"""Find each run's baselines: those that the user names, others of the given runs, or those in stores."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stallscope.analysis.gains.baseline import COMPARED, find_baseline, find_single, split_baselines
from stallscope.collector.run_names import RunAddress
from stallscope.collector.store.layout import where_is
from stallscope.errors import NotFoundError, UnreadableError, UsageError
from stallscope.opening import several_runs_error
from stallscope.run import Run

from .units import Unit, units_of
from .worker import KnownRun
from .workers import Failed, Result

if TYPE_CHECKING:
    from stallscope.catalogue.index import Catalogue
    from stallscope.catalogue.listing import Baselines


@dataclass(frozen=True)
class BaselinePair:
    """The places of a run's baseline and of its run on one rank."""

    baseline: Unit | None = None
    single: Unit | None = None


def baseline_units(addresses: Sequence[RunAddress], warn: Callable[[str], object]) -> list[Unit]:
    """Return the places that ``--baseline`` names.

    Args:
        addresses: the baselines.
        warn: see ``units_of``.

    Raises:
        UsageError: if there are more than two.
        NotFoundError: if one has several runs.
    """
    if len(addresses) > 2:
        raise UsageError(
            "--baseline takes at most two runs: one on as many ranks, and one on a single rank"
        )
    baselines = []
    for address in addresses:
        units = units_of(address, warn)
        if len(units) > 1:
            place = where_is(Path(address.place))
            raise NotFoundError(
                f"{place}: there are {len(units)} runs here; name one, such as {units[0].where}"
            )
        baselines += units
    return baselines


def named_baselines(results: Iterable[Result], units: Sequence[Unit]) -> list[KnownRun]:
    """Return the baselines after the first pass.

    Args:
        results: the results of the first pass, in any order.
        units: the places, in the user's order.

    Raises:
        UnreadableError: if a baseline cannot be read.
        NotFoundError: if a place has several runs.
        UsageError: if not exactly one of two baselines is on a single rank.
    """
    baselines: list[KnownRun] = []
    for index, runs in sorted(results, key=lambda result: result[0]):
        if isinstance(runs, Failed):
            raise UnreadableError(runs.message)
        if len(runs) > 1:
            raise several_runs_error(units[index].where, [run.content["id"] for run in runs])
        baselines += runs
    sizes = [baseline.run.size for baseline in baselines]
    if len(sizes) == 2 and sizes.count(1) != 1:
        raise UsageError(
            "one of two --baseline runs must be on as many ranks as the run, the other on a single "
            f"rank; these are on {' and '.join(map(str, sizes))} ranks"
        )
    return baselines


def find_baselines(
    chosen: Sequence[KnownRun],
    known: Sequence[KnownRun],
    named: Sequence[KnownRun],
    stores: Iterable[Path],
) -> list[BaselinePair]:
    """Find every chosen run's baseline and its run on one rank.

    Those that the user named come first, then all known runs, then the stores.
    """
    among = _Synthetic(known)
    searches = [_search(store) for store in stores]
    try:
        return [_pair_of(known_run.run, named, among, searches) for known_run in chosen]
    finally:
        for catalogue, _ in searches:
            catalogue.close()


def _search(store: Path) -> tuple[Catalogue, Baselines]:
    # Only runs of stores have a catalogue.
    from stallscope.catalogue.index import Catalogue
    from stallscope.catalogue.listing import Baselines

    catalogue = Catalogue.open(store)
    return catalogue, Baselines(catalogue)


def job_key(run: Run) -> str:
    """Return a key that is equal for runs with equal facts as far as baselines are matched on them."""
    return json.dumps([run.fact(name) for name in COMPARED], sort_keys=True)


class _Synthetic:
    """The runs on synthetic data, by job key."""

    def __init__(self, known: Sequence[KnownRun]) -> None:
        self._by_job: dict[str, list[tuple[Run, Unit]]] = defaultdict(list)
        for known_run in known:
            run = known_run.run
            if run.synthetic:
                self._by_job[job_key(run)].append((run, known_run.read_from))

    def of(self, run: Run) -> BaselinePair:
        runs = self._by_job.get(job_key(run), [])
        candidates = [candidate for candidate, _ in runs]
        return BaselinePair(
            _unit(find_baseline(run, candidates), runs), _unit(find_single(run, candidates), runs)
        )


def _pair_of(
    run: Run,
    named: Sequence[KnownRun],
    among: _Synthetic,
    searches: Sequence[tuple[Catalogue, Baselines]],
) -> BaselinePair:
    named_runs = [(known_run.run, known_run.read_from) for known_run in named]
    base, single_run = split_baselines(run, [candidate for candidate, _ in named_runs])
    baseline, single = _unit(base, named_runs), _unit(single_run, named_runs)
    known = among.of(run)
    baseline, single = baseline or known.baseline, single or known.single
    for catalogue, search in searches:
        if baseline is not None and single is not None:
            break
        entries = search.of(run), search.single_of(run)
        first, second = (
            None if entry is None else Unit(str(catalogue.folder_of(entry)), collected=True)
            for entry in entries
        )
        baseline, single = baseline or first, single or second
    return BaselinePair(baseline, single)


def _unit(run: Run | None, among: Sequence[tuple[Run, Unit]]) -> Unit | None:
    return next((unit for candidate, unit in among if candidate is run), None)
