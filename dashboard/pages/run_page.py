"""The frame that all pages of one run share: head, tabs and baseline."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import dash_mantine_components as dmc
from dash import Dash

from stallscope.analysis import Analysis

from ..addresses import Address, run_address
from ..companion_files import has_companions
from ..components.notices import deleted_card, run_tabs, warnings_card
from ..components.run_head import run_head
from ..run_folder import followed_folder
from ..store import RunStore
from ..store.cache import prepare

# -- The base class of pages ----------------------------------------------------------------------


@dataclass(frozen=True)
class View:
    """A rendered page: the title of the window, and the content."""

    title: str
    content: Any

    @classmethod
    def of(cls, title: str, parts: Iterable[Any], gap: str = "md") -> View:
        """Render a page from its components, from the top down; None entries are left out."""
        return cls(title, dmc.Stack([part for part in parts if part is not None], gap=gap))


class Page(ABC):
    """A page. To add one, write a file with one subclass and list it in ``registry.py``."""

    #: Its path; ``<name>`` matches any text without a slash.
    path: ClassVar[str]

    @abstractmethod
    def view(self, address: Address, store: RunStore) -> View:
        """Render the page at an address.

        Raises:
            NotFoundError: if the address names something that does not exist.
        """

    def add_callbacks(self, app: Dash, store: RunStore) -> None:  # noqa: B027  (most pages have none)
        """Add the page's own callbacks to an app, with ``app.callback``, never ``dash.callback``."""


@dataclass(frozen=True)
class RunRequest:
    """The run that an address names, analysed with the baseline that it names."""

    run_id: str
    #: The baseline's id; None without one.
    baseline_id: str | None
    analysis: Analysis
    #: The values in the path and in the query: untrusted text.
    path_values: Mapping[str, str]
    query: Mapping[str, str]

    def address(self, page: str) -> str:
        """Return the address of another page of the run, with the same baseline."""
        return run_address(self.run_id, self.baseline_id, page)


class RunPage(Page):
    """A page of one run. Its path starts with ``/run/<run_id>``."""

    #: Its tab: a key of ``run_tabs.TABS``.
    tab: ClassVar[str]
    #: Whether it says itself that the run is being recorded.
    shows_status: ClassVar[bool] = False

    @abstractmethod
    def parts(self, request: RunRequest, store: RunStore) -> list[Any]:
        """Return the components below the tabs, from the top down; None entries are left out.

        Raises:
            NotFoundError: if the address names something that does not exist.
        """

    def view(self, address: Address, store: RunStore) -> View:
        run_id = address.path_values["run_id"]
        named = address.query.get("baseline")
        baseline_id = named if named is not None and named in store else None
        store.refresh_run(run_id)
        analysis = store.analysis(run_id, baseline_id)
        request = RunRequest(run_id, baseline_id, analysis, address.path_values, address.query)
        missing = [] if named == baseline_id else [f"there is no run {named!r} to compare with"]
        parts = [
            run_head(
                analysis,
                run_id,
                baseline_id,
                store.candidates(run_id, baseline_id),
                store.read_at(run_id),
                store.reruns(run_id),
                with_status=not self.shows_status,
            ),
            run_tabs(request.address, self.tab, _empty_pages(analysis)),
            deleted_card() if store.logs_deleted(run_id) else None,
            warnings_card(missing),
            *self.parts(request, store),
        ]
        # Users open other pages next.
        prepare(analysis)
        return View.of(self.title(analysis), parts)

    def title(self, analysis: Analysis) -> str:
        """Return the title of the window."""
        return f"{self.tab} of {analysis.run.name}"


def _empty_pages(analysis: Analysis) -> set[str]:
    """Return the tabs whose pages have nothing to show; their addresses work nevertheless."""
    run = analysis.run
    empty = set() if followed_folder(run) is not None else {"Live"}
    if analysis.epoch_times is None:
        return empty
    # Lines of another program have no stages of ranks.
    empty.add("Stragglers")
    if not run.events and not run.series:
        empty.add("Timeline")
    if not run.network_checks and not has_companions(run):
        empty.add("Communication")
    return empty


def side_by_side(*parts: Any) -> Any:
    """Arrange parts in columns if the window is wide; parts that are None are left out."""
    columns = [part for part in parts if part is not None]
    if not columns:
        return None
    return dmc.SimpleGrid(columns, cols={"base": 1, "md": len(columns)}, spacing="md")
