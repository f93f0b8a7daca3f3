"""Heat maps: rows over the run, coloured by a value; and the heat map of lateness."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stallscope.analysis import Analysis
from stallscope.analysis.views.rank_maps import LatenessMap, lateness_map, rows_of_ranks
from stallscope.arrays.types import Floats
from stallscope.formatting.lists import counted, joined, listed
from stallscope.formatting.numbers import amount

# The least share of a step that gets the strongest colour: noise must not look like a fault.
_FULL_SHARE = 0.1
# Single outliers must not wash out all other cells; a straggler's own cells decide.
_NEARLY_ALL = 99.5
_MOST_OF_A_STRAGGLER = 75
#: The most rows that all have space for a label.
MOST_LABELLED_ROWS = 32
_LABELS_OF_MANY = 14
# Pixels per row, by the largest number of rows.
_HEIGHTS = ((2, 52), (8, 34), (16, 24), (MOST_LABELLED_ROWS, 18), (64, 9), (128, 5))
_THINNEST = 3


@dataclass(frozen=True)
class HeatMapRow:
    """A labelled row."""

    label: str
    #: Adjacent rows of one group belong together, as ranks of a host do.
    group: str
    #: Whether it is marked, as a straggler is.
    emphasised: bool = False


@dataclass(frozen=True)
class HeatWords:
    """The words for values in tooltips and tables."""

    #: After a mean.
    mean: str
    #: The rank with the largest value.
    most: str


_LATENESS = HeatWords("late on average", "latest")


@dataclass(frozen=True)
class HeatMap:
    """Rows × columns of values, coloured from the least up; NaN was not measured."""

    title: str
    sentence: str
    unit: str
    x_label: str
    rows: tuple[HeatMapRow, ...]
    #: Where columns start on the x axis, and where the last one ends.
    edges: Floats
    values: Floats
    #: The largest single value of each cell, its place on the x axis, and its rank.
    most: Floats
    most_at: Floats
    most_of: Floats
    #: The least value with the strongest colour.
    full: float
    #: The content of one cell, such as ``the mean of 5 steps of up to 5 ranks``; empty for one value.
    cell: str = ""
    #: Whether values are those of each row's latest rank, not means of its ranks.
    of_latest: bool = False
    words: HeatWords = _LATENESS
    #: The largest value with the weakest colour.
    least: float = 0.0
    #: Where epochs start, on the x axis.
    marks: tuple[tuple[float, str], ...] = ()
    #: Where values change for good.
    changes: tuple[tuple[float, str], ...] = ()

    @property
    def row_height(self) -> int:
        """Pixels per row: thinner if there are many, so that all of them fit on a screen."""
        return next((height for most, height in _HEIGHTS if len(self.rows) <= most), _THINNEST)

    @property
    def labelled_rows(self) -> list[int]:
        """Rows with space for a label: all, or the emphasised ones and some between them."""
        rows = range(len(self.rows))
        if len(rows) <= MOST_LABELLED_ROWS:
            return list(rows)
        apart = len(rows) / _LABELS_OF_MANY / 2
        chosen: list[int] = []
        emphasised = [row for row in rows if self.rows[row].emphasised]
        for row in [*emphasised, *rows[:: -(-len(rows) // _LABELS_OF_MANY)]]:
            if all(abs(row - labelled) >= apart for labelled in chosen):
                chosen.append(row)
        return sorted(chosen)

    @property
    def least_shown(self) -> str:
        """Write the value of the weakest colour."""
        return f"{amount(self.least, self.unit)} and less" if self.least else "0"

    @property
    def most_shown(self) -> str:
        """Write the value of the strongest colour."""
        return f"{amount(self.full, self.unit)} and more"


def stretches(chosen: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Find start and end of every stretch of true values."""
    edges = np.flatnonzero(np.diff(chosen.astype(np.int8), prepend=0, append=0))
    return zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def lateness_chart(analysis: Analysis, *, of_latest: bool = True) -> HeatMap | None:
    """Chart how late every rank is over the run. None without stages, or on one rank.

    Args:
        analysis: of the run.
        of_latest: if ranks share rows, whether a cell shows only its latest rank, which would vanish in
            the mean of all of them.
    """
    ledger = analysis.steady
    if ledger is None or analysis.step is None or len(ledger.ranks) < 2:
        return None
    host_of = {rank.rank: rank.host for rank in analysis.ranks}
    hosts = [host_of[rank] for rank in ledger.ranks]
    named = {rank for straggler in analysis.stragglers for rank in straggler.ranks}
    positions = [at for at, rank in enumerate(ledger.ranks) if rank in named]
    lateness = lateness_map(ledger, rows_of_ranks(hosts, positions))
    rows = tuple(
        HeatMapRow(
            label_of([ledger.ranks[at] for at in row]),
            hosts[row[0]] if hosts[row[0]] == hosts[row[-1]] else "",
            any(at in positions for at in row),
        )
        for row in lateness.rows
    )
    of_latest = of_latest and _together(lateness) > 1
    values = lateness.latest if of_latest else lateness.mean
    cell = _cell(lateness, of_latest)
    ranks = np.asarray(ledger.ranks, np.float64)
    steps = ledger.steps.astype(np.float64)
    return HeatMap(
        "Lateness over the run",
        _sentence(analysis, lateness, cell),
        "ms",
        "step",
        rows,
        np.append(steps[lateness.edges[:-1]], steps[-1] + 1) - 0.5,
        values,
        lateness.most,
        steps[lateness.most_step],
        ranks[lateness.most_rank],
        _full(values, [row.emphasised for row in rows], analysis.step.mean),
        cell,
        of_latest,
    )


