"""Baselines that the user names: one on as many ranks as the runs, and one on a single rank."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stallscope.errors import NotFoundError, UnreadableError, UsageError

from .units import Unit, units_of
from .worker import Known
from .workers import Failed, Result


def baseline_units(sources: Sequence[str]) -> list[Unit]:
    """The places that ``--baseline`` names.

    Raises:
        UsageError: if there are more than two.
        NotFoundError: if one of them is a store with several runs.
    """
    if len(sources) > 2:
        raise UsageError(
            "--baseline takes two runs at most: one on as many ranks, and one on a single rank"
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


def named_baselines(looked: Iterable[Result], units: Sequence[Unit]) -> list[Known]:
    """The runs there, after the first pass.

    Args:
        looked: what it made of the places, in any order.
        units: the places, in the order in which they were named.

    Raises:
        UnreadableError: if one of them cannot be read.
        UsageError: if two of them do not differ as two baselines must.
    """
    found: list[Known] = []
    for _, result in looked:
        if isinstance(result, Failed):
            raise UnreadableError(result.says)
        found.append(result)
    found.sort(key=lambda one: units.index(one.unit))
    sizes = [one.run.size for one in found]
    if len(sizes) == 2 and sizes.count(1) != 1:
        raise UsageError(
            "of two --baseline runs one is on as many ranks as the run, the other on a single rank; "
            f"these are on {' and '.join(map(str, sizes))} ranks"
        )
    return found
