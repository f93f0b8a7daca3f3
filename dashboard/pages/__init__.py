"""The pages, one file per page."""

from .base import Page, View
from .registry import PAGES

__all__ = ["PAGES", "Page", "View"]