def label_of(ranks: Sequence[int]) -> str:
    """Name a row of ranks."""
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks[0]}–{ranks[-1]}"


def _full(values: Floats, emphasised: Sequence[bool], step_ms: float) -> float:
    known = values[~np.isnan(values)]
    nearly_all = float(np.percentile(known, _NEARLY_ALL)) if len(known) else 0.0
    measured = [row[~np.isnan(row)] for row in values[np.array(emphasised)]]
    named = [float(np.percentile(row, _MOST_OF_A_STRAGGLER)) for row in measured if len(row)]
    return max(_FULL_SHARE * step_ms, nearly_all, *named)


def _together(lateness: LatenessMap) -> int:
    """Count the most ranks that share a row."""
    return max(map(len, lateness.rows))


def _cell(lateness: LatenessMap, of_latest: bool) -> str:
    """Describe a cell; empty if it is one step of one rank."""
    steps, ranks = int(np.diff(lateness.edges).max()), _together(lateness)
    of_steps = "" if steps == 1 else counted(steps, "step")
    if of_latest:
        mean = f", its mean over {of_steps}" if of_steps else ""
        return f"the latest of up to {ranks} ranks{mean}"
    parts = [*filter(None, [of_steps]), *([] if ranks == 1 else [f"up to {ranks} ranks"])]
    return f"the mean of {' and '.join(parts)}" if parts else ""


def _sentence(analysis: Analysis, lateness: LatenessMap, cell: str) -> str:
    ranks = sum(map(len, lateness.rows))
    stands_for = f"; each cell is {cell}" if cell else ""
    return (
        f"How much later than the reference rank each of {counted(ranks, 'rank')} was ready, over "
        f"{counted(int(lateness.edges[-1]), 'steady step')}{stands_for}. {_marked(analysis)}"
    )


def _marked(analysis: Analysis) -> str:
    hosts = [host for straggler in analysis.stragglers for host in straggler.hosts]
    ranks = [
        rank for straggler in analysis.stragglers if not straggler.hosts for rank in straggler.ranks
    ]
    named = [
        listed(noun, members) for noun, members in (("host", hosts), ("rank", ranks)) if members
    ]
    if named:
        return f"Marked: {joined(named)}."
    return "No rank is later than chance explains."
