"""Reports on runs held against each other: one document for all of them."""

from .compared import Compared
from .registry import FORMATS, render

__all__ = ["FORMATS", "Compared", "render"]
