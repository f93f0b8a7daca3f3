"""The pages, one file per page."""

from .all_pages import PAGES
from .run_page import Page, View

__all__ = ["PAGES", "Page", "View"]
