"""The pages there are."""

from __future__ import annotations

from .base import Page
from .overview import OverviewPage
from .runs import RunsPage

PAGES: tuple[Page, ...] = (RunsPage(), OverviewPage())
