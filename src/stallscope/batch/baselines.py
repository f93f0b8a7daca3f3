"""Check the baselines that the user names: one on as many ranks as the runs, one on a single rank."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stallscope.errors import NotFoundError, UnreadableError, UsageError

from .units import Unit, units_of
from .worker import KnownRun
from .workers import Failed, Result


def baseline_units(sources: Sequence[str]) -> list[Unit]:
    """Return the places that ``--baseline`` names.

    Raises:
        UsageError: if there are more than two.
        NotFoundError: if one is a store with several runs.
    """
    if len(sources) > 2:
        raise UsageError(
            "--baseline takes at most two runs: one on as many ranks, and one on a single rank"
        )
    found = []
    for source in sources:
        units = units_of(source)
        if len(units) > 1:
            raise NotFoundError(
                f"{source}: there are {len(units)} runs in this store; name one: {source}#RUN_ID"
            )
        found += units
    return found


def named_baselines(results: Iterable[Result], units: Sequence[Unit]) -> list[KnownRun]:
    """Return the baselines after the first pass.

    Args:
        results: the results of the first pass, in any order.
        units: the places, in the user's order.

    Raises:
        UnreadableError: if a baseline cannot be read.
        UsageError: if not exactly one of two baselines is on a single rank.
    """
    found: list[KnownRun] = []
    for _, result in results:
        if isinstance(result, Failed):
            raise UnreadableError(result.message)
        found.append(result)
    found.sort(key=lambda one: units.index(one.unit))
    sizes = [one.run.size for one in found]
    if len(sizes) == 2 and sizes.count(1) != 1:
        raise UsageError(
            "one of two --baseline runs must be on as many ranks as the run, the other on a single "
            f"rank; these are on {' and '.join(map(str, sizes))} ranks"
        )
    return found
