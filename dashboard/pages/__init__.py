"""The pages, one file each."""

from .base import Page, View
from .registry import PAGES

__all__ = ["PAGES", "Page", "View"]
