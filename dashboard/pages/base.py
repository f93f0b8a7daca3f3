"""The contract of a page."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from dash import Dash

from ..addresses import Address
from ..store import RunStore

#: A component, or a list of them: what Dash takes as children.
Content = Any


@dataclass(frozen=True)
class View:
    """What a page shows: the title of the window, and the content."""

    title: str
    content: Content


class Page(ABC):
    """One page. A new one is one file with one subclass, listed in ``registry.py``."""

    #: Its path; ``<name>`` is a place for any text without a slash.
    path: ClassVar[str]

    @abstractmethod
    def view(self, address: Address, store: RunStore) -> View:
        """What to show at an address.

        Raises:
            NotFoundError: if the address names something that is not there.
        """

    def add_callbacks(self, app: Dash, store: RunStore) -> None:  # noqa: B027  (most pages have none)
        """Add the page's own callbacks to an app, with ``app.callback``, never ``dash.callback``."""
