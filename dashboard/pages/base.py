"""The base class of pages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import dash_mantine_components as dmc
from dash import Dash

from ..addresses import Address
from ..store import RunStore


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
