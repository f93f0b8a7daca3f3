"""Reports on how jobs scale: one document for all series."""

from .registry import FORMATS, render

__all__ = ["FORMATS", "render"]
