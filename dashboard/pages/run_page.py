"""What all pages of one run share: its head, the way to its other pages, and the baseline."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import dash_mantine_components as dmc

from stallscope.analysis import Analysis

from ..addresses import Address
from ..components.notices import warnings_card
from ..components.run_head import run_head
from ..components.run_tabs import run_tabs
from ..live import followed_folder
from ..store import RunStore
from .base import Page, View


@dataclass(frozen=True)
class Shown:
    """A run as an address asks for it."""

    run_id: str
    #: The run that it is held against; None without one.
    baseline_id: str | None
    analysis: Analysis
    #: What stands in the path's places and in the query: untrusted text.
    places: Mapping[str, str]
    query: Mapping[str, str]


class RunPage(Page):
    """A page of one run: one file with one subclass, listed in ``registry.py``.

    Its path begins with ``/run/<run_id>``.
    """

    #: The tab that it is under: a key of ``run_tabs.TABS``.
    tab: ClassVar[str]

    @abstractmethod
    def parts(self, shown: Shown, store: RunStore) -> list[Any]:
        """What it shows below the tabs, from the top down; None leaves its room to the others.

        Raises:
            NotFoundError: if the address names something that is not there.
        """

    def view(self, address: Address, store: RunStore) -> View:
        run_id = address.places["run_id"]
        wanted = address.query.get("baseline")
        baseline_id = wanted if wanted is not None and wanted in store else None
        store.renew(run_id)
        analysis = store.analysis(run_id, baseline_id)
        shown = Shown(run_id, baseline_id, analysis, address.places, address.query)
        lost = [] if wanted == baseline_id else [f"there is no run {wanted!r} here to compare with"]
        parts = [
            run_head(
                analysis,
                run_id,
                baseline_id,
                store.candidates(run_id, baseline_id),
                store.read_at(run_id),
            ),
            run_tabs(run_id, baseline_id, self.tab, live=followed_folder(analysis.run) is not None),
            warnings_card(lost),
            *self.parts(shown, store),
        ]
        return View(self.title(analysis), dmc.Stack([part for part in parts if part is not None]))

    def title(self, analysis: Analysis) -> str:
        """The title of the window."""
        name = analysis.run.name
        return f"{self.tab} of {name}"


def side_by_side(*parts: Any) -> Any:
    """Parts in columns where the window is wide; those that are None leave their room."""
    there = [part for part in parts if part is not None]
    if not there:
        return None
    return dmc.SimpleGrid(there, cols={"base": 1, "md": len(there)}, spacing="md")
